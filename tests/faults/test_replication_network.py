"""Leader and replica in network namespaces of their own: a slow line, cuts in one or both directions, two
leaders.
"""

import pytest

from harness import resp
from harness.network import Line, Namespace
from harness.replicas import call, error_of, info, is_following, wait_following, wait_same
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

COPIES = "copying everything from the leader"
SILENT = "nothing was heard for 5 s"


@pytest.fixture
def line():
    with Line() as line:
        yield line


@pytest.fixture
def apart(new_server, line):
    """A leader at the left end, and a replica at the right one."""

    def make(*extra: str) -> tuple[Server, Server]:
        leader = at(new_server, line.left, *extra).start()
        replica = at(new_server, line.right, "--replica-of", f"{line.left.address}:{leader.port}", *extra).start()
        wait_following(replica)
        return leader, replica

    return make


def at(new_server, end: Namespace, *extra: str) -> Server:
    """A server behind one end of the line, for clients there and for the other end."""
    extra = ("--protected-mode", "no", *extra)
    return new_server(bind=f"127.0.0.1 {end.address}", namespace=end, extra=extra)


def write(server: Server, mark: str, count: int = 200) -> None:
    """Some keys."""
    with server.connect() as connection:
        connection.send(b"".join(resp.encode("SET", f"{mark}:{number}", "x" * 1000) for number in range(count)))
        for _ in range(count):
            assert connection.read() == b"OK"


def test_a_slow_line_is_good_enough(line, apart):
    line.slow_down()
    leader, replica = apart("--ack-replicas", "1")
    write(leader, "slow", 5000)
    wait_same(leader, replica)
    assert call(leader, "WAIT", 1, 60_000) == 1


@pytest.mark.parametrize("direction", ["both", "to the replica", "to the leader"])
def test_a_cut_is_noticed_and_made_up_for(line, apart, direction):
    leader, replica = apart()
    write(leader, "before")
    if direction == "both":
        line.cut()
    else:
        line.cut_from(line.left if direction == "to the replica" else line.right)
    write(leader, "meanwhile", 2000)
    wait_until("the leader to notice", lambda: info(leader)["connected_slaves"] == "0")
    wait_until("the replica to notice", lambda: info(replica)["master_link_status"] == "down")
    left = next(row for row in leader.log().splitlines() if "a replica has left" in row)
    assert f":{replica.port}" in left, left
    assert SILENT in replica.log() or direction == "to the leader"
    line.heal()
    write(leader, "after")
    wait_same(leader, replica)
    assert replica.log().count(COPIES) == 1


def test_a_leader_that_is_cut_off_acknowledges_nothing_while_another_leads(line, apart):
    leader, replica = apart("--ack-replicas", "1", "--ack-timeout", "0")
    write(leader, "shared")
    line.cut()
    with leader.connect() as connection, leader.connect() as other:
        connection.send(resp.encode("SET", "unsafe", "1"))
        wait_until("the write to be on the leader's disk", lambda: other.call("WAITAOF", 1, 0, 10) != [0, 0])
        assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
        assert call(replica, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
        assert call(replica, "SET", "new", "leader") == b"OK"
        connection.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        line.heal()
        assert call(leader, "REPLICAOF", line.right.address, replica.port) == b"OK"
        connection.socket.settimeout(60)
        with pytest.raises(resp.Closed):
            assert connection.read() != b"OK", "it was never acknowledged"
            connection.read()
    wait_same(replica, leader)
    assert call(leader, "GET", "unsafe") is None and call(leader, "GET", "new") == b"leader"
    kept = list(leader.directory.glob("diverged-*.bin"))
    assert kept and b"unsafe" in kept[0].read_bytes(), "its tail is kept aside"
    write(replica, "after")
    wait_same(replica, leader)


def test_a_replica_of_the_new_epoch_fences_the_old_leader(new_server, line, apart):
    leader, replica = apart()
    write(leader, "shared")
    line.cut()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    third = at(new_server, line.right, "--replica-of", f"127.0.0.1:{replica.port}").start()
    wait_following(third)
    line.heal()
    # By mistake it is sent to the old leader.
    assert call(third, "REPLICAOF", line.left.address, leader.port) == b"OK"
    leader.wait_for_log("another server leads in a higher epoch")
    assert error_of(call(leader, "SET", "k", "v")).startswith("READONLY")
    assert call(leader, "REPLICAOF", line.right.address, replica.port) == b"OK"
    assert call(third, "REPLICAOF", "127.0.0.1", replica.port) == b"OK"
    for follower in (leader, third):
        wait_until("everybody to follow", lambda follower=follower: is_following(follower))
        wait_same(replica, follower)


@pytest.mark.parametrize("moment", ["before a hand-over", "during a hand-over"])
def test_a_fenced_leader_does_not_take_writes_after_a_hand_over_that_failed(new_server, line, apart, moment):
    leader, replica = apart()
    stays = at(new_server, line.left, "--replica-of", f"127.0.0.1:{leader.port}").start()
    wait_following(stays)
    write(leader, "shared")
    line.cut()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    third = at(new_server, line.right, "--replica-of", f"127.0.0.1:{replica.port}").start()
    wait_following(third)
    line.heal()
    with stays.frozen():
        call(leader, "SET", "k", "lacking at the replica")
        if moment == "during a hand-over":
            assert call(leader, "FAILOVER", "TO", "127.0.0.1", stays.port, "TIMEOUT", 600_000) == b"OK"
        assert call(third, "REPLICAOF", line.left.address, leader.port) == b"OK"
        leader.wait_for_log("another server leads in a higher epoch")
        if moment == "during a hand-over":
            leader.wait_for_log("the hand-over has failed")
        # The role is in force before it is saved; until then, FAILOVER is told that it changes.
        refused = "ERR FAILOVER is not valid"
        wait_until("the role to be saved", lambda: error_of(call(leader, "FAILOVER")).startswith(refused))
        assert error_of(call(leader, "SET", "k", "v")).startswith("READONLY")
        assert info(leader)["replication_fenced_by_epoch"] != "0"
