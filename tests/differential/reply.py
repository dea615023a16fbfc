"""Replies as trees that keep the whole wire format, so that equal trees are equal bytes.

A leaf is `(kind, bytes)`, an aggregate `(kind, (child, ...))`, where `kind` is the byte that begins the
reply; null bulk strings and null arrays hold None. A map's children alternate between names and values.
"""

import socket

from harness.resp import Closed, encode

Tree = tuple[bytes, object]
REPLY_TIMEOUT_S = 20.0

OK: Tree = (b"+", b"OK")
QUEUED: Tree = (b"+", b"QUEUED")


class Wire:
    """One connection on which whole pipelines are sent and replies read one by one."""

    def __init__(self, port: int, protocol: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self.socket.makefile("rb", buffering=1 << 16)
        if protocol == 3:
            assert self.call("HELLO", 3)[0] == b"%"

    def close(self) -> None:
        """Closes the socket, even with data in flight."""
        self._replies.close()
        self.socket.close()

    def send(self, raw: bytes) -> None:
        """Sends the bytes unchanged."""
        self.socket.sendall(raw)

    def call(self, *arguments: bytes | str | int) -> Tree:
        """One command, one reply."""
        self.send(encode(*arguments))
        return self.read()

    def calls(self, commands: list[tuple]) -> list[Tree]:
        """Many commands in one pipeline."""
        self.send(b"".join(encode(*command) for command in commands))
        return [self.read() for _ in commands]

    def raw(self, count: int) -> bytes:
        """This many bytes, as they arrive."""
        return self._replies.read(count)

    def read(self) -> Tree:
        """The next reply."""
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise Closed(line)
        kind, rest = line[:1], line[1:-2]
        if kind in b"+-:_,#(":
            return kind, rest
        length = int(rest)
        if length < 0:
            return kind, None
        if kind in b"$=!":
            raw = self._replies.read(length + 2)
            if len(raw) < length + 2:
                raise Closed(raw)
            return kind, raw[:-2]
        if kind in b"*~>":
            return kind, tuple([self.read() for _ in range(length)])
        if kind == b"%":
            return kind, tuple([self.read() for _ in range(2 * length)])
        raise AssertionError(f"no reply starts like {line[:80]!r}")


def children(tree: Tree) -> tuple[Tree, ...] | None:
    """The members of an aggregate; None for any other reply."""
    return tree[1] if isinstance(tree[1], tuple) else None


def is_error(tree: Tree) -> bool:
    """Whether the reply is an error."""
    return tree[0] == b"-"


def is_null(tree: Tree) -> bool:
    """Whether the reply is a null, of either protocol."""
    return tree[0] == b"_" or tree[1] is None


def shown(tree: Tree, limit: int = 600) -> str:
    """The reply for people."""
    text = _shown(tree)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _shown(tree: Tree) -> str:
    kind, content = tree
    mark = kind.decode()
    if content is None:
        return f"{mark}null"
    if isinstance(content, tuple):
        return f"{mark}[{', '.join(map(_shown, content))}]"
    return f"{mark}{content.decode(errors='backslashreplace')}" if mark in "+-:,#_(" else f"{mark}{content!r}"
