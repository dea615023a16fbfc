"""A group of servers on hosts and disks of their own, and the faults that can befall it.

Every fault is a function of a `Group`: it injects, waits, and heals. Where this machine gives us no namespaces or no
loop mounts, the faults that need them are left out.
"""

import contextlib
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.group_clients import Load
from harness.groups import fields, members, membership, wait_leader
from harness.network import Namespace, Network, NoNetwork
from harness.replicas import call, is_following
from harness.resp import UNREACHABLE
from harness.server import Server, free_port
from harness.time_of_day import TimeOfDay, build_library
from harness.volume import MIB, Volume
from harness.waiting import wait_until

# Recovery of a member, with all that happens on a busy machine.
PATIENCE_S = 120.0
VOLUME_BYTES = 400 * MIB
# Small, so that the log has many segments and snapshots within minutes.
SMALL_LOG = ("--snapshot-log-bytes", "16mb")
SEGMENT_BYTES = "1mb"
# More than the log that is in transit to a follower at any time.
LAG_BYTES_MAX = 256 << 10
# Less than the time after which IDEMP may forget an operation of `harness/group_clients.py`.
CLOCK_STEP_S_MAX = 20 * 60


class Group:
    """A group of `count` servers, the last of which may be a witness. Use it with `with`."""

    def __init__(self, new_server: Callable[..., Server], place: Path, count: int, seed: int, has_witness: bool = False):
        self.random = random.Random(seed)
        self.count, self.has_witness = count, has_witness
        self.network: Network | None = None
        self.volumes: list[Volume] = []
        self.times: list[TimeOfDay] = []
        self.servers: list[Server] = []
        with contextlib.ExitStack() as made:
            self._provide(made, place)
            for number in range(count):
                self._add_server(new_server, place / f"data-{number + 1}", number)
            self._close = made.pop_all()

    def _provide(self, made: contextlib.ExitStack, place: Path) -> None:
        """Hosts and disks, where this machine gives us any."""
        with contextlib.suppress(NoNetwork):
            self.network = made.enter_context(Network(self.count + 1))
        try:
            for number in range(self.count):
                disk = place / f"disk-{number + 1}"
                disk.mkdir()
                volume = Volume(disk, VOLUME_BYTES)
                made.callback(volume.close)
                self.volumes.append(volume)
        except pytest.skip.Exception:
            self.volumes = []
        with contextlib.suppress(pytest.skip.Exception):
            library = build_library(place)
            self.times = [TimeOfDay(place / f"time-{number + 1}", library) for number in range(self.count)]

    def _add_server(self, new_server: Callable[..., Server], directory: Path, number: int) -> None:
        if self.volumes:
            # The log of the server's own messages stays outside of the volume.
            target = self.volumes[number].root / "data"
            target.mkdir()
            directory.symlink_to(target)
        options: dict = {}
        extra = SMALL_LOG
        if self.network is not None:
            host = self.network.ends[number]
            options = {"namespace": host, "bind": f"{host.address} 127.0.0.1"}
            extra = (*extra, "--protected-mode", "no")
        join = self.servers[0] if self.servers else None
        if self.has_witness and number == self.count - 1:
            extra = (*extra, "--witness")
        extra = (*membership(join), *extra)
        if self.times:
            options["extra_environment"] = self.times[number].environment
        options |= {"port": free_port(), "log_segment_bytes": SEGMENT_BYTES, "extra": extra}
        self.servers.append(new_server(directory, **options).start())
        wait_leader(self.servers)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            if server.is_running():
                server.kill()
        self._close.close()

    @property
    def clients_line(self) -> Namespace | None:
        """The host of the clients; no fault cuts it off."""
        return self.network.ends[-1] if self.network else None

    def load(self, path: Path, name: str) -> Load:
        """Clients of all kinds that write a history."""
        return Load(self.servers, self.clients_line, path, name)

    # -- what it is like ------------------------------------------------------------------------------------

    def leader(self) -> Server:
        """The server that says that it leads, in the newest term."""

        def found() -> Server | None:
            terms = []
            for number, server in enumerate(self.servers):
                with contextlib.suppress(*UNREACHABLE):
                    role, info = call(server, "ROLE"), fields(server, "GROUP", "INFO")
                    if isinstance(role, list) and role[0] == b"master":
                        terms.append((info["term"], number))
            return self.servers[max(terms)[1]] if terms else None

        return wait_until("a leader", found, PATIENCE_S)

    def followers(self) -> list[Server]:
        """All servers but the leader."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def has_data(self, server: Server) -> bool:
        """Whether the server has data: a witness has none."""
        return not self.has_witness or server is not self.servers[-1]

    def host(self, server: Server) -> Namespace:
        """The host of the server."""
        assert server.options.namespace is not None
        return server.options.namespace

    def others(self, server: Server) -> list[Server]:
        """The servers but this one."""
        return [one for one in self.servers if one is not server]

    def wait_healthy(self) -> None:
        """Waits until one leads, and all others follow and vote."""

        def is_healthy() -> bool:
            try:
                infos = [fields(server, "GROUP", "INFO") for server in self.servers]
                leads = [call(server, "ROLE")[0] == b"master" for server in self.servers]
                if leads.count(True) != 1 or len({info["term"] for info in infos}) != 1:
                    return False
                if any(info["voters"] != self.count or info["members"] != self.count for info in infos):
                    return False
                return all(leading or is_following(server) for leading, server in zip(leads, self.servers, strict=True))
            except (*UNREACHABLE, TypeError, KeyError, AttributeError):
                return False

        wait_until("a healthy group", is_healthy, PATIENCE_S)

    def is_behind(self) -> bool:
        """Whether a member lacks much of the log, or the leader has just changed."""
        try:
            return any((one["lag-bytes"] or 0) > LAG_BYTES_MAX for one in members(self.leader()))
        except UNREACHABLE:
            return True

    # -- pieces of faults -----------------------------------------------------------------------------------

    def wait(self, least_s: float = 0.3, most_s: float = 2.5) -> None:
        """Waits for a random time, as long as a fault lasts."""
        threading.Event().wait(self.random.uniform(least_s, most_s))

    @contextlib.contextmanager
    def stopped(self, servers: list[Server]) -> Iterator[None]:
        """SIGSTOP within the block."""
        with contextlib.ExitStack() as frozen:
            for server in servers:
                frozen.enter_context(server.frozen())
            yield

    @contextlib.contextmanager
    def cut(self, pairs: list[tuple[Server, Server]]) -> Iterator[None]:
        """Loses packets from the first to the second of each pair within the block."""
        assert self.network is not None
        try:
            for sender, receiver in pairs:
                self.network.lose(self.host(sender), self.host(receiver))
            yield
        finally:
            self.network.heal()

    def around(self, server: Server) -> list[tuple[Server, Server]]:
        """Both directions between the server and all others."""
        return [pair for other in self.others(server) for pair in ((server, other), (other, server))]

    def volume(self, server: Server) -> Volume:
        """The disk of the server."""
        return self.volumes[self.servers.index(server)]

    def time_of_day(self, server: Server) -> TimeOfDay:
        """The clock of the server."""
        return self.times[self.servers.index(server)]


# -- kill -9 -----------------------------------------------------------------------------------------------------


def killed(group: Group, servers: list[Server]) -> None:
    for server in servers:
        server.kill()
    group.wait(0.0)
    for server in servers:
        server.start()


def kill_leader(group: Group) -> None:
    killed(group, [group.leader()])


def kill_leader_for_longer(group: Group) -> None:
    leader = group.leader()
    leader.kill()
    wait_leader(group.others(leader))
    group.wait()
    leader.start()


def kill_follower(group: Group) -> None:
    killed(group, [group.random.choice(group.followers())])


def kill_majority(group: Group) -> None:
    """Kills a random majority, which mostly includes the leader."""
    leader = group.leader()
    if group.random.random() < 0.6:
        killed(group, [leader, *group.random.sample(group.others(leader), group.count // 2)])
    else:
        killed(group, group.random.sample(group.servers, group.count // 2 + 1))


def kill_all(group: Group) -> None:
    killed(group, group.random.sample(group.servers, group.count))


def kill_leaders_in_a_row(group: Group) -> None:
    """The next leader dies as soon as it leads."""
    first = group.leader()
    first.kill()
    second = wait_leader(group.others(first))
    second.kill()
    first.start()
    second.start()


# -- SIGSTOP -----------------------------------------------------------------------------------------------------


def pause_leader_shortly(group: Group) -> None:
    with group.stopped([group.leader()]):
        group.wait(0.05, 0.45)


def pause_leader(group: Group) -> None:
    """Pauses the leader for longer than its lease: the others elect another leader."""
    leader = group.leader()
    with group.stopped([leader]):
        wait_leader(group.others(leader))
        group.wait(0.1, 1.5)


def pause_follower(group: Group) -> None:
    with group.stopped([group.random.choice(group.followers())]):
        group.wait()


def pause_majority(group: Group) -> None:
    with group.stopped(group.random.sample(group.servers, group.count // 2 + 1)):
        group.wait(0.3, 2.0)


def pause_all_in_turn(group: Group) -> None:
    for server in group.random.sample(group.servers, group.count):
        with group.stopped([server]):
            group.wait(0.1, 0.9)


def pause_follower_and_kill_leader(group: Group) -> None:
    leader, follower = group.leader(), group.random.choice(group.followers())
    with group.stopped([follower]):
        leader.kill()
        group.wait(0.1, 1.0)
    leader.start()


# -- the network -------------------------------------------------------------------------------------------------


def cut_off_leader(group: Group) -> None:
    leader = group.leader()
    with group.cut(group.around(leader)):
        wait_leader(group.others(leader))
        group.wait(0.1)


def cut_off_follower(group: Group) -> None:
    with group.cut(group.around(group.random.choice(group.followers()))):
        group.wait()


def leader_is_deaf(group: Group) -> None:
    leader = group.leader()
    with group.cut([(other, leader) for other in group.others(leader)]):
        group.wait(0.5, 3.0)


def leader_is_mute(group: Group) -> None:
    leader = group.leader()
    with group.cut([(leader, other) for other in group.others(leader)]):
        group.wait(0.5, 3.0)


def bridge(group: Group) -> None:
    """Two servers do not reach each other, but both reach all others."""
    leader = group.leader()
    other = group.random.choice(group.others(leader))
    with group.cut([(leader, other), (other, leader)]):
        group.wait(0.5, 3.0)


def one_way_ring(group: Group) -> None:
    """Each server loses the packets to its predecessor in a ring, so it hears only some of the others."""
    ring = group.random.sample(group.servers, group.count)
    with group.cut([(ring[i], ring[i - 1]) for i in range(group.count)]):
        group.wait(0.5, 3.0)


def everybody_alone(group: Group) -> None:
    with group.cut([pair for server in group.servers for pair in group.around(server)]):
        group.wait(0.3, 2.0)


def flapping(group: Group) -> None:
    """The leader is cut off and back again and again."""
    for _ in range(group.random.randrange(3, 8)):
        with group.cut(group.around(group.leader())):
            group.wait(0.05, 0.8)
        group.wait(0.05, 0.6)


def cut_off_leader_then_kill_next(group: Group) -> None:
    leader = group.leader()
    with group.cut(group.around(leader)):
        second = wait_leader(group.others(leader))
        second.kill()
        group.wait(0.0, 1.0)
    second.start()


# -- disks -------------------------------------------------------------------------------------------------------


def full_disk(group: Group, server: Server) -> None:
    volume = group.volume(server)
    try:
        # Most of the space is taken without writing: writes would slow down all disks of the machine.
        volume.fill_leaving(MIB)
        volume.fill()
        group.wait(1.0, 4.0)
    finally:
        volume.release()
    assert server.is_running(), "a member with a full disk waits for room"


def full_disk_of_leader(group: Group) -> None:
    full_disk(group, group.leader())


def full_disk_of_follower(group: Group) -> None:
    full_disk(group, group.random.choice(group.followers()))


def slow_disk(group: Group, server: Server) -> None:
    """The disk stands still for most of the time."""
    for _ in range(group.random.randrange(4, 10)):
        with group.volume(server).stalled():
            group.wait(0.03, 0.3)
        group.wait(0.0, 0.05)


def slow_disk_of_leader(group: Group) -> None:
    slow_disk(group, group.leader())


def slow_disk_of_follower(group: Group) -> None:
    slow_disk(group, group.random.choice(group.followers()))


def stalled_disk_of_leader(group: Group) -> None:
    with group.volume(group.leader()).stalled():
        group.wait(0.8, 3.0)


def stalled_disk_of_follower_while_leader_dies(group: Group) -> None:
    leader, follower = group.leader(), group.random.choice(group.followers())
    with group.volume(follower).stalled():
        leader.kill()
        group.wait(0.3, 2.0)
    leader.start()


# -- clocks ------------------------------------------------------------------------------------------------------


def clock_steps(group: Group, server: Server) -> None:
    """The time of day of the server jumps forwards and backwards."""
    for _ in range(group.random.randrange(2, 6)):
        group.time_of_day(server).set(group.random.uniform(-CLOCK_STEP_S_MAX, CLOCK_STEP_S_MAX))
        group.wait(0.1, 0.7)
    group.time_of_day(server).set(0)


def clock_steps_of_leader(group: Group) -> None:
    clock_steps(group, group.leader())


def clock_steps_of_follower(group: Group) -> None:
    clock_steps(group, group.random.choice(group.followers()))


def clock_steps_while_leader_dies(group: Group) -> None:
    """The next leader may be the one with the wrong time."""
    leader, follower = group.leader(), group.random.choice(group.followers())
    group.time_of_day(follower).set(group.random.uniform(-CLOCK_STEP_S_MAX, CLOCK_STEP_S_MAX))
    leader.kill()
    wait_leader(group.others(leader))
    group.wait(0.0, 1.0)
    leader.start()
    group.time_of_day(follower).set(0)


# -- members -----------------------------------------------------------------------------------------------------


def hand_over(group: Group) -> None:
    leader = group.leader()
    followers = [one for one in members(leader) if one["role"] == b"follower" and one["kind"] != b"witness"]
    target = group.random.choice(followers)
    with contextlib.suppress(*UNREACHABLE):
        # An error is an answer, too: a follower that lags refuses.
        call(leader, "GROUP", "TRANSFER", target["id"])


def hand_over_and_kill(group: Group) -> None:
    """The old leader dies in the middle of the hand-over."""
    leader = group.leader()
    sender = threading.Thread(target=_transfer, args=(leader,), daemon=True)
    sender.start()
    group.wait(0.0, 0.05)
    leader.kill()
    sender.join()
    leader.start()


def _transfer(leader: Server) -> None:
    with contextlib.suppress(*UNREACHABLE):
        call(leader, "FAILOVER")


def replace_member(group: Group) -> None:
    """A follower loses its disk, is removed, and joins as a new member."""
    lost = group.random.choice(group.followers())
    address = f"{lost.host}:{lost.port}".encode()
    lost.kill()
    empty(lost.directory)

    def is_removed() -> bool:
        leader = group.leader()
        old = [one for one in members(leader) if one["address"] == address]
        return not old or call(leader, "GROUP", "REMOVE", old[0]["id"]) == b"OK"

    wait_until("the old member to be removed", is_removed, PATIENCE_S)
    lost.options.extra = _joining(lost, group.leader())
    lost.start()


def _joining(server: Server, leader: Server) -> tuple[str, ...]:
    """The options of the server, with another leader to join."""
    rest = list(server.options.extra)
    for option in ("--group", "--join"):
        if option in rest:
            at = rest.index(option)
            del rest[at : at + 2]
    return (*membership(leader), *rest)


def empty(directory: Path) -> None:
    """Removes everything in the directory."""
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


KILLS = (kill_leader, kill_leader_for_longer, kill_follower, kill_majority, kill_all, kill_leaders_in_a_row)
PAUSES = (pause_leader_shortly, pause_leader, pause_follower, pause_majority, pause_all_in_turn)
PAUSES += (pause_follower_and_kill_leader,)
PARTITIONS = (cut_off_leader, cut_off_follower, leader_is_deaf, leader_is_mute, bridge, one_way_ring, everybody_alone)
PARTITIONS += (flapping, cut_off_leader_then_kill_next)
DISKS = (full_disk_of_leader, full_disk_of_follower, slow_disk_of_leader, slow_disk_of_follower, stalled_disk_of_leader)
DISKS += (stalled_disk_of_follower_while_leader_dies,)
CLOCKS = (clock_steps_of_leader, clock_steps_of_follower, clock_steps_while_leader_dies)
CHANGES = (hand_over, hand_over_and_kill, replace_member)


Fault = Callable[[Group], None]


def faults(group: Group) -> list[Fault]:
    """All faults that this machine lets us inject."""
    found = [*KILLS, *PAUSES, *CHANGES]
    if group.network is not None:
        found += PARTITIONS
    if group.volumes:
        found += DISKS
    if group.times:
        found += CLOCKS
    return found
