"""A Redis-protocol client, just large enough for a benchmark harness.

Two uses: single commands (PING, INFO, DBSIZE), and loading millions of keys through one deep pipeline.
It is not a load generator for measurements: those are driven by redis-benchmark (driver.py).

Invariant: a load returns only after every SET has been answered with OK.
"""

import selectors
import socket
from collections.abc import Iterator
from typing import BinaryIO

OK = b"+OK\r\n"
# Keys per generated block: big enough to make Python's per-block cost vanish, small enough to keep the
# server's query buffer modest.
LOAD_BLOCK_KEYS = 2000


Reply = str | int | None | list["Reply"]


class ServerReply(Exception):
    """The server answered with an error; the text is the error line without its leading dash."""


class Client:
    """One blocking connection to 127.0.0.1."""

    def __init__(self, port: int, timeout_s: float = 30.0):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._reader.close()
        self._socket.close()

    def call(self, *words: str) -> Reply:
        """Sends one command and returns its reply. Raises ServerReply for an error, OSError if cut off."""
        self.send(*words)
        return self.receive()

    def send(self, *words: str) -> None:
        """Sends one command, whose reply is to be received."""
        self._socket.sendall(command(*(word.encode() for word in words)))

    def receive(self) -> Reply:
        """The next reply. Raises ServerReply for an error, OSError if cut off."""
        return self._reply()

    def info(self, *sections: str) -> dict[str, str]:
        """INFO as a flat table, section headings dropped."""
        lines = str(self.call("INFO", *sections)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _reply(self) -> Reply:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"+":
            return rest
        if kind == b"-":
            raise ServerReply(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._bulk(int(rest))
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        raise ConnectionError(f"a reply of an unexpected type: {line!r}")

    def _bulk(self, size_bytes: int) -> str | None:
        if size_bytes < 0:
            return None
        body = self._reader.read(size_bytes + 2)
        if len(body) != size_bytes + 2:
            raise ConnectionError("the server closed the connection inside a reply")
        return body[:-2].decode("utf-8", "replace")


def command(*words: bytes) -> bytes:
    """One command in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def load(port: int, key_format: bytes, count: int, value_bytes: int) -> None:
    """SETs keys 0..count, each `key_format % number`, and waits for every OK.

    Raises ServerReply for any other answer.
    """
    blocks = _set_blocks(key_format, count, b"x" * value_bytes)
    with socket.create_connection(("127.0.0.1", port), 30.0) as connection:
        connection.setblocking(False)
        _exchange(connection, blocks, len(OK) * count)


def load_blocks(port: int, blocks: Iterator[tuple[bytes, int]]) -> None:
    """Sends blocks of requests and waits until each is answered: by OK, by an integer or by a text of one
    line.

    Raises ServerReply for any other answer.
    """
    with socket.create_connection(("127.0.0.1", port), 60.0) as connection:
        reader = connection.makefile("rb")
        waiting = 0
        for block, commands in blocks:
            connection.sendall(block)
            # One block ahead: the server always has work, and its replies fit the socket's buffers.
            _read_replies(reader, waiting)
            waiting = commands
        _read_replies(reader, waiting)


def _read_replies(reader: BinaryIO, count: int) -> None:
    for _ in range(count):
        line = reader.readline()
        if line.startswith(b"$") and not line.startswith(b"$-"):
            reader.readline()
        elif not line.startswith((b"+OK", b":")):
            raise ServerReply(f"a command of the load was answered with {line!r}")


def _set_blocks(key_format: bytes, count: int, value: bytes) -> Iterator[bytes]:
    tail = b"\r\n$%d\r\n%b\r\n" % (len(value), value)
    for start in range(0, count, LOAD_BLOCK_KEYS):
        keys = [key_format % number for number in range(start, min(start + LOAD_BLOCK_KEYS, count))]
        yield b"".join([b"*3\r\n$3\r\nSET\r\n$%d\r\n%b%b" % (len(key), key, tail) for key in keys])


def _exchange(connection: socket.socket, blocks: Iterator[bytes], replies_bytes: int) -> None:
    """Writes the blocks while draining replies, so that neither side can stall the other."""
    pending = memoryview(next(blocks, b""))
    partial = b""
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    with selectors.DefaultSelector() as selector:
        selector.register(connection, both)
        while replies_bytes > 0:
            ready = selector.select(30.0)
            if not ready:
                raise TimeoutError("the server stopped answering during a load")
            events = ready[0][1]
            if events & selectors.EVENT_READ:
                received = connection.recv(1 << 18)
                if not received:
                    raise ConnectionError("the server closed the connection during a load")
                replies_bytes -= len(received)
                partial = _take_oks(partial + received)
            if events & selectors.EVENT_WRITE:
                pending = pending[connection.send(pending) :] or memoryview(next(blocks, b""))
                if not pending:
                    selector.modify(connection, selectors.EVENT_READ)


def _take_oks(replies: bytes) -> bytes:
    """Checks that the replies are OKs; returns the incomplete one at the end."""
    whole = len(replies) // len(OK)
    rest = replies[whole * len(OK) :]
    if replies[: whole * len(OK)] != OK * whole or not OK.startswith(rest):
        raise ServerReply(f"a SET of the load was answered with {_first_other(replies)}")
    return rest


def _first_other(replies: bytes) -> str:
    return next(line for line in replies.split(b"\r\n") if line != OK[:-2]).decode("utf-8", "replace")
