"""The connection itself: handshake, authentication, CLIENT, limits."""

import pytest
import redis

from harness.resp import Closed, Connection, ErrorReply
from harness.waiting import wait_until


def test_ping_and_echo(client):
    assert client.ping() is True
    assert client.echo(b"\0binary\r\n") == b"\0binary\r\n"


def test_hello_switches_the_protocol(server):
    with server.connect() as connection:
        hello = connection.call("HELLO", "3")
        assert hello[b"proto"] == 3
        assert hello[b"role"] == b"master"
        assert hello[b"mode"] == b"standalone"
        assert connection.call("GET", "missing") is None
        connection.send(b"*2\r\n$3\r\nGET\r\n$7\r\nmissing\r\n")
        assert connection.socket.recv(100) == b"_\r\n"
        assert connection.call("HELLO", "2", "SETNAME", "me")[0] == b"server"
        assert connection.call("CLIENT", "GETNAME") == b"me"
        connection.send(b"*2\r\n$3\r\nGET\r\n$7\r\nmissing\r\n")
        assert connection.socket.recv(100) == b"$-1\r\n"
        assert connection.call("HELLO", "4") == ErrorReply("NOPROTO unsupported protocol version")
        assert connection.call("HELLO", "x").text.startswith("ERR Protocol version is not an integer")


def test_resp3_has_its_own_types(server):
    with server.connect() as connection:
        connection.call("HELLO", "3")
        assert connection.call("CONFIG", "GET", "maxclients") == {b"maxclients": b"10000"}
        assert isinstance(connection.call("COMMAND", "DOCS", "get"), dict)
        connection.call("RESET")
        assert connection.call("CONFIG", "GET", "maxclients") == [b"maxclients", b"10000"]


def test_inline_commands(server):
    with server.connect() as connection:
        connection.send(b"SET greeting \"hello \\x41\\n\"\r\nGET greeting\n\r\nEXISTS 'greeting'\r\n")
        assert [connection.read(), connection.read(), connection.read()] == [b"OK", b"hello A\n", 1]


def test_names_and_ids(client, connect):
    other = connect(client_name="worker-1")
    assert other.client_getname() in ("worker-1", b"worker-1")
    assert other.client_setname("worker-2") is True
    assert "worker-2" in [entry["name"] for entry in client.client_list()]
    assert other.client_id() > 0
    assert client.client_id() != other.client_id()
    with pytest.raises(redis.ResponseError, match="Client names cannot contain spaces"):
        client.client_setname("two words")


def test_client_list_and_info_have_the_usual_fields(client):
    [entry] = client.client_list(client_id=[client.client_id()])
    usual = {"id", "addr", "laddr", "fd", "name", "age", "idle", "flags", "db", "sub", "psub", "multi", "cmd", "user"}
    assert usual <= set(entry)
    assert entry["cmd"] == "client|list"
    assert int(client.client_info()["id"]) == client.client_id()


def test_client_kill(client, server):
    with server.connect() as victim, server.connect() as bystander:
        victim_id = victim.call("CLIENT", "ID")
        assert bystander.call("PING") == b"PONG"
        assert client.client_kill_filter(_id=victim_id) == 1
        assert victim.read_to_end() == b""
        assert bystander.call("PING") == b"PONG"
        assert client.client_kill_filter(_id=victim_id) == 0
    with pytest.raises(redis.ResponseError, match="No such client"):
        client.client_kill("127.0.0.1:1")


def test_client_reply(server):
    with server.connect() as connection:
        connection.send(b"CLIENT REPLY OFF\r\nSET k v\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO seen\r\n")
        assert [connection.read(), connection.read()] == [b"OK", b"seen"]
        assert connection.call("GET", "k") == b"v"


def test_client_switches(client):
    assert client.client_no_evict("ON") in (b"OK", True)
    assert client.client_unblock(client.client_id()) is False
    with pytest.raises(redis.ResponseError, match="syntax error"):
        client.execute_command("CLIENT", "NO-EVICT", "maybe")


@pytest.mark.sheaf_only
def test_client_commands_of_7_2(client):
    assert client.client_no_touch("ON") in (b"OK", True)
    assert client.client_setinfo("LIB-NAME", "our-lib") is True
    assert client.client_setinfo("LIB-VER", "1.2.3") is True
    assert client.client_info()["lib-name"] == "our-lib"
    assert client.client_info()["lib-ver"] == "1.2.3"
    with pytest.raises(redis.ResponseError, match="LIB-NAME cannot contain spaces"):
        client.client_setinfo("LIB-NAME", "our lib")


def test_reset_forgets_the_session(server):
    with server.connect() as connection:
        connection.call("SELECT", 4)
        connection.call("CLIENT", "SETNAME", "me")
        connection.call("SET", "k", "v")
        assert connection.call("RESET") == b"RESET"
        assert connection.call("CLIENT", "GETNAME") is None
        assert connection.call("EXISTS", "k") == 0


def test_quit_answers_and_closes(server):
    with server.connect() as connection:
        assert connection.call("QUIT") == b"OK"
        assert connection.read_to_end() == b""


class TestWithPassword:
    """A server that requires a password."""

    @pytest.fixture
    def server(self, new_server):
        return new_server(requirepass="secret").start()

    def test_nothing_before_authentication(self, connect):
        stranger = connect()
        with pytest.raises(redis.AuthenticationError, match="(?i)authenticat"):
            stranger.get("k")

    def test_the_right_password_opens(self, connect):
        assert connect(password="secret").set("k", "v") is True
        assert connect(username="default", password="secret").get("k") == b"v"

    def test_wrong_passwords_do_not(self, connect):
        for wrong in ({"password": "wrong"}, {"username": "somebody", "password": "secret"}):
            with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
                connect(**wrong).ping()

    def test_commands_before_authentication(self, server):
        with Connection(server.port) as stranger:
            assert stranger.call("PING").text == "NOAUTH Authentication required."
            assert stranger.call("HELLO", "3").text.startswith("NOAUTH HELLO must be called with the client already")
            assert stranger.call("HELLO", "3", "AUTH", "default", "secret")[b"proto"] == 3
            assert stranger.call("PING") == b"PONG"
            assert stranger.call("RESET") == b"RESET"
            assert stranger.call("PING").text == "NOAUTH Authentication required."
            assert stranger.call("QUIT") == b"OK"


def test_a_password_can_be_set_while_running(client, connect):
    assert client.config_set("requirepass", "later") is True
    with pytest.raises(redis.AuthenticationError):
        connect().ping()
    assert connect(password="later").ping() is True
    assert client.ping() is True


def test_auth_without_a_password_configured(server):
    with server.connect() as connection:
        assert connection.call("AUTH", "x").text.startswith("ERR AUTH <password> called without any password configured")


def test_one_client_too_many_is_told_so(new_server):
    server = new_server(maxclients=5).start()
    admitted = []

    def open_until_refused():
        connection = server.connect()
        try:
            reply = connection.call("PING")
        except Closed:
            reply = None
        if reply == b"PONG":
            admitted.append(connection)
        return reply != b"PONG"

    wait_until("a connection to be refused", open_until_refused)
    assert 1 <= len(admitted) <= 5
    with server.connect() as refused:
        assert refused.read_to_end() == b"-ERR max number of clients reached\r\n"
    assert admitted[0].call("PING") == b"PONG"
    admitted.pop().close()
    wait_until("the freed place to be taken", lambda: not open_until_refused())
    for connection in admitted:
        connection.close()
