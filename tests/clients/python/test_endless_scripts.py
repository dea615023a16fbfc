"""A script that does not end: whom it holds up, whom it does not, and who gets in to end it."""

import contextlib
import socket

import pytest

from harness.resp import Connection, ErrorReply, encode
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

ENDLESS = "redis.call('SET', KEYS[1], 'after') while true do end"
WORKERS = 3
# Of connections to each worker, so many answer that they go on.
CLIENTS = 20
SCANS = 100


@pytest.fixture
def server(new_server) -> Server:
    """A server with workers beside the one that the script holds up."""
    return new_server(workers=WORKERS).start()


@pytest.fixture
def dial(server: Server):
    """Makes connections that are closed at the end, each to the next worker that is not held up."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(server.port))


def begin_endless(server: Server, dial, busy_after_ms: int) -> Connection:
    """The connection of a script that has the slot of `kept` and runs until it is ended."""
    control = dial()
    assert control.call("SET", "kept", "before") == b"OK"
    assert control.call("CONFIG", "SET", "busy-reply-threshold", busy_after_ms) == b"OK"
    script = dial()
    script.send(encode("EVAL", ENDLESS, 1, "kept"))
    # New connections go to workers that serve, as soon as the script has run for long.
    wait_until("the script runs", lambda: not answers(dial(), encode("GET", "kept")))
    return script


def answers(connection: Connection, request: bytes) -> bool:
    """Whether a reply comes soon."""
    connection.send(request)
    connection.socket.settimeout(0.2)
    try:
        return bool(connection.socket.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        connection.socket.settimeout(60)


def test_who_needs_none_of_its_keys_goes_on_and_the_others_come_back(server, dial):
    script = begin_endless(server, dial, busy_after_ms=0)
    scans = [dial() for _ in range(SCANS)]
    for scan in scans:
        scan.send(encode("SCAN", 0, "COUNT", 1000) + encode("RANDOMKEY") + encode("KEYS", "*"))
    for number in range(CLIENTS):
        client = dial()
        assert client.call("SET", f"other{number}", number) == b"OK"
        assert client.call("INCR", f"other{number}") == number + 1
        assert client.call("EVAL", "return redis.call('GET', KEYS[1])", 1, f"other{number}") == b"%d" % (number + 1)
    # They still come back, whoever was served meanwhile.
    assert not any(answers(scan, b"") for scan in scans[:3])
    assert dial().call("SCRIPT", "KILL") == b"OK"
    reply = script.read()
    assert isinstance(reply, ErrorReply) and "Script killed by user with SCRIPT KILL" in reply.text
    for scan in scans:
        cursor, keys = scan.read()
        assert (cursor, len(keys)) == (b"0", CLIENTS + 1)
        assert scan.read() in keys
        assert sorted(scan.read()) == sorted(keys)
    assert dial().call("GET", "kept") == b"before"


def test_who_needs_its_keys_is_told_after_the_threshold(server, dial):
    script = begin_endless(server, dial, busy_after_ms=300)
    waiting = [dial() for _ in range(SCANS)]
    for index, client in enumerate(waiting):
        client.send((encode("SCAN", 0), encode("GET", "kept"), encode("KEYS", "*"), encode("FLUSHALL"))[index % 4])
    for client in waiting:
        reply = client.read()
        assert isinstance(reply, ErrorReply) and reply.text.startswith("BUSY Redis is busy running a script"), reply
    assert dial().call("INCR", "n") == 1
    assert dial().call("SCRIPT", "KILL") == b"OK"
    assert isinstance(script.read(), ErrorReply)
    assert [client.call("GET", "kept") for client in waiting] == [b"before"] * SCANS


def test_a_server_stops_whatever_its_scripts_do(server, dial):
    script = begin_endless(server, dial, busy_after_ms=0)
    server.stop()
    reply = script.read()
    assert isinstance(reply, ErrorReply) and "Script killed" in reply.text
    server.start()
    assert dial().call("GET", "kept") == b"before"
