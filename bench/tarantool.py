"""Tarantool as a contender: what `servers.Server` is for the Redis protocol, over Tarantool's text console.

What it is: start, fill and check, for the cases that measure starts. What it is not: a target for redis-benchmark.
"""

import socket

from fill import Fill
from resp import ServerReply
from servers import Server, ServerFailed

# A console answers with a YAML document.
END_OF_ANSWER = b"\n...\n"
FILL_TIMEOUT_S = 600.0


class TarantoolServer(Server):
    """One Tarantool process that runs tarantool.lua."""

    def fill(self, fill: Fill, count: int) -> None:
        self._evaluate(f"return fill('{_space(fill)}', {count})", "filled")

    def check(self, fill: Fill | None, count: int) -> None:
        if fill is not None:
            self._evaluate(f"return check('{_space(fill)}', {count})", "complete")

    def take_snapshot(self) -> None:
        self._evaluate("return box.snapshot()", "ok")

    def _answers(self) -> bool:
        try:
            return self._call("return box.info.status") == "running"
        except OSError:
            return False

    def _check_identity(self) -> None:
        self._evaluate("return box.info.pid", str(self.pid))

    def _evaluate(self, expression: str, expected: str) -> None:
        answer = self._call(expression)
        if answer != expected:
            raise ServerFailed(f"{self.program.name}: {expression}: {answer}")

    def _call(self, expression: str) -> str:
        """What the expression evaluates to: one value, as text."""
        with socket.create_connection(("127.0.0.1", int(self.ports.resp)), FILL_TIMEOUT_S) as connection:
            reader = connection.makefile("rb")
            with reader:
                greeting = reader.readline() + reader.readline()
                if not greeting.startswith(b"Tarantool "):
                    raise ServerReply(f"a console that greets with {greeting!r}")
                connection.sendall(expression.encode() + b"\n")
                answer = bytearray()
                while not answer.endswith(END_OF_ANSWER):
                    line = reader.readline()
                    if not line:
                        raise ConnectionError("the console closed the connection")
                    answer += line
        return answer.removeprefix(b"---\n- ").removesuffix(END_OF_ANSWER).decode("utf-8", "replace").strip("'\"")


def _space(fill: Fill) -> str:
    return {Fill.HASHES: "hashes", Fill.HEX_STRINGS: "strings"}[fill]
