"""What connections that behave like a Redis replica may cost: log that is kept, threads, lines of the server's log."""

import contextlib
import re
import threading

import pytest

from harness import procfs, resp
from harness.replicas import call, info
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

# As docs/limits.md says.
PLACES = 64
PINNED_BYTES_MIN = 128 << 20
VALUE = b"x" * (1 << 20)
# More than sockets buffer.
FILE_VALUES = 32
# Of two threads for each place, and those of the server.
THREADS_MAX = 2 * PLACES + 60
VANISHING = 1000
# Lines about connections that have vanished: a few reasons, each once a minute.
LINES_MAX = 50


def ask_for_a_file(server: Server, *said: str) -> resp.Connection:
    """A connection that asks for a file and stream, having said something before."""
    connection = server.connect()
    if said:
        assert connection.call("REPLCONF", *said) == b"OK"
    connection.send(resp.encode("PSYNC", "?", "-1"))
    return connection


def replicas(server: Server) -> int:
    return int(info(server)["connected_slaves"])


def fill(server: Server, values: int) -> None:
    with server.connect() as connection:
        for number in range(values):
            assert connection.call("SET", f"value:{number % FILE_VALUES}", VALUE) == b"OK"


def take_file(connection: resp.Connection) -> None:
    """Reads up to the mark after the file."""
    received, mark = bytearray(), None
    while mark is None or received.count(mark) < 2:
        received += connection.socket.recv(1 << 20)
        if mark is None and (found := re.search(rb"\$EOF:([0-9a-f]{40})\r\n", received)):
            mark = found.group(1)


@pytest.mark.parametrize("reads", [False, True], ids=["reads nothing", "acknowledges nothing"])
def test_the_log_kept_for_a_file_is_bounded(new_server, reads):
    server = new_server(extra=("--replica-retention-bytes", "1mb")).start()
    fill(server, FILE_VALUES)
    with ask_for_a_file(server, "capa", "eof", "capa", "psync2") as connection, contextlib.ExitStack() as ending:
        if reads:
            take_file(connection)
            # As a replica does that loads its file.
            stop = threading.Event()
            ending.callback(stop.set)

            def give_signs_of_life() -> None:
                with contextlib.suppress(resp.Closed):
                    while not stop.wait(0.5):
                        connection.send(b"\n")

            threading.Thread(target=give_signs_of_life, daemon=True).start()
        else:
            server.wait_for_log("gets a file of everything")
        fill(server, 2 * PINNED_BYTES_MIN // len(VALUE))
        wait_until("the end of the connection", lambda: replicas(server) == 0)
    server.wait_for_log("more log than replica-retention-bytes was written meanwhile")


def test_connections_that_ask_for_a_file_and_vanish_cost_little(server):
    fill(server, 2)
    most = 0
    for _ in range(VANISHING // 20):
        for connection in [ask_for_a_file(server) for _ in range(20)]:
            connection.close()
        most = max(most, procfs.threads(server.pid))
    assert most < THREADS_MAX
    wait_until("all to be noticed", lambda: replicas(server) == 0)
    assert call(server, "SET", "key", "1") == b"OK"
    assert server.log().count("INFO replication") + server.log().count("WARN replication") < LINES_MAX


def test_only_so_many_are_served_at_a_time(server):
    fill(server, 1)
    with contextlib.ExitStack() as opened:
        for _ in range(PLACES):
            opened.enter_context(ask_for_a_file(server))
        wait_until("all places to be taken", lambda: replicas(server) == PLACES)
        for _ in range(PLACES):
            with ask_for_a_file(server) as connection:
                assert connection.read() == resp.ErrorReply("ERR too many replicas are connected")
        assert procfs.threads(server.pid) < THREADS_MAX
    wait_until("all places to be free", lambda: replicas(server) == 0)
    # The leader may send newlines before its answer, as Redis does while a file is made.
    with ask_for_a_file(server, "capa", "eof") as connection:
        take_file(connection)


def test_a_command_that_would_be_answered_ends_the_connection(server):
    for command in (("PING",), ("SET", "key", "1"), ("QUIT",), ("REPLCONF", "capa", "eof")):
        with ask_for_a_file(server, "capa", "eof") as connection:
            take_file(connection)
            for ignored in (("REPLCONF", "ACK", "0"), ("REPLCONF", "GETACK", "*"), ("PSYNC", "?", "-1")):
                connection.send(resp.encode(*ignored))
            wait_until("the stream", lambda: info(server).get("slave0", "").find("state=online") > 0)
            connection.send(resp.encode(*command))
            connection.read_to_end()
    assert call(server, "EXISTS", "key") == 0
    server.wait_for_log("it sent a command that a replica does not send")
