"""Clients that send all commands before they read a reply: served within limits, and disconnected beyond them."""

import contextlib
import socket
import threading

import pytest
import redis

from harness import procfs
from harness.resp import Closed, Connection, encode
from harness.waiting import wait_until

MIB = 1 << 20
VALUE = b"v" * 100
REPLY = b"$100\r\n" + VALUE + b"\r\n"
# The replies, and as much again for buffers that grow.
GROWTH_MAX = 512 * MIB
# A client that is not logged in may have 1 MiB unsent, any other 256 MiB. The allocator and the buffers of the
# start are far less than this.
STRANGER_GROWTH_MAX = 64 * MIB


def disconnections(connection: Connection) -> int:
    """The number of clients disconnected because they do not read."""
    stats = connection.call("INFO", "stats").decode()
    return int(stats.split("client_output_buffer_limit_disconnections:")[1].split()[0])


def unsent_bytes(connection: Connection, name: str) -> int:
    """What the server has for the client of this name, beyond what the kernel has taken."""
    shown = connection.call("CLIENT", "LIST").decode().splitlines()
    line = next((line for line in shown if f"name={name} " in line), "obl=0 omem=0")
    return sum(int(line.split(f"{field}=")[1].split()[0]) for field in ("obl", "omem"))


def reads_replies(connection: Connection, count: int) -> bool:
    """Whether so many replies come, and nothing else. Far faster than one at a time."""
    expected, at = REPLY * 10_000, 0
    left = count * len(REPLY)
    while left > 0:
        received = connection.socket.recv(min(left, len(expected) - at))
        if received != expected[at : at + len(received)] or not received:
            return False
        at = (at + len(received)) % len(expected)
        left -= len(received)
    return True


def send_until_cut(connection: Connection, request: bytes) -> None:
    """Sends commands and reads nothing, until the server closes the connection."""
    with contextlib.suppress(Closed):
        while True:
            connection.send(request)


@pytest.mark.parametrize("protocol", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_redis_py_reads_after_it_has_sent_300_000_commands(server, protocol):
    with redis.Redis(port=server.port, protocol=protocol, socket_timeout=60) as client:
        client.set("k", VALUE)
        pipeline = client.pipeline(transaction=False)
        for _ in range(300_000):
            pipeline.get("k")
        replies = pipeline.execute()
        assert len(replies) == 300_000 and all(reply == VALUE for reply in replies)


@pytest.mark.parametrize("count", [1_000_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_commands_sent_before_any_reply_is_read(server, count):
    with server.connect() as connection:
        assert connection.call("SET", "k", VALUE) == b"OK"
        procfs.reset_peak(server.pid)
        before = procfs.resident_bytes(server.pid)
        connection.send(encode("GET", "k") * count)
        assert reads_replies(connection, count) and connection.call("ECHO", "end") == b"end"
        grown = procfs.resident_bytes_peak(server.pid) - before
        assert grown < GROWTH_MAX, f"grew by {grown / MIB:.1f} MiB"


@pytest.mark.sheaf_only
def test_a_client_that_never_reads_is_disconnected_unless_it_stops_sending(server):
    with server.connect() as control, server.connect() as quiet, server.connect() as greedy:
        assert control.call("CONFIG", "SET", "client-output-buffer-limit", "normal 4mb 0 0") == b"OK"
        long = b"".join(b"%08d" % number for number in range(4 * MIB))
        assert control.call("SET", "k", VALUE) == control.call("SET", "long", long) == b"OK"
        assert quiet.call("CLIENT", "SETNAME", "quiet") == greedy.call("CLIENT", "SETNAME", "greedy") == b"OK"
        quiet.send(encode("GET", "long"))
        wait_until("the long reply to be left unread", lambda: unsent_bytes(control, "quiet") > 4 * MIB)
        sender = threading.Thread(target=send_until_cut, args=(greedy, encode("GET", "k") * 1000))
        sender.start()
        wait_until("the limit to be reached", lambda: unsent_bytes(control, "greedy") > 4 * MIB)
        # The commands of one round, at most.
        assert unsent_bytes(control, "greedy") < 5 * MIB
        wait_until("the client to be disconnected", lambda: disconnections(control) > 0)
        sender.join()
        server.wait_for_log("sends commands and reads no replies")
        assert disconnections(control) == 1 and 'name="greedy"' in server.log()
        assert quiet.read() == long, "a reply may be longer than the limit"


@pytest.mark.sheaf_only
def test_the_limit_is_shown(server):
    with server.connect() as connection:
        _, shown = connection.call("CONFIG", "GET", "client-output-buffer-limit")
        assert shown.startswith(b"normal 268435456 0 0 "), shown


@pytest.mark.sheaf_only
def test_an_unauthenticated_client_has_a_small_limit(new_server):
    server = new_server(requirepass="secret").start()
    with server.connect() as control, Connection(server.port) as stranger:
        procfs.reset_peak(server.pid)
        before = procfs.resident_bytes(server.pid)
        sender = threading.Thread(target=send_until_cut, args=(stranger, encode("GET", "k") * 1000))
        sender.start()
        wait_until("the client to be disconnected", lambda: not sender.is_alive())
        # Two limits of ten seconds, each of which may be first: that of unread replies, and that of the login.
        stats = control.call("INFO", "stats").decode()
        assert disconnections(control) + int(stats.split("login_timeouts:")[1].split()[0]) == 1
        grown = procfs.resident_bytes_peak(server.pid) - before
        assert grown < STRANGER_GROWTH_MAX, f"grew by {grown / MIB:.1f} MiB"


@pytest.mark.sheaf_only
def test_a_pause_with_unread_replies_costs_no_time(server):
    with server.connect() as control, server.connect() as sleeper:
        assert control.call("SET", "k", b"v" * (64 << 10)) == b"OK"
        assert sleeper.call("CLIENT", "SETNAME", "sleeper") == b"OK"
        sleeper.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB // 4)
        while unsent_bytes(control, "sleeper") < MIB // 4:
            sleeper.send(encode("GET", "k"))
        sleeper.send(encode("DEBUG", "SLEEP", 3600))
        wait_until("it to sleep", lambda: b" cmd=debug" in control.call("CLIENT", "LIST", "TYPE", "normal"))
        # Its socket takes bytes again. They must wait for the end of the pause.
        received = 0
        while received < 3 * MIB:
            received += len(sleeper.socket.recv(MIB))
        server.wait_until_idle()
