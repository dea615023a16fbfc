"""Tarantool as a contender: the counterpart of `servers.Server`, over Tarantool's text console.

It starts, fills and checks Tarantool for the cases that measure starts, and writes in its process for those
of replicas. It is not a target for redis-benchmark.
"""

from fill import Fill
from resp import Client, ServerReply
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

    def write(self, rows: int, keys: int, together: int, value_bytes: int) -> None:
        """Tarantool's own fibers write rows; the first call first creates all keys."""
        self._evaluate(f"return write({rows}, {keys}, {together}, {value_bytes})", "written")

    def client(self) -> "Console":
        return Console(int(self.ports.resp))

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
        with self.client() as console:
            return console.evaluate(expression)


class Console(Client):
    """One connection to the text console, with the methods of a Redis client that concern replication."""

    def __init__(self, port: int):
        super().__init__(port, FILL_TIMEOUT_S)
        greeting = self._reader.readline() + self._reader.readline()
        if not greeting.startswith(b"Tarantool "):
            raise ServerReply(f"a console that greets with {greeting!r}")

    def evaluate(self, expression: str) -> str:
        """The value of the expression: one value, as text."""
        self._socket.sendall(expression.encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(END_OF_ANSWER):
            line = self._reader.readline()
            if not line:
                raise ConnectionError("the console closed the connection")
            answer += line
        return answer.removeprefix(b"---\n- ").removesuffix(END_OF_ANSWER).decode("utf-8", "replace").strip("'\"")

    def info(self, *sections: str) -> dict[str, str]:
        """The end of its log and whether it follows, in the words of INFO replication."""
        position, link = self.evaluate("return position()").split()
        return {"master_repl_offset": position, "slave_repl_offset": position, "master_link_status": link}


def _space(fill: Fill) -> str:
    return {Fill.HASHES: "hashes", Fill.HEX_STRINGS: "strings"}[fill]
