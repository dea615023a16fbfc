"""Clients that fill a server to `maxclients` keep no other server out: neither members of its group nor replicas."""

import contextlib
import socket

import pytest

from harness import resp
from harness.groups import NAME, fields, group_of, member, wait_leader
from harness.replicas import call, error_of, follower_of, wait_following
from harness.resp import UNREACHABLE
from harness.server import Server, free_port
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

CLIENTS_MAX = 8
TOO_MANY = b"-ERR max number of clients reached\r\n"
# More than the places that are kept for other servers.
MANY = 40


def fill(server: Server, opened: contextlib.ExitStack) -> list[resp.Connection]:
    """Connections in all the places for clients."""
    served = []
    while True:
        connection = opened.enter_context(server.connect())
        try:
            if connection.call("PING") != b"PONG":
                return served
        except resp.Closed:
            return served
        served.append(connection)


def role(connection: resp.Connection) -> dict[str, str]:
    """INFO replication, through a connection that is open already."""
    lines = connection.call("INFO", "replication").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def writes(connection: resp.Connection) -> bool:
    return connection.call("SET", "k", "v") == b"OK"


def test_a_burst_of_connections_stays_within_maxclients(new_server):
    server = new_server(maxclients=CLIENTS_MAX).start()
    with contextlib.ExitStack() as opened:
        with server.frozen():
            burst = [opened.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(200)]
            for connection in burst:
                connection.settimeout(PATIENCE_S)
                connection.sendall(resp.encode("PING"))

        def answer(connection: socket.socket) -> bytes:
            try:
                return connection.recv(100)
            except ConnectionError:
                return b""

        assert [answer(connection) for connection in burst].count(b"+PONG\r\n") <= CLIENTS_MAX


def test_clients_keep_no_member_out_of_its_group(new_server):
    servers = group_of(new_server, maxclients=CLIENTS_MAX)
    first, *rest = servers
    with contextlib.ExitStack() as opened:
        asked = {server.port: fill(server, opened)[0] for server in servers}
        # One that says nothing is told so as well; it has no place for long.
        with rest[0].connect() as silent:
            assert silent.read_to_end() == TOO_MANY
        first.kill()
        wait_until("a leader that writes", lambda: any(writes(asked[one.port]) for one in rest))
        first.start()
        wait_following(first)
        # All of them restart but one: it is full, and the others need its vote and its log.
        full = next(one for one in rest if writes(asked[one.port]))
        other = next(one for one in rest if one is not full)
        first.kill(), other.kill()
        other.start()
        wait_until("them to write", lambda: any(_writes(one, asked) for one in (full, other)))
        first.start()
        wait_following(first)
        joiner = member(new_server, full).start()
        wait_until("it to join", lambda: fields(joiner, "GROUP", "INFO")["voters"] == 4)


def _writes(server: Server, asked: dict[int, resp.Connection]) -> bool:
    """Whether it writes, asked through the connection that is open, or a new one if that was closed."""
    try:
        return writes(asked[server.port])
    except UNREACHABLE:
        return call(server, "SET", "k", "v") == b"OK"


@pytest.mark.parametrize("password", [None, "secret"])
def test_clients_keep_no_replica_from_its_leader(new_server, password):
    leader = new_server(maxclients=CLIENTS_MAX, requirepass=password).start()
    with contextlib.ExitStack() as opened:
        served = fill(leader, opened)
        masterauth = ("--masterauth", password) if password else ()
        replica = follower_of(new_server, leader, extra=masterauth)
        wait_following(replica)
        assert served[0].call("SET", "k", "v") == b"OK"
        wait_until("the write to arrive", lambda: call(replica, "GET", "k") == b"v")
        assert role(served[0])["connected_slaves"] == "1"


def test_a_replica_full_of_clients_is_told_to_lead(new_server):
    leader = new_server(port=free_port()).start()
    replica = follower_of(new_server, leader, maxclients=CLIENTS_MAX)
    with contextlib.ExitStack() as opened:
        served = fill(replica, opened)
        assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port) == b"OK"
        wait_until("it to lead", lambda: role(served[0])["role"] == "master")
        wait_following(leader)


def test_a_server_keeps_its_reserved_place_while_it_is_being_added(new_server):
    leader = member(new_server, maxclients=CLIENTS_MAX).start()
    wait_leader([leader])
    # Nobody answers there, so the leader waits for longer than a silent connection may stay.
    with contextlib.ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as silent:
        fill(leader, opened)
        asking = opened.enter_context(leader.connect())
        port = silent.getsockname()[1]
        answer = asking.call("GROUP", "JOIN", 1, NAME, "00000000000000aa", "127.0.0.1", port, 1)
        assert "does not find the member" in error_of(answer)


def test_the_reserve_is_for_servers_alone_and_has_an_end(new_server):
    server = new_server(maxclients=CLIENTS_MAX).start()
    with contextlib.ExitStack() as opened:
        served = fill(server, opened)
        assert len(served) == CLIENTS_MAX
        for words in (("PING",), ("GET", "k"), ("HELLO", 3), ("GROUP", "INFO"), ("NONSENSE",), ("MULTI",)):
            with server.connect() as connection:
                connection.send(resp.encode(*words) + resp.encode("SET", "k", "v"))
                assert connection.read_to_end() == TOO_MANY, words
        with server.connect() as connection:
            assert connection.call("REPLICATE", "MARKS", 1, "00" * 8) == -1
            connection.send(resp.encode("SET", "k", "v"))
            assert connection.read_to_end() == TOO_MANY, "what comes after it"
        silent = [opened.enter_context(server.connect()) for _ in range(MANY)]
        assert all(connection.read_to_end() == TOO_MANY for connection in silent)
        assert served[0].call("EXISTS", "k") == 0
        # The server counts a connection until it has noticed that the client closed its end.
        expected = f"connected_clients:{CLIENTS_MAX}\r\n"
        wait_until("the others to be gone", lambda: expected in served[0].call("INFO", "clients").decode())
