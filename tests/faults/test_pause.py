"""CLIENT PAUSE: commands of clients wait, and everything else goes on."""

import pytest

from harness.replicas import call, follower_of, wait_following, wait_same
from harness.resp import encode
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

LONG_MS = 600_000


def test_writes_wait_until_the_pause_is_ended_by_another_client(server):
    with server.connect() as writer, server.connect() as reader, server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        writer.send(encode("GET", "k") + encode("SET", "k", "v") + encode("GET", "k"))
        assert writer.read() is None, "what comes before a write is answered"
        assert reader.call("GET", "k") is None
        assert b"paused_actions:write" in operator.call("INFO", "clients")
        assert not writer.has_input()
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert [writer.read(), writer.read()] == [b"OK", b"v"]
        assert b"paused_actions:none" in operator.call("INFO", "clients")


def test_a_pause_of_all_ends_by_itself_and_holds_everybody(server):
    with server.connect() as first, server.connect() as second, server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", 300) == b"OK"
        first.send(encode("PING"))
        second.send(encode("SET", "k", "v") * 100)
        assert first.read() == b"PONG"
        assert [second.read() for _ in range(100)] == [b"OK"] * 100
        assert operator.call("GET", "k") == b"v"


def test_a_client_that_is_held_can_be_killed(server):
    with server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        with server.connect() as killed:
            number = killed.call("CLIENT", "ID")
            killed.send(encode("SET", "k", "2"))
            assert operator.call("CLIENT", "KILL", "ID", number) == 1
            assert killed.read_to_end() == b""
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert operator.call("GET", "k") is None


def test_replicas_follow_during_a_pause(new_server):
    leader = new_server().start()
    with leader.connect() as operator, leader.connect() as writer:
        assert operator.call("SET", "k", "v") == b"OK"
        assert operator.call("CLIENT", "PAUSE", LONG_MS) == b"OK"
        writer.send(encode("SET", "held", "v"))
        replica = follower_of(new_server, leader)
        wait_until("the replica to have the data", lambda: call(replica, "GET", "k") == b"v")
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert writer.read() == b"OK"
    wait_following(replica)
    wait_same(leader, replica)


def test_a_server_stops_during_a_pause(server):
    with server.connect() as operator, server.connect() as writer:
        assert operator.call("CLIENT", "PAUSE", LONG_MS) == b"OK"
        writer.send(encode("SET", "k", "v"))
        assert server.stop() == 0
    server.start()
    assert call(server, "GET", "k") is None
