"""A raw RESP connection: bytes as they are on the wire, for cases that client libraries hide or refuse to
send.

`Connection.call` and `read` understand RESP2 and the RESP3 types that the server sends. Errors are returned
as `ErrorReply` values, never raised as exceptions, so that a test can compare their text.
"""

import socket
from dataclasses import dataclass

RECEIVE_BYTES = 1 << 16
REPLY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ErrorReply:
    """An error as the server wrote it, without the leading `-`."""

    text: str


class Closed(Exception):
    """The server closed the connection; `rest` is the part of the reply received before that."""

    def __init__(self, rest: bytes):
        super().__init__(f"connection closed by the server after {rest[:200]!r}")
        self.rest = rest


class NotAReply(AssertionError):
    """The first bytes are not those of a reply: another protocol's server answers on this port."""


class Refused(Exception):
    """The server answered a question with an error: it is starting, or restarting within its process."""


# The errors of a server that cannot be reached at the moment, or has no answer.
UNREACHABLE = (OSError, Closed, NotAReply, Refused)


def encode(*arguments: bytes | str | int) -> bytes:
    """One command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        raw = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


class Connection:
    """One socket. Not for several threads at once."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = REPLY_TIMEOUT_S):
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._position = 0

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket, even with data in flight."""
        self.socket.close()

    def send(self, raw: bytes) -> None:
        """Sends the bytes unchanged."""
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError) as cut:
            raise Closed(b"") from cut

    def has_input(self) -> bool:
        """Whether there are received bytes that were not read."""
        return self._position < len(self._buffer)

    def call(self, *arguments: bytes | str | int):
        """One command, one reply."""
        self.send(encode(*arguments))
        return self.read()

    def read_to_end(self) -> bytes:
        """Everything until the server closes the connection."""
        while self._receive():
            pass
        return self._take(len(self._buffer) - self._position)

    def read(self):
        """The next reply: bytes, int, None, list (also for a set), dict, float, bool, or ErrorReply."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        match kind:
            case b"+":
                return rest
            case b"-":
                return ErrorReply(rest.decode(errors="replace"))
            case b":" | b"(":
                return int(rest)
            case b"$" | b"=":
                return self._bulk(int(rest))
            case b"*" | b">" | b"~":
                return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
            case b"%":
                return {self.read(): self.read() for _ in range(int(rest))}
            case b"_":
                return None
            case b"#":
                return rest == b"t"
            case b",":
                return float(rest)
        raise NotAReply(f"no reply starts like {line[:80]!r}")

    def _bulk(self, length: int) -> bytes | None:
        if length < 0:
            return None
        raw = self._exactly(length + 2)
        assert raw.endswith(b"\r\n"), "a bulk string ends with CR LF"
        return raw[:-2]

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._position)) < 0:
            self._receive_or_fail()
        line = self._take(end - self._position)
        self._position += 2
        return line

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) - self._position < length:
            self._receive_or_fail()
        return self._take(length)

    def _take(self, length: int) -> bytes:
        taken = bytes(memoryview(self._buffer)[self._position : self._position + length])
        self._position += length
        if self._position == len(self._buffer):
            self._buffer.clear()
            self._position = 0
        return taken

    def _receive_or_fail(self) -> None:
        if not self._receive():
            raise Closed(bytes(self._buffer[self._position :]))

    def _receive(self) -> bool:
        if self._position > RECEIVE_BYTES:
            del self._buffer[: self._position]
            self._position = 0
        try:
            received = self.socket.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return False
        self._buffer += received
        return bool(received)
