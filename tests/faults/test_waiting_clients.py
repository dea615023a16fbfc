"""Clients that wait, watch or cache on a server that applies the log of another one, and when roles change."""

import threading

import pytest

from harness import resp
from harness.couch import Couch
from harness.replicas import call, error_of, follower_of, info, wait_following
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

SETTINGS = ("--durable-channels", "log:*")
UNBLOCKED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"


@pytest.fixture
def pair(new_server) -> tuple[Server, Server]:
    """A leader, and a replica that follows it."""
    leader = new_server(extra=SETTINGS).start()
    return leader, follower_of(new_server, leader, extra=SETTINGS)


def wait_applied(leader: Server, replica: Server) -> None:
    """Waits until the replica shows all that the leader has written."""
    assert call(replica, "WAITLSN", int(info(leader)["master_repl_offset"]), 60_000) == 1


def blocked(server: Server, *words) -> resp.Connection:
    """A client of this server that waits in this command."""
    connection = server.connect()
    before = waiting(server)
    connection.send(resp.encode(*words))
    wait_until(f"{words} to wait", lambda: waiting(server) > before)
    return connection


def waiting(server: Server) -> int:
    """The number of clients that wait."""
    with server.connect() as connection:
        fields = connection.call("INFO", "clients").decode()
    return int(fields.split("blocked_clients:")[1].split("\r\n")[0])


def test_an_entry_of_the_leader_wakes_readers_on_the_replica(pair):
    leader, replica = pair
    ever = blocked(replica, "XREAD", "BLOCK", 0, "STREAMS", "st", "$")
    limited = blocked(replica, "XREAD", "BLOCK", 60_000, "STREAMS", "other", "st", "$", "$")
    both = blocked(replica, "XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "in:exec", "0")
    assert call(leader, "XADD", "st", "5-1", "a", "b") == b"5-1"
    entry = [[b"st", [[b"5-1", [b"a", b"b"]]]]]
    assert ever.read() == entry and limited.read() == entry
    assert not both.has_input()
    with leader.connect() as connection:
        words = [("MULTI",), ("XADD", "in:exec", "1-1", "c", "d"), ("XADD", "in:exec", "1-2", "e", "f"), ("EXEC",)]
        for each in words:
            connection.call(*each)
    assert both.read() == [[b"in:exec", [[b"1-1", [b"c", b"d"]]]]]
    gone = blocked(replica, "XREAD", "BLOCK", 0, "STREAMS", "st", "$")
    with leader.connect() as connection:
        connection.call("XADD", "st", "6-1", "a", "b")
        connection.call("DEL", "st")
    assert gone.read() == [[b"st", [[b"6-1", [b"a", b"b"]]]]], "it was there"
    assert error_of(call(replica, "BLPOP", "k", 0)).startswith("READONLY ")
    refused = call(replica, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "st", ">")
    assert error_of(refused).startswith("READONLY ")


def test_a_waiting_reader_on_a_replica_loses_no_entry_of_a_growing_stream(pair):
    leader, replica = pair
    count = 2000

    def write() -> None:
        with leader.connect() as connection:
            for number in range(count):
                connection.call("XADD", "st", f"1-{number + 1}", "n", number)

    writer = threading.Thread(target=write)
    writer.start()
    seen, last = [], "0"
    with replica.connect() as connection:
        while len(seen) < count:
            ((_, entries),) = connection.call("XREAD", "BLOCK", 0, "STREAMS", "st", last)
            seen += [int(fields[1]) for _, fields in entries]
            last = entries[-1][0]
    writer.join()
    assert seen == list(range(count))


def test_changes_of_the_leader_reach_watches_caches_feeds_and_channels_of_the_replica(pair):
    leader, replica = pair
    with Couch(leader.http_port) as couch:
        couch.ok("PUT", "/db")
    call(leader, "MSET", "watched", 1, "cached", 1)
    wait_applied(leader, replica)
    with replica.connect() as watcher, replica.connect() as cache, replica.connect() as reader:
        assert watcher.call("WATCH", "watched") == b"OK"
        cache.call("HELLO", 3)
        assert cache.call("CLIENT", "TRACKING", "ON") == b"OK" and cache.call("GET", "cached") == b"1"
        assert reader.call("XSUBSCRIBE", "log:a", "FROM", "$")[0] == b"xsubscribe"
        with Couch(replica.http_port) as feed:
            changes = feed.begin("GET", "/db/_changes?feed=continuous&since=now&heartbeat=1000")
            call(leader, "SET", "cached", 2)
            call(leader, "INCR", "watched")
            call(leader, "PUBLISH", "log:a", "hello")
            with Couch(leader.http_port) as couch:
                couch.put("db", {"_id": "new"})
            assert cache.read() == [b"invalidate", [b"cached"]]
            message = reader.read()
            assert message[3] == b"hello", message
            row = changes.readline()
            while not row.strip():
                row = changes.readline()
            assert b'"new"' in row, row
        wait_applied(leader, replica)
        assert watcher.call("MULTI") == b"OK" and watcher.call("GET", "watched") == b"QUEUED"
        assert watcher.call("EXEC") is None


def is_closed(client) -> bool:
    """Whether the server has closed the connection."""
    try:
        client.call("PING")
    except (resp.Closed, OSError):
        return True
    return False


def test_a_demotion_ends_the_waits_and_a_promotion_does_not(pair, new_server):
    leader, replica = pair
    reading = blocked(replica, "XREAD", "BLOCK", 0, "STREAMS", "st", "$")
    words = [
        ("BLPOP", "l", 0),
        ("BLMOVE", "l", "m", "LEFT", "LEFT", 0),
        ("BZPOPMIN", "z", 0),
        ("XREAD", "BLOCK", 0, "STREAMS", "st", "$"),
    ]
    clients = [blocked(leader, *each) for each in words]
    with leader.connect() as behind:
        behind.call("SET", "k", "v")
        behind.send(resp.encode("WAIT", 3, 0))
        # The next command of the client shows that the wait has begun.
        listed = lambda: b"cmd=wait" in call(leader, "CLIENT", "LIST")  # noqa: E731
        wait_until("the client to wait for replicas", listed)
        wait_applied(leader, replica)
        assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
        assert call(leader, "REPLICAOF", "127.0.0.1", replica.port) == b"OK"
        for each, client in zip([*words, ("WAIT",)], [*clients, behind], strict=True):
            assert error_of(client.read()) == UNBLOCKED, each
            wait_until("the connection to close", lambda: is_closed(client))  # noqa: B023
    assert call(replica, "XADD", "st", "1-1", "a", "b") == b"1-1"
    assert reading.read() == [[b"st", [[b"1-1", [b"a", b"b"]]]]]
    wait_following(leader)
    wait_applied(replica, leader)
    again = blocked(leader, "XREAD", "BLOCK", 0, "STREAMS", "st", "$")
    assert call(replica, "XADD", "st", "2-1", "a", "b") == b"2-1"
    assert again.read() == [[b"st", [[b"2-1", [b"a", b"b"]]]]]
    assert call(replica, "RPUSH", "l", "x") == 1, "nobody waits for it any more"
    assert call(replica, "LRANGE", "l", 0, -1) == [b"x"]


def test_a_client_that_waits_on_a_displaced_server_is_told(new_server):
    """A hand-over: the leader gives up the lead without a restart before it follows."""
    leader = new_server().start()
    replica = follower_of(new_server, leader, port=leader.port)
    client = blocked(leader, "BLPOP", "l", 0)
    assert call(leader, "FAILOVER") == b"OK"
    assert error_of(client.read()) == UNBLOCKED
    wait_until("the replica to lead", lambda: info(replica)["role"] == "master")
    assert call(replica, "RPUSH", "l", "x") == 1


def test_whoever_waits_for_a_snapshot_is_told_of_a_script_that_holds_its_keys(new_server):
    server = new_server().start()
    assert call(server, "SET", "key", "value") == b"OK"
    with server.connect() as script, server.connect() as saver:
        script.send(resp.encode("EVAL", "redis.call('GET', KEYS[1]) while true do end", 1, "key"))
        wait_until("the script", lambda: error_of(call(server, "GET", "key")).startswith("BUSY"))
        refused = error_of(saver.call("SAVE"))
        assert "held keys that it needs" in refused and "SCRIPT KILL" in refused
        # The snapshot waits on, so no other one begins.
        assert "in progress" in error_of(saver.call("SAVE"))
        assert call(server, "SCRIPT", "KILL") == b"OK"
        server.wait_for_log("took a snapshot")
        wait_until("its end", lambda: saver.call("SAVE") == b"OK")
