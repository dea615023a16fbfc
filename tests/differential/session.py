"""One run against both servers: rounds of random commands; every reply and then all data are compared."""

from dataclasses import dataclass
from itertools import cycle

from differential import exchange, sequence, state
from differential.families import Family, all_families
from differential.pair import Mismatch, Pair
from differential.reply import Wire, children
from differential.shrink import shrink
from differential.steps import Step
from harness.server import Server

ROUND_COMMANDS = 2500
SHRINK_BUDGET_S = 20.0
STEPS_SHOWN_MAX = 40
# How often a round is run whose times to live differ because the machine was busy.
ATTEMPTS_MAX = 5
# Rounds alternate between these and the defaults, so that values often outgrow their compact forms.
SMALL_LIMITS = {
    "hash-max-listpack-entries": 8,
    "hash-max-listpack-value": 20,
    "set-max-intset-entries": 16,
    "zset-max-listpack-entries": 8,
    "zset-max-listpack-value": 20,
    "list-max-listpack-size": 5,
}


@dataclass(frozen=True)
class Failure:
    """A mismatch and the shortest sequence of steps found that leads to it."""

    round: str
    mismatch: Mismatch
    steps: list[Step]

    def __str__(self) -> str:
        shown = self.steps[-STEPS_SHOWN_MAX:]
        lines = [f"{self.round}: {self.mismatch}", f"  after {len(self.steps)} steps, of which the last are"]
        for step in shown:
            lines += [f"    {'#2> ' if step.connection else ''}{command}" for command in step.commands]
        return "\n".join(lines)


class Session:
    """Both servers and all drawable commands."""

    def __init__(self, redis: Server, sheaf: Server, protocol: int):
        self._pair = Pair(redis, sheaf, protocol)
        self._protocol = protocol
        self._redis, self._sheaf = redis, sheaf
        self._exchanges = False
        self._families = all_families()
        self.available = (commands_of(sheaf) & commands_of(redis)) | {"NOSUCH"}
        self._payloads = payloads_of(redis)
        self._limits = {name: default for name, default in limits_of(redis).items() if name in limits_of(sheaf)}

    def skipped(self) -> list[str]:
        """The drawable commands that one of the two lacks."""
        return sorted({drawable.name for family in self._families for drawable in family.drawables} - self.available)

    def run(
        self, seed: int, commands: int, failures_max: int, exchanges: bool = False, theme: str | None = None
    ) -> list[Failure]:
        """Runs rounds until this many commands were sent or failures found; `exchanges` dumps after each
        round. All rounds have the theme, if one is given.
        """
        self._exchanges = exchanges
        failures: list[Failure] = []
        for number, theme in enumerate(cycle([theme] if theme else sequence.themes(self._possible()))):
            if number * ROUND_COMMANDS >= commands or len(failures) == failures_max:
                return failures
            failure = self._round(f"{seed}/{number}/{theme}", number, theme)
            failures += [failure] if failure else []
        raise AssertionError("themes never end")

    def _possible(self) -> list[Family]:
        """Families of which both have at least one command."""
        return [family for family in self._families if any(found.name in self.available for found in family.drawables)]

    def _round(self, name: str, number: int, theme: str) -> Failure | None:
        seed = f"{name}/{self._protocol}"
        steps = sequence.steps_of_round(
            self._possible(), self.available, self._payloads, seed, theme, ROUND_COMMANDS, self._redis.options.peer
        )
        small = number % 2 == 1
        mismatch = self._mismatch(steps, small)
        if mismatch is None:
            return None
        shorter = shrink(
            steps[: mismatch.position + 1], lambda part: self._mismatch(part, small) is not None, SHRINK_BUDGET_S
        )
        limits = ", small limits" if small else ""
        return Failure(
            f"round {name}, RESP{self._protocol}{limits}", self._mismatch(shorter, small) or mismatch, shorter
        )

    def _mismatch(self, steps: list[Step], small: bool) -> Mismatch | None:
        """The difference after these steps. A real one is there in every attempt."""
        for _ in range(ATTEMPTS_MAX):
            self._pair.reset()
            for server in (self._redis, self._sheaf):
                set_limits(server, SMALL_LIMITS if small else self._limits, self._limits.keys())
            found = self._pair.run(steps) or self.state_mismatch(len(steps) - 1)
            if found is None or not self._pair.was_delayed():
                break
        return found

    def state_mismatch(self, position: int = 0) -> Mismatch | None:
        """Compares all data of both."""
        values = state.held(self._redis.port), state.held(self._sheaf.port)
        found = state.first_difference(*values, limits=limits_of(self._redis), peer=self._redis.options.peer)
        if found is None and self._exchanges:
            found = self._exchange_mismatch()
        return Mismatch(*found, position) if found else None

    def _exchange_mismatch(self) -> tuple[str, str, str] | None:
        """Lets each server restore the dumps of the other."""
        # A payload does not say in which form its value was.
        fields = state.WITHOUT_ENCODING
        peer = self._redis.options.peer
        there = state.first_difference(*exchange.restored(self._redis, self._sheaf), fields, peer=peer)
        if there:
            return f"dumped by Redis: {there[0]}", *there[1:]
        original, copy = exchange.restored(self._sheaf, self._redis)
        back = state.first_difference(copy, original, fields, peer=peer)
        return (f"dumped by Sheaf: {back[0]}", *back[1:]) if back else None

    def close(self) -> None:
        """Closes the connections."""
        self._pair.close()


def commands_of(server: Server) -> frozenset[str]:
    """The names of its commands, in capitals."""
    wire = Wire(server.port, protocol=2)
    try:
        return frozenset(children(row)[0][1].decode().upper() for row in children(wire.call("COMMAND")))
    finally:
        wire.close()


def payloads_of(redis: Server) -> list[bytes]:
    """DUMP of a value of every type in every encoding."""
    fill = [
        ("SET", "number", 12345),
        ("SET", "text", "hello"),
        ("SET", "long", "abc" * 100),
        ("RPUSH", "list", *"abc", 1, -5),
        ("RPUSH", "lists", *("x" * 100 for _ in range(200))),
        ("SADD", "numbers", 1, 2, 300000),
        ("SADD", "words", *"abc"),
        ("ZADD", "zset", 1, "a", 2.5, "b", "inf", "c"),
        ("ZADD", "zsets", 1, "x" * 100, -2.25, "b"),
        ("HSET", "hash", "f", 1, "g", "text"),
        ("HSET", "hashes", "f", "x" * 100),
        ("XADD", "stream", "5-1", "f", 1, "g", "text"),
    ]
    of_streams = [
        ("XADD", "stream", "5-2", "other", "x" * 100),
        ("XADD", "stream", "6-0", "f", 2, "g", -3),
        ("XDEL", "stream", "5-2"),
        ("XGROUP", "CREATE", "stream", "g", 0),
        ("XREADGROUP", "GROUP", "g", "c1", "COUNT", 1, "STREAMS", "stream", ">"),
        ("XGROUP", "CREATECONSUMER", "stream", "g", "c2"),
    ]
    wire = Wire(redis.port, protocol=2)
    try:
        wire.call("FLUSHALL")
        wire.calls(fill)
        wire.calls(of_streams)
        return [wire.call("DUMP", command[1])[1] for command in fill]
    finally:
        wire.close()


def limits_of(server: Server) -> dict[str, int]:
    """The limits of compact forms that the server supports."""
    wire = Wire(server.port, protocol=2)
    try:
        replies = {name: children(wire.call("CONFIG", "GET", name)) for name in SMALL_LIMITS}
    finally:
        wire.close()
    return {name: int(reply[1][1]) for name, reply in replies.items() if reply}


def set_limits(server: Server, limits: dict[str, int], names) -> None:
    """Sets the given limits."""
    wire = Wire(server.port, protocol=2)
    try:
        for name in names:
            assert wire.call("CONFIG", "SET", name, limits[name]) == (b"+", b"OK"), name
    finally:
        wire.close()
