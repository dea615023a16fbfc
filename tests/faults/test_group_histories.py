"""A group under faults of all kinds, with clients of both protocols that record what they were told. A checker
(`linearizability`) decides whether the histories are those of one server that never fails.
"""

import contextlib
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from harness.group_clients import Load
from harness.history import History, run_go, verdict
from harness.nemesis import Fault, Group, faults
from harness.server import Server, run_sheaf
from harness.storm import contents
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

ROUNDS_PER_HISTORY = 10
CATCH_UP_S = 4


@dataclass
class Figures:
    """What the report at the end says."""

    gaps_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    known: int = 0
    unknown: int = 0
    weak: int = 0
    histories: int = 0

    def add(self, history: History) -> None:
        """The operations of a history that was accepted."""
        self.known += history.recorded["known"]
        self.unknown += history.recorded["unknown"]
        self.weak += history.recorded["weak"]
        self.histories += 1

    def __str__(self) -> str:
        rounds = sum(map(len, self.gaps_s.values()))
        lines = [f"{rounds} rounds, {self.histories} histories accepted: {self.known} operations acknowledged,"]
        lines.append(f"{self.unknown} without a reply, {self.weak} reads at followers")
        lines.append("| fault | rounds | longest time without an acknowledged write, ms: median | worst |")
        lines.append("|---|---|---|---|")
        for name, gaps in sorted(self.gaps_s.items()):
            lines.append(f"| {name} | {len(gaps)} | {1000 * statistics.median(gaps):.0f} | {1000 * max(gaps):.0f} |")
        return "\n".join(lines)


def test_the_checker_refuses_wrong_histories():
    tested = run_go("test", "./...")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.slow
def test_histories_under_faults_are_those_of_one_server(group, checker, request, tmp_path):
    rounds = request.config.getoption("group_rounds")
    chosen = in_turn(group, rounds, request.config.getoption("group_faults"))
    figures = Figures()
    try:
        for start in range(0, rounds, ROUNDS_PER_HISTORY):
            with group.load(tmp_path / f"history-{start}.jsonl", str(start)) as load:
                for number, fault in enumerate(chosen[start : start + ROUNDS_PER_HISTORY]):
                    befall(group, load, start + number + 1, fault, figures)
                group.wait_healthy()
            told = verdict(checker, load.history)
            figures.add(load.history)
            print(f"to round {start + number + 1}: {told.partition(': ')[2]}", flush=True)
            load.history.path.unlink()
        check_all_have_the_same(group)
    finally:
        print(figures, flush=True)
    request.node.is_broken = False


def check_all_have_the_same(group: Group) -> None:
    """The same keys everywhere, in logs and files without damage."""
    group.wait_healthy()
    leader = group.leader()
    for follower in filter(group.has_data, group.others(leader)):
        wait_until("all to have the same", lambda one=follower: have_the_same(leader, one))
    for server in group.servers:
        assert server.stop() == 0
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr


def have_the_same(leader: Server, follower: Server) -> bool:
    """Whether their keys and values are equal now."""
    with leader.connect() as one, follower.connect() as other:
        try:
            return contents(one) == contents(other)
        except (KeyError, TypeError):
            # A lease has ended, or a follower that catches up has gone on, since the keys were listed.
            return False


def in_turn(group: Group, rounds: int, wanted: str | None) -> list[Fault]:
    """Each fault about as often as any other one, in random order."""
    available = [fault for fault in faults(group) if not wanted or fault.__name__ in wanted.split(",")]
    assert available, "no such fault, or not on this machine"
    chosen: list[Fault] = []
    while len(chosen) < rounds:
        chosen += group.random.sample(available, len(available))
    return chosen[:rounds]


def befall(group: Group, load: Load, number: int, fault: Fault, figures: Figures) -> None:
    """One round: a fault in a healthy group under load, until writes go on."""
    load.shared.round = number
    group.wait_healthy()
    load.wait_acknowledged(20)
    name = fault.__name__
    # Two members that both have everything are needed to go on at once without the third.
    with contextlib.suppress(AssertionError):
        wait_until("all to catch up", lambda: not group.is_behind(), CATCH_UP_S)
    if group.is_behind():
        name += ", a member behind"
    since = time.monotonic()
    fault(group)
    load.wait_acknowledged(20)
    gap_s = load.probe.gap_s(since)
    figures.gaps_s[name].append(gap_s)
    print(f"{time.strftime('%T')} round {number}: {name}, {1000 * gap_s:.0f} ms without a write", flush=True)
    load.check_clients()
