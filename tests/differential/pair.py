"""A peer and a Sheaf that get the same commands, and the comparison of their replies."""

import time
from dataclasses import dataclass

from differential import differences
from differential.peers import Peer
from differential.reply import QUEUED, Tree, Wire, children, shown
from differential.steps import TTL_TOLERANCE_MS, Command, Step
from harness.resp import Closed, encode
from harness.server import Server

PIPELINE_COMMANDS = 100
CONNECTIONS = 2


@dataclass(frozen=True)
class Mismatch:
    """The first reply, or the part of the state, in which the two differ."""

    what: str
    redis: str
    sheaf: str
    # The step after which the difference appeared.
    position: int

    def __str__(self) -> str:
        return f"{self.what}\n    redis: {self.redis}\n    sheaf: {self.sheaf}"


class Judge:
    """Compares the replies of one connection, command by command; knows the queue of a transaction."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._queued: list[Command] = []

    def agree(self, command: Command, redis: Tree, sheaf: Tree, before: list[Tree]) -> bool:
        """Whether Sheaf's reply to the command is correct; `before` holds the replies to its step so far."""
        queued, name = self._queued, command.name
        if redis == QUEUED:
            queued.append(command)
        elif name in ("MULTI", "EXEC", "DISCARD"):
            self._queued = [] if redis[0] != b"-" or redis[1].startswith(b"EXECABORT") else queued
        if name == "EXEC" and redis != sheaf:
            before.append(redis)
            return _agree_within(queued, redis, sheaf, self._peer)
        return _agree(command, redis, sheaf, before, self._peer)


def _agree(command: Command, redis: Tree, sheaf: Tree, before: list[Tree], peer: Peer) -> bool:
    """Compares one reply and appends the expected one to `before`."""
    redis, sheaf = (differences.without_sign_of_zero(command, reply) for reply in (redis, sheaf))
    if redis == sheaf or command.agree(redis, sheaf, before):
        before.append(redis)
        return True
    expected = differences.expected(command, redis, sheaf, peer)
    right = expected == sheaf or command.agree(expected, sheaf, before)
    before.append(expected)
    return right


def _agree_within(commands: list[Command], redis: Tree, sheaf: Tree, peer: Peer) -> bool:
    left, right = children(redis), children(sheaf)
    if left is None or right is None or not len(left) == len(right) == len(commands):
        return False
    before: list[Tree] = []
    return all(
        _agree(command, mine, theirs, before, peer) for command, mine, theirs in zip(commands, left, right, strict=True)
    )


class Pair:
    """Both servers, and connections to them in one version of the protocol."""

    def __init__(self, redis: Server, sheaf: Server, protocol: int):
        self.redis, self.sheaf = redis, sheaf
        self._protocol = protocol
        self._wires: list[tuple[Wire, Wire]] = []
        self._judges: list[Judge] = []
        self._longest_s = 0.0

    def close(self) -> None:
        """Closes the connections."""
        for wires in self._wires:
            for wire in wires:
                wire.close()
        self._wires = []

    def reset(self) -> None:
        """New connections to empty servers; a server that has ended is started again."""
        self.close()
        self._longest_s = 0.0
        for server in (self.redis, self.sheaf):
            if not server.is_running():
                server.start()
        self._wires = [
            (Wire(self.redis.port, self._protocol), Wire(self.sheaf.port, self._protocol)) for _ in range(CONNECTIONS)
        ]
        self._judges = [Judge(self.redis.options.peer) for _ in range(CONNECTIONS)]
        for wire in self._wires[0]:
            assert wire.call("FLUSHALL") == (b"+", b"OK")

    def was_delayed(self) -> bool:
        """Whether one server may have executed a command so much later than the other that times to live differ
        by more than their tolerance: an expiry is set in one pipeline and read in another.
        """
        return 2 * self._longest_s * 1000 > TTL_TOLERANCE_MS

    def run(self, steps: list[Step]) -> Mismatch | None:
        """Sends the steps in pipelines, compares every reply, and stops at the first that differs."""
        start = 0
        while start < len(steps):
            end, commands = start, 0
            while (
                end < len(steps) and steps[end].connection == steps[start].connection and commands < PIPELINE_COMMANDS
            ):
                commands += len(steps[end].commands)
                end += 1
            begun = time.monotonic()
            mismatch = self._pipeline(steps, range(start, end))
            self._longest_s = max(self._longest_s, time.monotonic() - begun)
            if mismatch:
                return mismatch
            start = end
        return None

    def _pipeline(self, steps: list[Step], positions: range) -> Mismatch | None:
        connection = steps[positions.start].connection
        redis, sheaf = self._wires[connection]
        judge = self._judges[connection]
        raw = b"".join(encode(*command.arguments) for position in positions for command in steps[position].commands)
        try:
            sheaf.send(raw)
        except OSError as cut:
            return Mismatch("sending a pipeline", "takes it", repr(cut), positions.start)
        redis.send(raw)
        for position in positions:
            before: list[Tree] = []
            for command in steps[position].commands:
                theirs = redis.read()
                try:
                    ours = sheaf.read()
                except (Closed, OSError, AssertionError) as problem:
                    return Mismatch(str(command), shown(theirs), f"no reply: {problem!r}", position)
                if not judge.agree(command, theirs, ours, before):
                    return Mismatch(str(command), shown(theirs), shown(ours), position)
        return None
