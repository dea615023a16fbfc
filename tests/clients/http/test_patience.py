"""Clients that send nothing, or almost nothing: they are disconnected, and delay no other client."""

import socket
import threading
import time

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only

# Far longer than the server waits for a head or for a body, which is half a minute.
LIMIT_S = 150


def _ends_within(connection, seconds):
    """Whether the server closes the connection."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.timeout(300)
def test_heads_and_bodies_that_come_drop_by_drop_are_given_up(server, db):
    """All in one test: they wait at the same time, for half a minute."""
    address = ("127.0.0.1", server.http_port)
    with (
        socket.create_connection(address) as head,
        socket.create_connection(address) as body,
        socket.create_connection(address) as still,
    ):
        head.sendall(b"GET / HTTP/1.1\r\n")
        body.sendall(b"PUT /db/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        still.sendall(b"PUT /db/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{")
        over = threading.Event()

        def drip():
            while not over.wait(1):
                for connection, drop in [(head, b"a: b\r\n"), (body, b" ")]:
                    try:
                        connection.sendall(drop)
                    except OSError:
                        return

        dripping = threading.Thread(target=drip)
        dripping.start()
        begun = time.monotonic()
        try:
            assert all(
                _ends_within(connection, max(1.0, LIMIT_S - (time.monotonic() - begun)))
                for connection in (head, body, still)
            )
        finally:
            over.set()
            dripping.join()
    assert db.get("/_up").status == 200


def test_clients_that_read_nothing_hold_up_nobody_and_cost_little(server, db):
    """Many clients request a lot and read nothing: others are answered, and memory stays bounded."""
    for number in range(20):
        db.ok("PUT", f"/db/{number}", {"x": "y" * 500_000})
    greedy = []
    before = _rss_bytes(server.pid)
    for _ in range(50):
        connection = socket.create_connection(("127.0.0.1", server.http_port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /db/_all_docs?include_docs=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        greedy.append(connection)
    with Couch(server.http_port) as couch:
        for number in range(200):
            couch.put("db", {"_id": f"new{number}"})
        assert len(couch.get("/db/_all_docs?include_docs=true").body) > 10_000_000
    assert _rss_bytes(server.pid) < before + 250 * (1 << 20)
    for connection in greedy:
        connection.close()


def test_connections_beyond_the_limit_are_closed_and_the_others_are_not(new_server):
    server = new_server(maxclients=10).start()
    address = ("127.0.0.1", server.http_port)
    held = [socket.create_connection(address) for _ in range(10)]
    # None has sent a request: once the server refuses connections, it has accepted them all.
    with socket.create_connection(address) as extra:
        assert _ends_within(extra, 30)
    held[0].sendall(b"GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert held[0].recv(4096).startswith(b"HTTP/1.1 200 ")
    for connection in held:
        connection.close()


def _rss_bytes(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096
