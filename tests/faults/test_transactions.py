"""A transaction with documents is all or nothing: for readers, after kill -9, and on a replica.

Also: the reported number of keys, and memory that is returned.
"""

import contextlib
import json

import pytest

from harness import procfs
from harness.couch import Couch
from harness.replicas import error_of, follower_of, wait_same
from harness.resp import Connection, encode
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only
MIB = 1 << 20
VALUE_BYTES = 512 * MIB
# Of an idle server besides its data, with its growth under use.
RESIDENT_MAX = 160 * MIB
ROUNDS = 20
DISCARDED = "EXECABORT Transaction discarded because of:"


def executed(connection, *commands):
    """The reply of EXEC for these commands."""
    assert connection.call("MULTI") == b"OK"
    for command in commands:
        assert connection.call(*command) == b"QUEUED", command
    return connection.call("EXEC")


def documents_of(server) -> list[str]:
    """The ids in the database `orders`."""
    with Couch(server.http_port) as couch:
        return [row["id"] for row in couch.ok("GET", "/orders/_all_docs")["rows"]]


def test_a_failing_document_undoes_all_of_it_here_and_on_a_replica(new_server):
    leader = new_server(extra=("--durable-channels", "orders.*")).start()
    replica = follower_of(new_server, leader)
    with Couch(leader.http_port) as couch:
        couch.ok("PUT", "/orders")
    expected = []
    with leader.connect() as connection, leader.connect() as listener, leader.connect() as waiter:
        listener.call("SUBSCRIBE", "orders.new")
        waiter.send(encode("BLPOP", "jobs", 0))
        wait_until("the other to wait", lambda: b"blocked_clients:1" in connection.call("INFO", "clients"))
        for number in range(ROUNDS):
            commands = [
                ("DECR", "stock:x"),
                ("DOC.PUT", "orders", f"o{number}", json.dumps({"n": number})),
                ("PUBLISH", "orders.new", str(number)),
                ("HSET", f"h{number}", "f", "v"),
            ]
            if number % 2:
                commands += [("RPUSH", "jobs", "x"), ("DOC.PUT", "orders", "o0", "{}")]
            reply = executed(connection, *commands)
            if number % 2:
                assert error_of(reply) == f"{DISCARDED} DOC.PUT (command 6): CONFLICT Document update conflict."
            else:
                assert len(reply) == len(commands), reply
                expected.append(f"o{number}")
                assert listener.read() == [b"message", b"orders.new", b"%d" % number], "only what has happened"
        assert connection.call("GET", "stock:x") == b"-%d" % (ROUNDS // 2)
        assert connection.call("LLEN", "jobs") == 0
        assert b"blocked_clients:1" in connection.call("INFO", "clients")
    assert documents_of(leader) == sorted(expected)
    leader.kill()
    leader.options.port = leader.port
    leader.start()
    for server in [leader, replica]:
        if server is replica:
            wait_same(leader, replica)
        assert documents_of(server) == sorted(expected)
        with server.connect() as connection:
            assert connection.call("DBSIZE") == len(expected) + 1
            assert connection.call("GET", "stock:x") == b"-%d" % len(expected)


def test_keys_that_are_not_committed_are_not_counted(new_server):
    server = new_server().start()
    with server.connect() as writer, Couch(server.http_port) as couch:
        assert writer.call("SET", "committed", 1) == b"OK"
        assert b"keys=1," in writer.call("INFO", "keyspace")
        assert writer.call("CONFIG", "SET", "ack-timeout", 0) == b"OK"
        # No replica acknowledges either: no reply may show the changes.
        writer.send(encode("CONFIG", "SET", "ack-replicas", 1) + encode("SET", "unseen", 1))

        def counted() -> bytes | None:
            with contextlib.suppress(OSError), Connection(server.port, timeout_s=0.5) as other:
                return other.call("INFO", "keyspace").split()[-1]
            return None

        answers = []
        wait_until("an answer while nothing is committed", lambda: answers.append(counted()) or answers[-1])
        assert b"keys=1," in answers[-1]
        assert "sheaf_keys 1\n" in couch.get("/metrics").body.decode()
        with server.connect() as other:
            assert other.call("CONFIG", "SET", "ack-replicas", 0) == b"OK"
            assert [writer.read() for _ in range(2)] == [b"OK", b"OK"]
            assert b"keys=2," in other.call("INFO", "keyspace")
            assert "sheaf_keys 2\n" in couch.get("/metrics").body.decode()


def test_the_memory_of_a_large_value_is_given_back(new_server):
    server = new_server(extra=("--snapshot-log-bytes", "0"), log_segment_bytes="64mb").start()
    with server.connect() as connection:
        connection.send(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % VALUE_BYTES)
        for _ in range(VALUE_BYTES // MIB):
            connection.send(b"x" * MIB)
        connection.send(b"\r\n")
        assert connection.read() == b"OK"
        assert connection.call("STRLEN", "large") == VALUE_BYTES
        assert procfs.resident_bytes(server.pid) > VALUE_BYTES
        assert connection.call("DEL", "large") == 1
        wait_until(
            "the memory to be given back, with the connection open",
            lambda: procfs.resident_bytes(server.pid) < RESIDENT_MAX,
        )
