"""Fields of hashes that expire, in keys of their own. No field expires within a round, but for points in the
past.
"""

from differential.draw import Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.reply import Tree, children
from differential.steps import TTL_TOLERANCE_MS, Agreement, Command, Step, command, in_any_order, pairs_in_any_order, step

family = Family("expiring field")
KEYS = (b"expiring:0", b"expiring:1", b"expiring:2")
FIELDS = tuple(b"f%d" % number for number in range(8))


def key(draw: Draw) -> bytes:
    return draw.one(KEYS) if draw.chance(0.97) else draw.one((b"string:0", b"nothing"))


def listed(draw: Draw) -> list:
    """Fields with their number, which is sometimes wrong."""
    fields = draw.many(lambda: draw.one(FIELDS), 1, 4)
    number = len(fields) if draw.chance(0.96) else draw.one((0, -1, "abc", 9))
    return [draw.case("FIELDS"), number, *fields]


def points_within(tolerance: int) -> Agreement:
    """Points in time, or times to live, one for each field."""

    def close(left: Tree, right: Tree) -> bool:
        if left == right or left[0] != b":" or right[0] != b":":
            return left == right
        return min(int(left[1]), int(right[1])) > 0 and abs(int(left[1]) - int(right[1])) <= tolerance

    def agree(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
        left, right = children(redis), children(sheaf)
        return left is not None and right is not None and len(left) == len(right) and all(map(close, left, right))

    return agree


@family.draws("HSET", weight=4)
def hset(draw: Draw, name: str) -> Step:
    pairs = draw.many(lambda: (draw.one(FIELDS), draw.word()), 1, 4)
    return step(command(name, draw.one(KEYS), *(part for pair in pairs for part in pair)))


@family.draws("HDEL", "HGET", "HMGET", "HEXISTS", weight=0.5)
def of_field(draw: Draw, name: str) -> Step:
    return step(command(name, draw.one(KEYS), draw.one(FIELDS)))


@family.draws("HINCRBY", "HSETNX", weight=0.5)
def change(draw: Draw, name: str) -> Step:
    return step(command(name, draw.one(KEYS), draw.one(FIELDS), draw.number(0, 9)))


@family.draws("HLEN", "HGETALL", "HVALS", weight=0.7)
def whole(draw: Draw, name: str) -> Step:
    agree = {"HGETALL": pairs_in_any_order, "HVALS": in_any_order}.get(name)
    return step(command(name, draw.one(KEYS), agree=agree))


@family.draws("DEL", "PERSIST", weight=0.2)
def of_key(draw: Draw, name: str) -> Step:
    return step(command(name, draw.one(KEYS)))


@family.draws("RENAME", "COPY", weight=0.2)
def to_key(draw: Draw, name: str) -> Step:
    return step(command(name, draw.one(KEYS), draw.one(KEYS), *(["REPLACE"] if name == "COPY" else [])))


@family.draws("HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", weight=2)
def expire(draw: Draw, name: str) -> Step:
    at = {
        "HEXPIRE": draw.far_seconds(),
        "HPEXPIRE": draw.far_milliseconds(),
        "HEXPIREAT": draw.future_s(),
        "HPEXPIREAT": draw.future_ms(),
    }[name]
    if draw.chance(0.1):
        # Valkey takes points that are too far for Redis.
        far = "" if draw.peer is VALKEY_9_1 else 1 << 62
        at = draw.one((0, -1, "abc", "", far, 1 if name.endswith("AT") else 0))
    condition = draw.maybe(0.4, draw.case(draw.one(("NX", "XX", "GT", "LT", "NO"))))
    return step(command(name, key(draw), at, *condition, *listed(draw)))


@family.draws("HEXPIRETIME", "HPEXPIRETIME", "HTTL", "HPTTL", weight=1.5)
def expiry(draw: Draw, name: str) -> Command:
    tolerance = 2 if name in ("HEXPIRETIME", "HTTL") else TTL_TOLERANCE_MS
    return command(name, key(draw), *listed(draw), agree=points_within(tolerance))


@family.draws("HPERSIST", "HGETDEL", weight=1)
def take(draw: Draw, name: str) -> Command:
    return command(name, key(draw), *listed(draw))


def option(draw: Draw) -> list:
    """A time to live or another treatment of it."""
    luck = draw.number(0, 5)
    if luck == 0:
        return [draw.case("EX"), draw.one((draw.far_seconds(), draw.far_seconds(), "abc", 0, -1))]
    if luck == 1:
        return [draw.case("PXAT"), draw.one((draw.future_ms(), draw.future_ms(), 0, ""))]
    return [[draw.case("PX"), draw.far_milliseconds()], [draw.case("EXAT"), draw.future_s()], [], []][luck - 2]


@family.draws("HGETEX", weight=1)
def hgetex(draw: Draw, name: str) -> Step:
    words = [draw.case("PERSIST")] if draw.chance(0.2) else option(draw)
    return step(command(name, key(draw), *words, *listed(draw)))


@family.draws("HSETEX", weight=1.5)
def hsetex(draw: Draw, name: str) -> Step:
    pairs = draw.many(lambda: (draw.one(FIELDS), draw.word()), 1, 3)
    number = len(pairs) if draw.chance(0.96) else draw.one((0, -1, "abc", 9))
    words = [draw.case("KEEPTTL")] if draw.chance(0.2) else option(draw)
    condition = draw.maybe(0.3, draw.case(draw.one(("FNX", "FXX"))))
    return step(
        command(name, key(draw), *condition, *words, draw.case("FIELDS"), number, *(part for pair in pairs for part in pair))
    )
