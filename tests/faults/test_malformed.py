"""Malformed requests: answered once with Redis' text, then the connection is closed; other clients are not
affected.
"""

import socket

import pytest

from harness import procfs
from harness.resp import Connection, encode

KIB = 1024
MIB = 1024 * KIB


def protocol_error(text: str) -> bytes:
    return f"-ERR Protocol error: {text}\r\n".encode()


MALFORMED = {
    "array length is no number": (b"*x\r\n", "invalid multibulk length"),
    "array length has a leading space": (b"* 1\r\n", "invalid multibulk length"),
    "array length has a plus": (b"*+1\r\n", "invalid multibulk length"),
    "array length has a leading zero": (b"*01\r\n", "invalid multibulk length"),
    "array longer than the limit": (b"*2147483648\r\n", "invalid multibulk length"),
    "array length overflows": (b"*99999999999999999999\r\n", "invalid multibulk length"),
    "bulk length is no number": (b"*1\r\n$x\r\n", "invalid bulk length"),
    "bulk length is empty": (b"*1\r\n$\r\n", "invalid bulk length"),
    "bulk length is negative": (b"*1\r\n$-1\r\n", "invalid bulk length"),
    "bulk larger than 512 MB": (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    "bulk length overflows": (b"*1\r\n$18446744073709551620\r\n", "invalid bulk length"),
    "integer in a request": (b"*1\r\n:1\r\n", "expected '$', got ':'"),
    "nested array": (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
    "inline command inside an array": (b"*2\r\n$3\r\nGET\r\nkey\r\n", "expected '$', got 'k'"),
    "array length without end": (b"*" + b"1" * 70_000, "too big mbulk count string"),
    "bulk length without end": (b"*1\r\n$" + b"1" * 70_000, "too big bulk count string"),
    "inline command without end": (b"a" * 70_000, "too big inline request"),
    "double quote left open": (b'SET k "v\r\n', "unbalanced quotes in request"),
    "single quote left open": (b"SET k 'v\r\n", "unbalanced quotes in request"),
    "text right after a quote": (b'SET k "v"x\r\n', "unbalanced quotes in request"),
}


def answer_to(port: int, raw: bytes) -> bytes:
    """The server's whole answer to these bytes, until it closes the connection."""
    with Connection(port) as connection:
        connection.send(raw)
        return connection.read_to_end()


@pytest.mark.parametrize(("raw", "text"), MALFORMED.values(), ids=MALFORMED.keys())
def test_answered_once_then_closed(server, raw, text):
    with server.connect() as bystander:
        assert answer_to(server.port, raw) == protocol_error(text)
        assert bystander.call("PING") == b"PONG"
        assert server.is_running()


def test_commands_before_the_error_are_executed_and_answered_first(server):
    before = encode("SET", "k", "v") + encode("GET", "k")
    assert answer_to(server.port, before + b"*1\r\n:1\r\n") == b"+OK\r\n$1\r\nv\r\n" + protocol_error("expected '$', got ':'")
    assert answer_to(server.port, before + b"*x\r\n" + encode("SET", "k", "after")).count(b"-ERR") == 1
    with server.connect() as connection:
        assert connection.call("GET", "k") == b"v"


def test_every_way_to_cut_a_malformed_request_gets_the_same_answer(server):
    raw, text = b"*2\r\n$3\r\nGET\r\n!\r\n", "expected '$', got '!'"
    for cut in range(1, len(raw) - 2):
        with Connection(server.port) as connection:
            connection.send(raw[:cut])
            # The server has read the first part when it answers a client that came later.
            with server.connect() as later:
                assert later.call("PING") == b"PONG"
            connection.send(raw[cut:])
            assert connection.read_to_end() == protocol_error(text), cut


def test_an_unfinished_request_is_forgotten_with_its_connection(server):
    for raw in (b"*2\r\n$3\r\nSET\r\n", b"*1", b"$", b"SET k", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nval"):
        with Connection(server.port) as connection:
            connection.send(raw)
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.read_to_end() == b""
    with server.connect() as connection:
        assert connection.call("DBSIZE") == 0


def test_odd_but_valid_requests(server):
    with server.connect() as connection:
        connection.send(b"*0\r\n*-1\r\n\r\n\n*1\r\n$4\r\nPING\r\n")
        assert connection.read() == b"PONG"
        connection.send(b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n")
        assert connection.read() == b""


def test_before_authentication_the_limits_are_small(new_server):
    server = new_server(requirepass="secret").start()
    assert answer_to(server.port, b"*11\r\n") == protocol_error("unauthenticated multibulk length")
    assert answer_to(server.port, b"*2\r\n$16385\r\n") == protocol_error("unauthenticated bulk length")
    with server.connect() as connection:
        assert connection.call("SET", "k", "x" * 20_000) == b"OK"
        assert connection.call("MGET", *"lmnopqrstuvw") == [None] * 12


@pytest.mark.parametrize("raw", [bytes(range(256)) * 8, b"\0" * 4096, b"\xff" * 4096, b"\r\n" * 4096, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_random_bytes_neither_stop_the_server_nor_grow_its_memory(server, raw):
    before = procfs.resident_bytes(server.pid)
    for _ in range(50):
        with Connection(server.port) as connection:
            connection.send(raw)
            connection.socket.shutdown(socket.SHUT_WR)
            connection.read_to_end()
    with server.connect() as connection:
        assert connection.call("PING") == b"PONG"
    assert procfs.resident_bytes(server.pid) - before < 16 * MIB


def test_closed_connections_leave_no_descriptors(server):
    with server.connect() as connection:
        connection.call("PING")
        # Segments of the log are allocated in advance.
        server.wait_until_idle()
        before = procfs.open_files(server.pid)
        for raw, text in MALFORMED.values():
            assert answer_to(server.port, raw) == protocol_error(text)
        server.wait_until_idle()
        assert procfs.open_files(server.pid) <= before


HTTP = {
    "a form that a page posts": b"POST / HTTP/1.1\r\nHost: localhost:6379\r\nContent-Type: text/plain\r\n\r\n",
    "a header": b"Host: localhost:6379\r\n",
    "POST alone": b"post\r\n",
    "an image": b"GET /a.png HTTP/1.1\r\n",
    "a question before a request": b"OPTIONS / HTTP/1.1\r\n",
    "other methods": b"PUT / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("raw", HTTP.values(), ids=HTTP.keys())
def test_a_browser_gets_no_reply_and_its_body_is_not_executed(server, raw):
    posted = b"SET posted yes\r\nCONFIG SET requirepass x\r\n" + encode("SET", "posted", "yes")
    assert answer_to(server.port, raw + posted) == b""
    with server.connect() as connection:
        assert connection.call("EXISTS", "posted") == 0
        assert connection.call("PING") == b"PONG"
        assert connection.call("GET", "k") is None


@pytest.mark.sheaf_only
def test_browsers_on_the_wrong_port_do_not_fill_the_log(server):
    for _ in range(20):
        assert answer_to(server.port, b"POST / HTTP/1.1\r\n") == b""
    assert server.log().count("speaks HTTP on the port for Redis") == 1


def test_inline_commands_that_only_look_like_http_are_executed(server):
    with Connection(server.port) as connection:
        connection.send(b"SET k HTTP/1.1\r\nGET k\r\n")
        assert [connection.read(), connection.read()] == [b"OK", b"HTTP/1.1"]
