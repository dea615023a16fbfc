"""The data sets of the cases: the commands that create them, and the check that they are complete.

Every command is answered by OK, an integer or an id; an item is a key, member, element or entry, the unit of
the figures of memory and starts.
"""

import functools
from collections.abc import Iterator
from enum import Enum

import resp

# Items per generated block of requests.
BLOCK_THINGS = 20_000
# Members per command that builds one large collection.
PER_COMMAND = 500
# The values of a hash repeat after this many hashes.
HASH_PERIOD = 100_000
HASH_FIELDS = 10
# Field names of the entries of a stream: those of one shape have the first ones, this many; the others have 3
# to 7 varying ones.
FIELD_NAMES = (b"order", b"amount", b"customer", b"state", b"region", b"price", b"source", b"worker")
ONE_SHAPE_FIELDS, SHAPE_FIELDS_MIN, SHAPE_FIELDS_MAX = 5, 3, 7
# Odd numbers that spread 0, 1, 2, ... over 64 bits.
SPREAD_HIGH, SPREAD_LOW = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F


class Fill(Enum):
    """The kinds of data; the value names the case."""

    STRINGS = "strings"
    HEX_STRINGS = "hex-strings"
    HASHES = "hashes"
    ZSETS = "zsets"
    LARGE_ZSET = "large-zset"
    LARGE_LIST = "large-list"
    STREAM = "stream"
    STREAM_SHAPES = "stream-shapes"

    @property
    def words(self) -> str:
        """For titles."""
        return {
            Fill.STRINGS: "strings of 32 B, per key",
            Fill.HEX_STRINGS: "strings of 32 hexadecimal digits, per key",
            Fill.HASHES: "1M hashes of 10 small integer fields, per hash",
            Fill.ZSETS: "1M sorted sets of 20 members, per sorted set",
            Fill.LARGE_ZSET: "one sorted set of 10M members, per member",
            Fill.LARGE_LIST: "one list of 10M elements of 8 B, per element",
            Fill.STREAM: "one stream of 5M entries with the same 5 short fields, per entry",
            Fill.STREAM_SHAPES: "one stream of 5M entries with 3 to 7 fields, each time others, per entry",
        }[self]

    @property
    def full_count(self) -> int:
        """Items at full size."""
        if self in (Fill.STREAM, Fill.STREAM_SHAPES):
            return 5_000_000
        return 10_000_000 if self in (Fill.LARGE_ZSET, Fill.LARGE_LIST) else 1_000_000

    @property
    def is_one_key(self) -> bool:
        """Whether all items are in one key."""
        return self in (Fill.LARGE_ZSET, Fill.LARGE_LIST, Fill.STREAM, Fill.STREAM_SHAPES)

    def blocks(self, count: int) -> Iterator[tuple[bytes, int]]:
        """Requests that add `count` items, and the number of commands in each block."""
        for start in range(0, count, BLOCK_THINGS):
            commands = list(self._commands(range(start, min(start + BLOCK_THINGS, count))))
            yield b"".join(commands), len(commands)

    def probe(self, number: int) -> tuple[list[str], resp.Reply]:
        """The command that reads key `number`, and its reply; only for the kinds with a key per item, which
        starts load.
        """
        if self is Fill.HEX_STRINGS:
            return ["GET", f"key:{number:08d}"], _hex_value(number).decode()
        assert self is Fill.HASHES
        return ["HGETALL", f"row:{number:08d}"], [word.decode() for word in _hash_fields(number)]

    def _commands(self, numbers: range) -> Iterator[bytes]:
        if self is Fill.STRINGS:
            for n in numbers:
                yield resp.command(b"SET", b"k:%d" % n, b"x" * 32)
        elif self is Fill.HEX_STRINGS:
            for n in numbers:
                yield b"*3\r\n$3\r\nSET\r\n$12\r\nkey:%08d\r\n$32\r\n%b\r\n" % (n, _hex_value(n))
        elif self is Fill.HASHES:
            tails = _hash_tails()
            for n in numbers:
                yield b"*22\r\n$4\r\nHSET\r\n$12\r\nrow:%08d\r\n%b" % (n, tails[n % HASH_PERIOD])
        elif self is Fill.ZSETS:
            for n in numbers:
                members = [word for m in range(20) for word in (b"%d" % (n % 1000 + m), b"member:%d" % m)]
                yield resp.command(b"ZADD", b"zset:%d" % n, *members)
        elif self in (Fill.STREAM, Fill.STREAM_SHAPES):
            for n in numbers:
                first, count = (0, ONE_SHAPE_FIELDS) if self is Fill.STREAM else _shape(n)
                yield _xadd(first, count) % _values(n)[:count]
        else:
            for start in range(numbers.start, numbers.stop, PER_COMMAND):
                chunk = range(start, min(start + PER_COMMAND, numbers.stop))
                if self is Fill.LARGE_ZSET:
                    # Scores in no order, each member once.
                    pairs = [word for n in chunk for word in (b"%d" % (n * 7_919 % 10_000_019), b"m:%d" % n)]
                    yield resp.command(b"ZADD", b"large", *pairs)
                else:
                    yield resp.command(b"RPUSH", b"large", *(b"e%07d" % n for n in chunk))


def _shape(number: int) -> tuple[int, int]:
    """The first field of an entry, and its number of fields: seldom as in the entry before."""
    return number * 3 % len(FIELD_NAMES), SHAPE_FIELDS_MIN + number * 7 % (SHAPE_FIELDS_MAX - SHAPE_FIELDS_MIN + 1)


def _values(number: int) -> tuple[int, ...]:
    """Values for the placeholders of a request, up to the maximum number."""
    three = (number % 10_000_000, 10_000 + number * 31 % 90_000, number * 7_919 % 100_000_000)
    return (three * 3)[:SHAPE_FIELDS_MAX]


@functools.cache
def _xadd(first: int, count: int) -> bytes:
    """The request with placeholders for the values, which alternate between texts of 8 bytes and numbers of 8
    or 5 digits.
    """
    names = (FIELD_NAMES * 2)[first : first + count]
    values = [(b"v%07d", b"%05d", b"%08d")[place % 3] for place in range(count)]
    sizes = [(8, 5, 8)[place % 3] for place in range(count)]
    fields = [b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(n), n, z, v) for n, z, v in zip(names, sizes, values, strict=True)]
    return b"*%d\r\n$4\r\nXADD\r\n$5\r\nlarge\r\n$1\r\n*\r\n" % (3 + 2 * count) + b"".join(fields)


def _hex_value(number: int) -> bytes:
    """A text without repetition, so that no server saves space by compressing it."""
    return b"%016x%016x" % (number * SPREAD_HIGH & (1 << 64) - 1, number * SPREAD_LOW & (1 << 64) - 1)


def _hash_fields(number: int) -> list[bytes]:
    """Small integers in no order that a compressor could find."""
    places = [(f, number % HASH_PERIOD * HASH_FIELDS + f) for f in range(HASH_FIELDS)]
    return [word for f, x in places for word in (b"f%d" % f, b"%d" % ((x * x * 31 + x * 977) % 99_991 % 10_000))]


@functools.cache
def _hash_tails() -> list[bytes]:
    """The arguments after the key in the request for each hash of a period: generating them for millions
    takes minutes.
    """
    return [b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in _hash_fields(n)) for n in range(HASH_PERIOD)]
