"""kill -9 under load, again and again on the same directory: no acknowledged write is lost, and nothing is
invented.

`--kills N` sets the number of kills (default 100); `--seed S` repeats a run's choices, though not its timing.
"""

import random
import time

import pytest

from harness.server import UNDER_TEST, Server, run_sheaf
from harness.storm import Reader, Storm, Writer

WRITERS = 8
READERS = 1
ACKNOWLEDGEMENTS_MAX = 12_000
# The storm in strict is several, each in its own directory: they run side by side, and the log that every round
# reads from its start stays short.
STRICT_PARTS = 4
# The maximum delay of a kill after enough replies, or after a restart.
JITTER_S = 0.03


class Rounds:
    """Kills and restarts on one directory, with oracles for its whole lifetime."""

    def __init__(self, server: Server, seed: int, readers: int, snapshots: bool = False):
        self.server = server
        self._random = random.Random(seed)
        self._seed = seed
        self.writers = [Writer(number, seed) for number in range(WRITERS)]
        self._readers = readers
        self._snapshots = snapshots
        self.survivors = 0

    def run(self, kills: int) -> None:
        """Load, kill, check, this many times; then a clean stop."""
        self.server.start()
        for number in range(kills):
            if self._random.random() < 0.25:
                self._flush_all()
            readers = [Reader(self.writers, self._seed + number) for _ in range(self._readers)]
            self._load_and_kill(readers)
            self._check_offline()
            if self._random.random() < 0.2:
                self._kill_while_starting()
            self.server.start()
            self.survivors += sum(writer.check(self.server) for writer in self.writers)
            for reader in readers:
                reader.check()
        assert self.server.stop() == 0
        self._check_offline()

    def _flush_all(self) -> None:
        """Allows the log to be cut and its segments to be reused."""
        with self.server.connect() as connection:
            assert connection.call("FLUSHALL") == b"OK"
        for writer in self.writers:
            writer.oracle.emptied()

    def _load_and_kill(self, readers: list[Reader]) -> None:
        storm = Storm(self.server, self.writers, readers).start(self._random.randrange(1, ACKNOWLEDGEMENTS_MAX))
        if self._snapshots:
            self._ask_for_snapshot()
        storm.wait()
        if self._snapshots:
            self._ask_for_snapshot()
        assert self.server.is_running(), "the server ended by itself"
        time.sleep(self._random.uniform(0, JITTER_S))
        self.server.kill()
        storm.join()

    def _ask_for_snapshot(self) -> None:
        """Begins a snapshot, or requests one after the current one."""
        with self.server.connect() as connection:
            assert connection.call("BGREWRITEAOF").startswith(b"Background append only file rewriting")

    def _check_offline(self) -> None:
        if UNDER_TEST == "sheaf":
            checked = run_sheaf("check", str(self.server.directory))
            assert checked.returncode == 0, checked.stdout + checked.stderr

    def _kill_while_starting(self) -> None:
        self.server.spawn()
        time.sleep(self._random.uniform(0, JITTER_S))
        self.server.kill()


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("part", range(STRICT_PARTS))
def test_kill_storm(new_server, request, part):
    share = 1 / STRICT_PARTS
    storm(new_server(durability="strict"), request, share, READERS, part)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.soak
def test_kill_storm_in_commit(new_server, request):
    """With `commit` other clients may read changes that are not durable yet, so readers prove nothing."""
    storm(new_server(durability="commit"), request, 0.2, readers=0)


def storm(server: Server, request: pytest.FixtureRequest, share: float, readers: int, part: int = 0) -> None:
    """Runs a share of the kills of --kills."""
    kills = max(1, round(request.config.getoption("kills") * share))
    seed = request.config.getoption("seed") + part
    rounds = Rounds(server, seed, readers)
    rounds.run(kills)
    acknowledged = sum(writer.oracle.acknowledged for writer in rounds.writers)
    print(f"{kills} kills, {acknowledged} commands acknowledged, {rounds.survivors} more had survived; seed {seed}")


@pytest.mark.oracle
@pytest.mark.sheaf_only
@pytest.mark.slow
@pytest.mark.soak
def test_kill_storm_with_snapshots(new_server, request):
    """A snapshot is being taken when the server is killed, and the next start begins with a snapshot."""
    kills = max(3, round(request.config.getoption("kills") * 0.5))
    every_second = ("--snapshot-interval-seconds", "1", "--snapshot-log-bytes", "64kb", "--snapshot-rate-bytes", "20mb")
    server = new_server(log_segment_bytes="1mb", extra=every_second)
    rounds = Rounds(server, request.config.getoption("seed"), READERS, snapshots=True)
    rounds.run(kills)
    taken = server.log().count("took a snapshot")
    assert taken > kills // 2
    acknowledged = sum(writer.oracle.acknowledged for writer in rounds.writers)
    print(f"{kills} kills, {taken} snapshots, {acknowledged} commands acknowledged")


@pytest.mark.oracle
def test_a_few_kills(new_server, request):
    """A short version for every run."""
    Rounds(new_server(), request.config.getoption("seed"), READERS).run(3)
