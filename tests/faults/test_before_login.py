"""Who has not logged in, where a password is needed, has little: small requests, little time."""

import contextlib
import select
import socket

import pytest

from harness.couch import Couch
from harness.replicas import error_of
from harness.resp import Closed, Connection, encode
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

PASSWORD = "s3cret"
# More than a refused request may have, and fewer than fit into the buffers of a socket.
BODY_BYTES = 100_000
# The largest string that a client may send before it has logged in.
STRING_BYTES_MAX = 16_384


@pytest.fixture
def server(new_server):
    """A server that needs a password."""
    return new_server(requirepass=PASSWORD).start()


def figure(server, name: str) -> int:
    """A field of INFO."""
    with server.connect() as connection:
        stats = connection.call("INFO", "stats").decode()
    return int(stats.split(f"{name}:")[1].split()[0])


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection; what it has sent is dropped."""
    with contextlib.suppress(ConnectionError):
        while select.select([connection], [], [], 0)[0]:
            if not connection.recv(65536):
                return True
        return False
    return True


def test_a_request_has_64_kib(server):
    string = "x" * (STRING_BYTES_MAX - 100)
    with Connection(server.port) as connection:
        assert error_of(connection.call("AUTH", string, string)).startswith("WRONGPASS")
        assert error_of(connection.call("SET", string, string, string)).startswith("NOAUTH")
        refused = connection.call("SET", *[string] * 5)
        assert error_of(refused) == "ERR Protocol error: too big request"
        with pytest.raises(Closed):
            connection.read()
    with server.connect() as connection:
        assert error_of(connection.call("SET", *[string] * 5)).startswith("ERR syntax error")


def test_who_does_not_log_in_is_disconnected(server):
    """All in one test: they wait at the same time."""
    http = ("127.0.0.1", server.http_port)
    with contextlib.ExitStack() as stack:
        redis = [stack.enter_context(Connection(server.port)) for _ in range(4)]
        silent, talker, loser, user = redis
        idle, head, curious, body = [stack.enter_context(socket.create_connection(http)) for _ in range(4)]
        admin = stack.enter_context(Couch(server.http_port, ("default", PASSWORD)))
        for connection in (loser, user):
            assert connection.call("AUTH", PASSWORD) == b"OK"
        assert loser.call("RESET") == b"RESET"
        head.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        curious.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        body.sendall(b"POST /_session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        body.sendall(b"Content-Length: 100\r\n\r\n{")
        assert admin.get("/_all_dbs").status == 200

        def all_are_gone() -> bool:
            with contextlib.suppress(OSError):
                head.sendall(b"a")
            with contextlib.suppress(Closed):
                talker.send(encode("PING"))
            return all(is_closed(it) for it in (silent.socket, talker.socket, loser.socket, idle, head, curious, body))

        wait_until("all strangers to be disconnected", all_are_gone)
        assert user.call("PING") == b"PONG"
        assert admin.get("/_all_dbs").status == 200
    assert figure(server, "login_timeouts") >= 5
    with server.connect() as connection:
        assert connection.call("CONFIG", "RESETSTAT") == b"OK"
    assert figure(server, "login_timeouts") == 0


def test_strangers_that_guess_in_pipelines_are_disconnected(server):
    """Their guesses would wait for hours, and the right password among them."""
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(Connection(server.port)) for _ in range(3)]
        for stranger in strangers:
            stranger.send(encode("AUTH", "a guess") * 2000)
        wait_until("the strangers to be disconnected", lambda: all(is_closed(it.socket) for it in strangers))
    with Connection(server.port) as owner:
        assert owner.call("AUTH", PASSWORD) == b"OK"


def test_strangers_that_wait_for_one_guess_each_keep_nobody_out(new_server):
    """Each of them would keep its place among the clients until its turn, half an hour from another machine."""
    server = new_server(requirepass=PASSWORD, maxclients=100).start()
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(Connection(server.port)) for _ in range(95)]
        for stranger in strangers:
            stranger.send(encode("AUTH", "a guess"))
        replies = [error_of(stranger.read()) for stranger in strangers]
        turned_away = [reply for reply in replies if reply.startswith("ERR too many logins from this address wait")]
        guesses = [reply for reply in replies if reply.startswith("WRONGPASS")]
        assert turned_away and len(turned_away) + len(guesses) == len(strangers), replies

        def owner_is_in() -> bool:
            with Connection(server.port) as owner:
                return owner.call("AUTH", PASSWORD) == b"OK"

        wait_until("the owner to log in", owner_is_in)
    assert figure(server, "login_timeouts") >= len(turned_away)


def test_without_a_password_nobody_has_to_log_in(new_server):
    open_door = new_server().start()
    closed_door = new_server(requirepass=PASSWORD).start()
    with (
        Connection(open_door.port) as patient,
        socket.create_connection(("127.0.0.1", open_door.http_port)) as http,
        Connection(closed_door.port) as stranger,
    ):
        wait_until("the stranger to be disconnected", lambda: is_closed(stranger.socket))
        assert patient.call("PING") == b"PONG"
        assert not is_closed(http)


def test_a_body_that_nobody_may_send_is_not_read(server):
    """The refusal comes at once, and the connection ends: the rest of the body would be read for nothing."""
    with Couch(server.http_port, ("default", PASSWORD)) as admin:
        admin.ok("PUT", "/notes")
    address = ("127.0.0.1", server.http_port)
    head = b"PUT /notes/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    announced = b"Content-Length: %d\r\n\r\n" % BODY_BYTES
    chunk = b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % BODY_BYTES + b" " * BODY_BYTES
    for sent in (announced, chunk):
        with socket.create_connection(address) as connection:
            connection.sendall(head + sent)
            said = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    said += part
            assert said.startswith(b"HTTP/1.1 401 ") and b"connection: close" in said.lower(), said
    # A short one is read, and the connection goes on.
    with Couch(server.http_port) as stranger:
        assert stranger.send("PUT", "/notes/a", b" " * 1000).status == 401
        assert stranger.get("/").status == 200
