"""A long stream is read as a whole while another client adds to it: that client is answered meanwhile, and
the reader gets a consistent state.
"""

import re
import select
from contextlib import ExitStack

import pytest

from harness.resp import Connection, encode

pytestmark = pytest.mark.sheaf_only

ENTRIES = 1_000_000
BLOCK = 10_000
RECEIVE_BYTES = 1 << 20
PONG = b"+PONG\r\n"
# The number of additions that are answered before the first byte of a reply that does not show them. If the
# slot were locked until the reply is written, there would be only a few, between the unlocking and the first
# byte.
OVERTAKING = 50
LAST_ADDED = re.compile(rb"\$\d+\r\n2-(\d+)\r\n\*2\r\n\$1\r\nf\r\n")


class Writer:
    """Adds the entries 2-1, 2-2, ..., each when the one before is answered."""

    def __init__(self, connection: Connection):
        self.answered = 0
        self._connection = connection

    def add(self) -> None:
        name = f"2-{self.answered + 1}"
        assert self._connection.call("XADD", "stream", name, "f", "v") == name.encode()
        self.answered += 1


def fill(connection: Connection) -> None:
    block = encode("XADD", "stream", "1-*", "f", "v") * BLOCK
    for _ in range(ENTRIES // BLOCK):
        connection.send(block)
        for _ in range(BLOCK):
            connection.read()


def read_all(reader: Connection, command: tuple[str, ...], writer: Writer) -> tuple[int, int, int]:
    """Reads everything. Returns the number of additions answered before the first byte, the last entry in the
    reply, and the number of entries that the reply declares.
    """
    reader.send(encode(*command) + encode("PING"))
    while not select.select([reader.socket], [], [], 0)[0]:
        writer.add()
    answered, head, tail = writer.answered, b"", b""
    while not tail.endswith(PONG):
        received = reader.socket.recv(RECEIVE_BYTES)
        assert received
        head, tail = (head + received[: 100 - len(head)]), (tail + received)[-1000:]
    shown = LAST_ADDED.findall(tail)
    lengths = [int(length) for length in re.findall(rb"\*(\d+)\r\n", head)]
    return answered, int(shown[-1]) if shown else 0, max(lengths)


@pytest.mark.slow
# On a busy machine many reads may pass before the writer runs beside one of them.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", [("XRANGE", "stream", "-", "+"), ("XREAD", "STREAMS", "stream", "0")])
def test_additions_are_answered_while_a_whole_stream_is_read(new_server, command):
    server = new_server(durability="none").start()
    with ExitStack() as stack:
        # One after the other: each is served by another worker.
        reader, other = (stack.enter_context(Connection(server.port)) for _ in range(2))
        fill(reader)
        writer = Writer(other)
        overtaking = 0
        while overtaking < OVERTAKING:
            before = writer.answered
            answered, shown, length = read_all(reader, command, writer)
            assert length == ENTRIES + shown, "what is shown is there without a gap"
            assert before <= shown, "what was answered before is shown"
            overtaking = max(overtaking, answered - shown)
            print(f"{answered - before} additions were answered, {answered - shown} of them after what is shown")
        assert other.call("XLEN", "stream") == ENTRIES + writer.answered
