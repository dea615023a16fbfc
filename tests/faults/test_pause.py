"""CLIENT PAUSE: commands of clients wait, and everything else goes on. What is not marked holds for Redis, too."""

import pytest

from harness.replicas import call, follower_of, wait_following, wait_same
from harness.resp import Connection, ErrorReply, encode
from harness.waiting import wait_until

LONG_MS = 600_000
NO_WRITES = "#!lua flags=no-writes\nreturn 1"


def wait_blocked(operator: Connection, count: int) -> None:
    """Held clients count as blocked."""
    line = b"blocked_clients:%d\r\n" % count
    wait_until(f"{count} clients to be blocked", lambda: line in operator.call("INFO", "clients"))


@pytest.mark.sheaf_only
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


def test_a_pause_that_is_asked_for_during_a_pause_of_all_begins_after_it(server):
    with server.connect() as operator, server.connect() as reader, server.connect() as writer:
        assert operator.call("CLIENT", "PAUSE", 300) == b"OK"
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        assert reader.call("GET", "k") is None, "the pause in force is one of writes"
        writer.send(encode("SET", "k", "v"))
        wait_blocked(operator, 1)
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert writer.read() == b"OK"


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


@pytest.mark.sheaf_only
def test_a_clock_that_is_set_neither_ends_nor_lengthens_a_pause(new_server, new_time):
    time = new_time()
    server = new_server(extra_environment=time.environment).start()
    with server.connect() as operator, server.connect() as writer:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        before_s = int(operator.call("TIME")[0])
        time.set(3600)
        wait_until("the clock to be set", lambda: int(operator.call("TIME")[0]) >= before_s + 3600)
        assert b"paused_actions:write" in operator.call("INFO", "clients")
        writer.send(encode("SET", "k", "v"))
        wait_blocked(operator, 1)
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert writer.read() == b"OK"
        assert operator.call("CLIENT", "PAUSE", 300, "WRITE") == b"OK"
        time.set(-3600)
        assert writer.call("SET", "k", "v") == b"OK", "it ends after 300 ms"


@pytest.mark.sheaf_only
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


@pytest.mark.sheaf_only
def test_a_server_stops_during_a_pause(server):
    with server.connect() as operator, server.connect() as writer:
        assert operator.call("CLIENT", "PAUSE", LONG_MS) == b"OK"
        writer.send(encode("SET", "k", "v"))
        assert server.stop() == 0
    server.start()
    assert call(server, "GET", "k") is None


HELD = [
    ("SET", "k", "v"),
    ("PUBLISH", "c", "m"),
    ("EVAL", "return 1", "0"),
    ("BLPOP", "list", "0.01"),
    ("FLUSHALL",),
]
FREE = [("GET", "k"), ("PING",), ("EVAL_RO", "return 1", "0"), ("EVAL", NO_WRITES, "0"), ("SUBSCRIBE", "c")]


@pytest.mark.parametrize("command", HELD, ids=lambda command: command[0])
def test_a_pause_of_writes_holds_what_may_change_or_publish(server, command):
    with server.connect() as writer, server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        writer.send(encode(*command))
        wait_blocked(operator, 1)
        assert not writer.has_input()
        assert b" flags=b " in operator.call("CLIENT", "LIST")
        number = operator.call("CLIENT", "LIST").split(b"flags=b")[0].split(b"id=")[-1].split(b" ")[0]
        assert operator.call("CLIENT", "UNBLOCK", number) == 0, "it does not wait for a key"
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert not isinstance(writer.read(), ErrorReply)
        wait_blocked(operator, 0)


@pytest.mark.parametrize("command", FREE, ids=lambda command: "-".join(command[:2]).split("\n")[0])
def test_a_pause_of_writes_holds_nothing_else(server, command):
    with server.connect() as reader, server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        assert not isinstance(reader.call(*command), ErrorReply)


def test_transactions_are_held_by_what_they_do(server):
    with server.connect() as writer, server.connect() as reader, server.connect() as operator:
        for connection, command in [(writer, ("SET", "k", "v")), (reader, ("GET", "k"))]:
            assert connection.call("MULTI") == b"OK"
            assert connection.call(*command) == b"QUEUED"
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        assert reader.call("EXEC") == [None]
        writer.send(encode("EXEC"))
        wait_blocked(operator, 1)
        assert reader.call("MULTI") == b"OK"
        reader.send(encode("SET", "k", "2"))
        wait_blocked(operator, 2)
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert writer.read() == [b"OK"]
        assert reader.read() == b"QUEUED"
        assert reader.call("EXEC") == [b"OK"]


def test_a_transaction_that_begins_a_pause_runs_to_its_end(server):
    with server.connect() as operator, server.connect() as reader:
        operator.send(encode("MULTI") + encode("CLIENT", "PAUSE", LONG_MS, "WRITE") + encode("SET", "k", "v") + encode("EXEC"))
        assert [operator.read() for _ in range(4)] == [b"OK", b"QUEUED", b"QUEUED", [b"OK", b"OK"]]
        assert reader.call("GET", "k") == b"v"
        assert reader.call("CLIENT", "UNPAUSE") == b"OK"


def test_blocked_clients_time_out_during_a_pause(server):
    with server.connect() as waiting, server.connect() as operator:
        waiting.send(encode("BLPOP", "list", "0.2"))
        wait_blocked(operator, 1)
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        assert waiting.read() is None
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"


def test_keys_expire_for_readers_and_are_kept_until_the_end(server):
    with server.connect() as operator:
        assert operator.call("SET", "k", "v", "PX", 30) == b"OK"
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        wait_until("the key to expire", lambda: operator.call("GET", "k") is None)
        assert operator.call("DBSIZE") == 1
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        wait_until("the key to be removed", lambda: operator.call("DBSIZE") == 0)


def test_a_held_client_that_disconnects_is_gone_with_its_command(server):
    with server.connect() as operator:
        assert operator.call("CLIENT", "PAUSE", LONG_MS, "WRITE") == b"OK"
        with server.connect() as writer:
            writer.send(encode("SET", "k", "v"))
            wait_blocked(operator, 1)
        wait_blocked(operator, 0)
        assert b"connected_clients:1\r\n" in operator.call("INFO", "clients")
        assert operator.call("CLIENT", "UNPAUSE") == b"OK"
        assert operator.call("GET", "k") is None

