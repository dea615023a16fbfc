"""What a memory case loads: which commands make which data.

Every command is answered by OK or by an integer; `things` says how many keys, members or elements it adds, which is
what memory is counted per.
"""

from collections.abc import Iterator
from enum import Enum

# Things per generated block of requests.
BLOCK_THINGS = 20_000
# Members per command that builds one large collection.
PER_COMMAND = 500


class Fill(Enum):
    """The kinds of data; the value names the case."""

    STRINGS = "strings"
    HASHES = "hashes"
    ZSETS = "zsets"
    LARGE_ZSET = "large-zset"
    LARGE_LIST = "large-list"

    @property
    def words(self) -> str:
        """For titles."""
        return {
            Fill.STRINGS: "strings of 32 B, per key",
            Fill.HASHES: "1M hashes of 10 small integer fields, per hash",
            Fill.ZSETS: "1M sorted sets of 20 members, per sorted set",
            Fill.LARGE_ZSET: "one sorted set of 10M members, per member",
            Fill.LARGE_LIST: "one list of 10M elements of 8 B, per element",
        }[self]

    @property
    def full_count(self) -> int:
        """Things at full size."""
        return 10_000_000 if self in (Fill.LARGE_ZSET, Fill.LARGE_LIST) else 1_000_000

    @property
    def is_one_key(self) -> bool:
        """Whether all things lie at one key."""
        return self in (Fill.LARGE_ZSET, Fill.LARGE_LIST)

    def blocks(self, count: int) -> Iterator[tuple[bytes, int]]:
        """Requests that add `count` things, and how many commands are in each block."""
        for start in range(0, count, BLOCK_THINGS):
            numbers = range(start, min(start + BLOCK_THINGS, count))
            commands = [_request(words) for words in self._commands(numbers)]
            yield b"".join(commands), len(commands)

    def _commands(self, numbers: range) -> Iterator[list[bytes]]:
        if self is Fill.STRINGS:
            for n in numbers:
                yield [b"SET", b"k:%d" % n, b"x" * 32]
        elif self is Fill.HASHES:
            for n in numbers:
                fields = [word for f in range(10) for word in (b"f%d" % f, b"%d" % ((n * 31 + f * 977) % 10_000))]
                yield [b"HSET", b"row:%08d" % n, *fields]
        elif self is Fill.ZSETS:
            for n in numbers:
                members = [word for m in range(20) for word in (b"%d" % (n % 1000 + m), b"member:%d" % m)]
                yield [b"ZADD", b"zset:%d" % n, *members]
        else:
            for start in range(numbers.start, numbers.stop, PER_COMMAND):
                chunk = range(start, min(start + PER_COMMAND, numbers.stop))
                if self is Fill.LARGE_ZSET:
                    # Scores in no order, each member once.
                    pairs = [word for n in chunk for word in (b"%d" % (n * 7_919 % 10_000_019), b"m:%d" % n)]
                    yield [b"ZADD", b"large", *pairs]
                else:
                    yield [b"RPUSH", b"large", *(b"e%07d" % n for n in chunk)]


def _request(words: list[bytes]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
