"""Clients that ask for too much cost the server a bounded amount of memory, and other clients nothing.

Bounds are on the growth of the resident set from the idle server, at its peak.
"""

import contextlib
import resource
import select
import socket
import threading
import warnings

import pytest

from harness import procfs
from harness.couch import Couch
from harness.resp import Connection, encode

KIB = 1024
MIB = 1024 * KIB
HEADERS = 50
HEADERS_GROWTH_MAX = 32 * MIB
PIPELINE_DEPTH = 1_000_000
PIPELINE_GROWTH_MAX = 64 * MIB
CONNECTIONS = 10_000
CONNECTION_BYTES_MAX = 12 * KIB
SLOW_READERS = 16
SLOW_READER_BYTES_MAX = 16 * MIB
# What all clients may leave unread, and what a buffer of it needs while it grows.
UNREAD_GROWTH_MAX = (2 * 512 + 256) * MIB
# Endless HTTP request bodies of 60 MB each: all together, and those of clients that have not logged in. The
# server accepts 256 MiB and 16 MiB of them. The allocator returns the memory of refused or grown bodies a
# moment later; connections have buffers.
BODIES = 40
BODY_BYTES = 60_000_000
BODIES_GROWTH_MAX = 576 * MIB
ANONYMOUS_BODIES = 15
ANONYMOUS_BODIES_GROWTH_MAX = 48 * MIB
# Open files of server and test besides the connections.
OTHER_FILES = 200


@contextlib.contextmanager
def growth_below(server, bytes_max: int):
    """Fails if the server's memory grew by more than this at any time inside the block."""
    procfs.reset_peak(server.pid)
    before = procfs.resident_bytes(server.pid)
    yield
    grown = procfs.resident_bytes_peak(server.pid) - before
    print(f"grew by {grown / MIB:.1f} of {bytes_max / MIB:.0f} MiB allowed")
    assert grown <= bytes_max, f"the server grew by {grown / MIB:.1f} MiB"


@pytest.fixture
def warm(new_server):
    """A server whose buffers have been used once, so that later growth is caused by the test.

    It takes no automatic snapshot: that of a large string briefly needs memory of its own.
    """
    server = new_server(maxclients=CONNECTIONS + 100, extra=("--snapshot-log-bytes", "0")).start()
    with server.connect() as connection:
        connection.send(encode("SET", "warm", "x" * MIB) * 8)
        assert [connection.read() for _ in range(8)] == [b"OK"] * 8
    return server


def still_serves(server) -> None:
    """Another client is still served."""
    with server.connect() as healthy:
        for number in range(200):
            assert healthy.call("SET", f"healthy:{number}", number) == b"OK"
            assert healthy.call("GET", f"healthy:{number}") == b"%d" % number


def test_announced_bodies_that_never_come(warm):
    with contextlib.ExitStack() as open_connections, growth_below(warm, HEADERS_GROWTH_MAX):
        for _ in range(HEADERS):
            connection = open_connections.enter_context(Connection(warm.port))
            connection.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n" + b"x" * 32 * KIB)
        still_serves(warm)
        warm.wait_until_idle()


def test_announced_arrays_that_never_come(warm):
    with contextlib.ExitStack() as open_connections, growth_below(warm, HEADERS_GROWTH_MAX):
        for _ in range(HEADERS):
            connection = open_connections.enter_context(Connection(warm.port))
            connection.send(b"*1048576\r\n" + b"$1\r\nx\r\n" * 1000)
        still_serves(warm)
        warm.wait_until_idle()


def unfinished_bodies(server, count: int, head: str, block: bytes, stack: contextlib.ExitStack) -> list[bytes]:
    """Sends bodies without their last byte, concurrently and as far as the server reads them; returns its
    answers so far.
    """
    request = f"POST /db/_bulk_docs HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    connections = [stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port))) for _ in range(count)]
    for connection in connections:
        connection.sendall(request.encode())
    said = [b""] * count
    left = dict.fromkeys(range(count), BODY_BYTES - 1)
    while left:
        for number in list(left):
            try:
                connections[number].sendall(block[: left[number]])
                left[number] -= min(len(block), left[number])
            except OSError:
                left[number] = 0
            if select.select([connections[number]], [], [], 0)[0]:
                with contextlib.suppress(OSError):
                    said[number] += connections[number].recv(64 * KIB)
                left[number] = 0
            if left[number] == 0:
                del left[number]
    return said


@pytest.mark.slow
def test_bodies_over_http_that_never_end(warm):
    block = b" " * MIB
    with Couch(warm.http_port) as couch:
        couch.ok("PUT", "/db")
        with contextlib.ExitStack() as stack, growth_below(warm, BODIES_GROWTH_MAX):
            said = unfinished_bodies(warm, BODIES, "Host: localhost\r\n", block, stack)
            refused = [answer for answer in said if answer.startswith(b"HTTP/1.1 503 ")]
            assert refused and all(b"\r\nretry-after: " in answer.lower() for answer in refused)
            still_serves(warm)
            assert couch.get("/db").json["doc_count"] == 0
        assert couch.ok("POST", "/db/_bulk_docs", {"docs": [{"_id": "a", "text": "x" * MIB}]})[0]["ok"]


def test_bodies_over_http_of_clients_that_have_not_logged_in(new_server):
    server = new_server(extra=("--admin-user", "anna", "--admin-password", "secret")).start()
    with Couch(server.http_port, ("anna", "secret")) as couch:
        couch.ok("PUT", "/db")
        couch.ok("PUT", "/db/_security", {"members": {"names": [], "roles": []}, "admins": {"names": [], "roles": []}})
        couch.ok("POST", "/db/_bulk_docs", {"docs": [{"text": "x" * MIB}]})
        with contextlib.ExitStack() as stack:
            measured = stack.enter_context(contextlib.ExitStack())
            measured.enter_context(growth_below(server, ANONYMOUS_BODIES_GROWTH_MAX))
            block = b" " * MIB
            # Larger than the common limit of all bodies: refused by its declared length.
            said = unfinished_bodies(server, ANONYMOUS_BODIES, "Host: localhost\r\n", block, stack)
            assert all(answer.startswith(b"HTTP/1.1 413 ") for answer in said if answer)
            chunked = "POST /db/_bulk_docs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            for _ in range(ANONYMOUS_BODIES):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
                with contextlib.suppress(OSError):
                    connection.sendall(chunked.encode() + b"%x\r\n" % (4 * MIB) + block * 4)
            assert couch.get("/db").json["doc_count"] == 1
            measured.close()
            documents = [{"text": "x" * MIB} for _ in range(20)]
            assert len(couch.ok("POST", "/db/_bulk_docs", {"docs": documents})) == 20, "who has logged in has room"


@pytest.mark.slow
@pytest.mark.parametrize("command", [("PING",), ("SET", "k", "value"), ("GET", "k")], ids=lambda command: command[0])
def test_a_pipeline_a_million_deep(warm, command):
    raw, block = encode(*command), 1000
    with Connection(warm.port) as connection, growth_below(warm, PIPELINE_GROWTH_MAX):
        connection.call("SET", "k", "value")
        expected = connection.call(*command)

        def send():
            for _ in range(PIPELINE_DEPTH // block):
                connection.send(raw * block)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for _ in range(PIPELINE_DEPTH):
            assert connection.read() == expected
        sender.join()
    still_serves(warm)


def test_ten_thousand_connections(warm):
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, allowed - OTHER_FILES)
    if count < CONNECTIONS:
        warnings.warn(f"this machine allows {allowed} open files: {count} connections instead of {CONNECTIONS}", stacklevel=1)
    with contextlib.ExitStack() as open_connections, growth_below(warm, count * CONNECTION_BYTES_MAX):
        connections = [open_connections.enter_context(Connection(warm.port)) for _ in range(count)]
        for round_number in range(2):
            for number, connection in enumerate(connections):
                connection.send(encode("SET", f"k{number}", round_number))
            for connection in connections:
                assert connection.read() == b"OK"
        still_serves(warm)
        assert procfs.open_files(warm.pid) >= count
    warm.wait_until_idle()
    assert procfs.open_files(warm.pid) < OTHER_FILES


@pytest.mark.sheaf_only
@pytest.mark.parametrize("value_bytes", [1 * KIB, 1 * MIB, 64 * MIB], ids=["1 KiB", "1 MiB", "64 MiB"])
def test_readers_that_never_read(warm, value_bytes):
    """Each requests gigabytes and reads nothing. Redis would buffer all of it; here they are disconnected."""
    with warm.connect() as connection:
        assert connection.call("SET", "k", b"x" * value_bytes) == b"OK"
    wanted_each = max(20, 4 * 1024 * MIB // value_bytes)
    request = encode("GET", "k") * min(wanted_each, 50_000)
    # One reply is built completely, however much of it the client reads.
    bytes_max = UNREAD_GROWTH_MAX + SLOW_READERS * (value_bytes + SLOW_READER_BYTES_MAX)
    with contextlib.ExitStack() as open_connections, growth_below(warm, bytes_max):
        for _ in range(SLOW_READERS):
            connection = open_connections.enter_context(Connection(warm.port))
            connection.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.socket.send(request)
        warm.wait_for_log("disconnected a client that reads its output too slowly")
        still_serves(warm)


@pytest.mark.sheaf_only
def test_a_slow_reader_gets_everything_in_the_end(warm):
    replies = 500
    with warm.connect() as connection:
        value = b"".join(b"%08d" % number for number in range(MIB // 8))
        assert connection.call("SET", "k", value) == b"OK"
        connection.send(encode("GET", "k") * replies)
        warm.wait_until_idle()
        still_serves(warm)
        for _ in range(replies):
            assert connection.read() == value


def test_slow_senders_do_not_hold_up_others(warm):
    """Slowloris: many requests that arrive byte by byte."""
    with contextlib.ExitStack() as open_connections:
        connections = [open_connections.enter_context(Connection(warm.port)) for _ in range(200)]
        for byte in encode("SET", "slow", "v"):
            for connection in connections:
                connection.send(bytes([byte]))
        assert [connection.read() for connection in connections] == [b"OK"] * 200
    still_serves(warm)
