"""Replication while processes are killed or stopped, disks fill up and connections break: no acknowledged
write is lost, a replica resumes by itself from its position, and makes a full sync only if it must.
"""

import contextlib
import random
import threading

import pytest

from harness import resp
from harness.cutting_proxy import CuttingProxy
from harness.replicas import call, follower_of, has_role, info, is_following, wait_following, wait_same
from harness.server import Server, free_port
from harness.storm import Reader, Storm, Writer
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

WRITERS = 6
KILLS_OF_LEADERS = 4
KILLS_OF_REPLICAS = 2
# The acknowledged writes before a kill, and after the restart.
ACKNOWLEDGEMENTS = 400
COPIES = "copying everything from the leader"
# Larger than the sockets and the ring of the log together.
LARGE_BYTES = 1 << 20


def write_large(server: Server, mark: str, count: int) -> None:
    """This many incompressible values of 1 MiB."""
    chance = random.Random(mark)
    with server.connect() as connection:
        for number in range(count):
            assert connection.call("SET", f"{mark}:{number}", chance.randbytes(LARGE_BYTES)) == b"OK"


# -- kills ---------------------------------------------------------------------------------------------------


class Trio:
    """A leader that waits for one replica, and two replicas, under load; a killed server returns as a
    replica.
    """

    def __init__(self, new_server, seed: int):
        extra = ("--ack-replicas", "1", "--ack-timeout", "0")
        self.leader = new_server(port=free_port(), extra=extra).start()
        self.replicas = [follower_of(new_server, self.leader, extra=extra) for _ in range(2)]
        for replica in self.replicas:
            replica.options.port = replica.port
        self._seed = seed
        self.writers = [Writer(number, seed) for number in range(WRITERS)]
        self._readers: list[Reader] = []

    def acknowledged(self) -> int:
        """The number of answered commands of all writers."""
        return sum(writer.oracle.acknowledged for writer in self.writers)

    def storm(self) -> list[Storm]:
        """Load on the leader, and readers on all servers."""
        everybody = [self.leader, *self.replicas]
        self._readers = [Reader(self.writers, self._seed) for _ in everybody]
        of_leader, *of_replicas = self._readers
        storms = [Storm(self.leader, self.writers, [of_leader]).start(ACKNOWLEDGEMENTS)]
        for replica, reader in zip(self.replicas, of_replicas, strict=True):
            storms.append(Storm(replica, [], [reader]).start(0))
        storms[0].wait()
        return storms

    def kill_replica(self) -> None:
        """One replica stops and returns; the other acknowledges meanwhile."""
        storms = self.storm()
        replica = self.replicas[0]
        replica.kill()
        self._wait_for_more(storms[0])
        replica.start()
        wait_following(replica)
        self._wait_for_more(storms[0])
        self._end(storms)

    def kill_leader(self) -> None:
        """The most advanced replica is promoted; the other follows it, and so does the old leader after its
        return.
        """
        storms = self.storm()
        old = self.leader
        old.kill()
        self._end(storms)
        self.replicas.sort(key=lambda replica: int(info(replica)["slave_read_repl_offset"]))
        self.leader = self.replicas.pop()
        assert call(self.leader, "REPLICAOF", "NO", "ONE") == b"OK"
        [other] = self.replicas
        assert call(other, "REPLICAOF", "127.0.0.1", self.leader.port) == b"OK"
        # Only now, so that no replica follows it any more.
        old.start()
        assert call(old, "REPLICAOF", "127.0.0.1", self.leader.port) == b"OK"
        self.replicas = [old, other]
        for replica in self.replicas:
            wait_until("everybody to follow", lambda replica=replica: is_following(replica))

    def check(self) -> None:
        """Every acknowledged write, and every value that was read, is there, and all servers are equal."""
        for writer in self.writers:
            writer.check(self.leader)
        for reader in self._readers:
            reader.check()
        end = int(info(self.leader)["master_repl_offset"])
        for replica in self.replicas:
            assert call(replica, "WAITLSN", end, 60_000) == 1
            for writer in self.writers:
                assert writer.check(replica) == 0

    def _wait_for_more(self, storm: Storm) -> None:
        wanted = self.acknowledged() + ACKNOWLEDGEMENTS
        wait_until("more acknowledgements", lambda: storm.failures or self.acknowledged() >= wanted)

    def _end(self, storms: list[Storm]) -> None:
        for storm in storms:
            storm.stop()
        for storm in storms:
            storm.join()


@pytest.mark.oracle
def test_kills_and_promotions_lose_nothing_that_was_acknowledged(new_server, request):
    seed = request.config.getoption("seed")
    chance = random.Random(seed)
    trio = Trio(new_server, seed)
    kills = [trio.kill_leader] * KILLS_OF_LEADERS + [trio.kill_replica] * KILLS_OF_REPLICAS
    for kill in chance.sample(kills, len(kills)):
        kill()
        trio.check()


# -- processes that stand still ------------------------------------------------------------------------------


def test_a_replica_that_stood_still_is_given_up_and_comes_back(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    with replica.frozen():
        write_large(leader, "stopped", 20)
        wait_until("the leader to notice", lambda: info(leader)["connected_slaves"] == "0")
    write_large(leader, "again", 2)
    wait_same(leader, replica)
    # The order of detection depends on whether the leader had more to send than the sockets hold.
    reasons = ("nothing was heard for 5 s", "it has taken nothing for 10 s")
    assert any(reason in leader.log() for reason in reasons)
    assert replica.log().count(COPIES) == 1


def test_a_leader_that_stood_still_is_followed_again(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    with leader.frozen():
        wait_until("the replica to notice", lambda: info(replica)["master_link_status"] == "down")
        replica.wait_for_log("nothing was heard for 5 s")
    write_large(leader, "again", 5)
    wait_same(leader, replica)
    assert replica.log().count(COPIES) == 1


def test_clients_of_a_leader_that_steps_down_are_disconnected(new_server):
    """It restarts in the same process, so only the server closes its sockets."""
    leader, other = new_server(extra=("--ack-replicas", "1")).start(), new_server().start()
    with leader.connect() as idle, leader.connect() as writer:
        assert idle.call("PING") == b"PONG"
        writer.send(resp.encode("SET", "k", "no replica will acknowledge it"))
        wait_until("the write to be on disk", lambda: idle.call("WAITAOF", 1, 0, 10) == [1, 0])
        assert call(leader, "REPLICAOF", "127.0.0.1", other.port) == b"OK"
        assert idle.read_to_end() == b"" and writer.read_to_end() == b""
    wait_until("it to serve again", lambda: has_role(leader, "slave"))


# -- a full disk ---------------------------------------------------------------------------------------------


def test_a_replica_whose_disk_is_full_catches_up_once_there_is_room(new_server, tmp_path):
    volume = Volume(tmp_path, 300 * MIB)
    try:
        leader = new_server().start()
        replica = follower_of(new_server, leader, directory=volume.root / "data")
        write_large(leader, "before", 5)
        wait_same(leader, replica)
        volume.fill()
        # More than the segments that it has allocated.
        write_large(leader, "full", 80)
        replica.wait_for_log("the disk has no room for the log")
        assert call(leader, "SET", "leader", "goes on") == b"OK"
        assert call(replica, "STRLEN", "before:4") == LARGE_BYTES, "what it has can be read"
        volume.release()
        wait_same(leader, replica)
        assert replica.log().count(COPIES) == 1
        replica.kill()
        replica.start()
        wait_same(leader, replica)
    finally:
        volume.close()


# -- copies that are interrupted -----------------------------------------------------------------------------

COPIED_MIB = 120
# The number of kills of the replica in the middle of a copy, and of broken connections.
KILLS = 5
CUTS = 20


def copied_bytes(replica: Server) -> int:
    """The size of the copy in progress."""
    total = 0
    # A temporary file may get its name, or the copy be installed, meanwhile: the next look sees all of it.
    with contextlib.suppress(FileNotFoundError):
        for path in (replica.directory / "full-copy").rglob("*"):
            total += path.stat().st_size if path.is_file() else 0
    return total


def wait_copied(replica: Server) -> None:
    """Waits until the copy is complete, as long as it grows: each cut costs a new connection."""
    while not is_following(replica):
        held = copied_bytes(replica)

        def goes_on(held=held) -> bool:
            return is_following(replica) or copied_bytes(replica) > held

        wait_until("more of the copy, or its end", goes_on)


def test_a_copy_goes_on_after_many_kills_and_cuts(new_server):
    leader = new_server(durability="none", log_segment_bytes="64mb").start()
    write_large(leader, "much", COPIED_MIB)
    # A killed replica's connection, and the last one, end before they are cut.
    connections = CUTS + KILLS + 2
    with CuttingProxy(leader.http_port, connection_bytes_max=COPIED_MIB * MIB // connections) as files:

        def name_proxy(piece: bytes) -> bytes:
            return piece.replace(b"+FULL %d\r\n" % leader.http_port, b"+FULL %d\r\n" % files.port)

        with CuttingProxy(leader.port, edit=name_proxy) as door:
            replica = new_server(durability="none", extra=("--replica-of", f"127.0.0.1:{door.port}")).start()
            for number in range(KILLS):
                held = copied_bytes(replica)
                wait_until(f"more of the copy, kill {number}", lambda held=held: copied_bytes(replica) > held)
                replica.kill()
                replica.start()
            wait_copied(replica)
            assert files.cuts >= CUTS
            assert files.bytes < 2 * COPIED_MIB * MIB, "it does not begin from zero each time"
            assert replica.log().count("the copy starts over") == 0
            write_large(leader, "more", 2)
            wait_same(leader, replica)


@pytest.fixture
def half_copied(new_server):
    """A leader, and a replica whose copy has stopped in the middle; and a function that resumes it."""
    leader = new_server(durability="none").start()
    write_large(leader, "much", COPIED_MIB)
    goes_on = threading.Event()

    def stand_still(piece: bytes) -> bytes:
        if files.bytes > COPIED_MIB * MIB // 2:
            goes_on.wait()
        return piece

    def name_proxy(piece: bytes) -> bytes:
        return piece.replace(b"+FULL %d\r\n" % leader.http_port, b"+FULL %d\r\n" % files.port)

    with (
        CuttingProxy(leader.http_port, edit=stand_still) as files,
        CuttingProxy(leader.port, edit=name_proxy) as door,
    ):
        replica = new_server(durability="none", extra=("--replica-of", f"127.0.0.1:{door.port}")).start()
        wait_until("half of the copy", lambda: files.bytes > COPIED_MIB * MIB // 2)
        yield leader, replica, goes_on
        goes_on.set()


def test_a_copy_from_a_leader_that_has_vanished_is_given_up_and_gone_on_with(half_copied):
    leader, replica, goes_on = half_copied
    replica.wait_for_log("the copy from the leader is not complete")
    goes_on.set()
    wait_copied(replica)
    assert replica.log().count("the copy starts over") == 0
    wait_same(leader, replica)


def test_a_half_copied_replica_can_lead_at_once(half_copied):
    _, replica, _ = half_copied
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(replica, "SET", "k", "v") == b"OK"
    assert "is not complete" not in replica.log(), "it has not waited for the leader"
    assert copied_bytes(replica) == 0


def test_a_replica_that_was_away_for_too_long_copies_everything_anew(new_server):
    few = ("--replica-retention-bytes", "1mb", "--snapshot-log-bytes", "1mb")
    leader = new_server(log_segment_bytes="1mb", extra=few).start()
    replica = follower_of(new_server, leader)
    write_large(leader, "before", 3)
    wait_same(leader, replica)
    end = int(info(replica)["slave_read_repl_offset"])
    replica.kill()
    assert call(leader, "FLUSHALL") == b"OK"

    def is_forgotten() -> bool:
        write_large(leader, "after", 3)
        return int(info(leader)["repl_backlog_first_byte_offset"]) > end

    wait_until("the log to be removed", is_forgotten)
    replica.start()
    wait_same(leader, replica)
    assert replica.log().count(COPIES) == 2
    assert call(replica, "EXISTS", "before:1") == 0
    write_large(leader, "again", 1)
    wait_same(leader, replica)
