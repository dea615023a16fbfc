"""Arguments drawn at random from small pools, so that commands interact: the same keys, members, scores,
again and again.

Most draws are valid. A few are hard for parsers: empty, not a number, next to the limits of 64 bits,
infinite.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from differential.peers import REDIS_7_0, Peer

Drawn = TypeVar("Drawn")

KEYS_PER_TYPE = 4
TYPES = ("string", "list", "set", "zset", "hash", "geo", "bitmap", "stream")
ODD_KEYS = (b"", b"\x00\xff odd", b"{tag}a", b"{tag}b")

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)
EDGE_INTEGERS = (INT64_MAX, INT64_MIN, INT64_MAX - 1, 1 << 31, 1 << 32, -(1 << 31), 255, 256, 10_000)
NO_INTEGERS = (b"", b"abc", b"1.5", b" 1", b"1 ", b"+1", b"01", b"-0", b"0x10", b"1e3", b"9223372036854775808", b"nan")
NO_FLOATS = (b"", b"abc", b" 1", b"1 ", b"nan", b"1e400", b"--1", b"1.5.5", b"1e", b"\x00")
ODD_FLOATS = (
    b"3.0e10",
    b"-0",
    b"1e-5",
    b"+inf",
    b"-inf",
    b"inf",
    b"Infinity",
    b".5",
    b"5.",
    b"1e308",
    b"17179869184.75",
)

WORDS = (b"a", b"b", b"c", b"d", b"foo", b"bar", b"hello", b"", b"a\x00b", b"\xff\xfe", b"Foo")
NUMBERS = (
    b"0",
    b"1",
    b"2",
    b"3",
    b"7",
    b"10",
    b"-1",
    b"-5",
    b"100",
    b"32767",
    b"32768",
    b"2147483648",
    b"9223372036854775807",
    b"-9223372036854775808",
)
ALMOST_NUMBERS = (b"1.0", b"01", b"+1", b"1.5", b" 1", b"1e3", b"9223372036854775808", b"inf")


class Draw:
    """A seeded source of arguments."""

    def __init__(self, random: Random, payloads: Sequence[bytes] = (), peer: Peer = REDIS_7_0):
        self.random = random
        # Only what this peer has is drawn.
        self.peer = peer
        # Payloads for RESTORE, of every kind of value.
        self.payloads = payloads

    # ---- choosing ------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def one(self, of: Sequence[Drawn]) -> Drawn:
        """One of them."""
        return of[int(self.random.random() * len(of))]

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return self.random.randint(low, high)

    def many(self, draw: Callable[[], Drawn], low: int, high: int) -> list[Drawn]:
        """Several draws, more often few than many."""
        count = low + int((high - low + 1) * self.random.random() ** 2)
        return [draw() for _ in range(count)]

    def maybe(self, probability: float, *arguments: object) -> tuple:
        """The arguments, or none."""
        return arguments if self.random.random() < probability else ()

    def case(self, word: str) -> str:
        """An option in capitals or not."""
        return word if self.random.random() < 0.8 else word.lower()

    # ---- keys ----------------------------------------------------------------------------------------------

    def key(self, of_type: str) -> bytes:
        """A key that mostly holds this type or nothing, sometimes another type."""
        luck = self.random.random()
        if luck < 0.02:
            return self.one(ODD_KEYS)
        if luck < 0.06:
            of_type = self.one(TYPES)
        return b"%b:%d" % (of_type.encode(), self.random.randrange(KEYS_PER_TYPE))

    def any_key(self) -> bytes:
        """A key of any type."""
        return self.key(self.one(TYPES))

    def keys(self, of_type: str, low: int, high: int) -> list[bytes]:
        """Several keys, with repetitions."""
        return self.many(lambda: self.key(of_type), low, high)

    # ---- values --------------------------------------------------------------------------------------------

    def word(self) -> bytes:
        """A value or member: words, numbers, near numbers, and sometimes a long text."""
        luck = self.random.random()
        if luck < 0.45:
            return self.one(WORDS)
        if luck < 0.75:
            return self.one(NUMBERS)
        if luck < 0.85:
            return b"m%d" % self.random.randrange(60)
        if luck < 0.93:
            return self.one(ALMOST_NUMBERS)
        return self.one(WORDS) * self.one((10, 40, 65, 200)) + b"x" * self.one((0, 1, 44, 45, 63, 64, 65))

    def small_integer(self) -> bytes:
        """A member of a set of integers."""
        return b"%d" % self.random.randrange(-20, 40)

    def integer(self, low: int = -12, high: int = 12) -> object:
        """Mostly between the bounds, sometimes at the limits of 64 bits or not an integer at all."""
        luck = self.random.random()
        if luck < 0.9:
            return self.random.randint(low, high)
        return self.one(EDGE_INTEGERS) if luck < 0.95 else self.one(NO_INTEGERS)

    def count(self, high: int = 8) -> object:
        """A count that may be 0, negative or not a number; never so large that the reply is endless."""
        luck = self.random.random()
        if luck < 0.9:
            return self.random.randint(0, high)
        return self.one((-1, -3, 1000, b"abc", b"", b"1.5", b"9223372036854775808", INT64_MIN))

    def score(self) -> bytes:
        """A score for a member."""
        luck = self.random.random()
        if luck < 0.6:
            return b"%d" % self.random.randint(-10, 10)
        if luck < 0.85:
            return b"%.2f" % self.random.uniform(-20, 20)
        return self.one(ODD_FLOATS) if luck < 0.96 else self.one(NO_FLOATS)

    def binary_fraction(self) -> bytes:
        """A float whose sums are exact in binary and in decimal."""
        luck = self.random.random()
        if luck < 0.85:
            return b"%g" % (self.random.randint(-4000, 4000) / 8)
        return self.one((b"3.0e10", b"1e3", b"0", b"-0", b".5", b"5.", b"", b"abc", b"nan", b" 1", b"1 "))

    # ---- points in time ------------------------------------------------------------------------------------

    def far_seconds(self) -> int:
        """A time to live longer than any test, and hardly ever the same one twice."""
        return self.random.randint(10**5, 10**7)

    def far_milliseconds(self) -> int:
        """The same in milliseconds."""
        return self.random.randint(10**8, 10**10)

    def future_s(self) -> int:
        """A point in time in the next century, from a small pool."""
        return 4_100_000_000 + 1000 * self.random.randrange(5)

    def future_ms(self) -> int:
        """The same in milliseconds."""
        return 4_100_000_000_000 + 1000 * self.random.randrange(5)
