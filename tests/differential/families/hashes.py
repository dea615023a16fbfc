"""Hashes."""

from differential.draw import INT64_MAX, Draw
from differential.families import Family
from differential.steps import (
    Command,
    Step,
    command,
    drawn,
    in_any_order,
    pairs_in_any_order,
    step,
    whole_scan_of_pairs,
)

family = Family("hash")


def field(draw: Draw) -> bytes:
    """Mostly one of few."""
    return b"f%d" % draw.number(0, 12) if draw.chance(0.7) else draw.word()


@family.draws("HSET", weight=5)
def hset(draw: Draw, name: str) -> Command:
    if draw.chance(0.01):
        pairs = [(b"f%d" % number, draw.word()) for number in range(draw.number(30, 200))]
    else:
        pairs = draw.many(lambda: (field(draw), draw.word()), 1, 5)
    return command(name, draw.key("hash"), *(part for pair in pairs for part in pair), *draw.maybe(0.02, "alone"))


@family.draws("HMSET")
def hmset(draw: Draw, name: str) -> Command:
    pairs = draw.many(lambda: (field(draw), draw.word()), 1, 4)
    return command(name, draw.key("hash"), *(part for pair in pairs for part in pair), *draw.maybe(0.02, "alone"))


@family.draws("HSETNX")
def hsetnx(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), field(draw), draw.word())


@family.draws("HGET", "HEXISTS", "HSTRLEN")
def of_one_field(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), field(draw))


@family.draws("HMGET")
def hmget(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), *draw.many(lambda: field(draw), 1, 6))


@family.draws("HDEL", weight=2)
def hdel(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), *draw.many(lambda: field(draw), 1, 5))


@family.draws("HLEN")
def hlen(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"))


@family.draws("HGETALL", weight=2)
def hgetall(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), agree=pairs_in_any_order)


@family.draws("HKEYS", "HVALS")
def one_side(draw: Draw, name: str) -> Command:
    return command(name, draw.key("hash"), agree=in_any_order)


@family.draws("HINCRBY", weight=2)
def hincrby(draw: Draw, name: str) -> Command:
    by = draw.integer(-1000, 1000) if draw.chance(0.95) else draw.one((INT64_MAX, -INT64_MAX))
    return command(name, draw.key("hash"), field(draw), by)


@family.draws("HINCRBYFLOAT", weight=1.5)
def hincrbyfloat(draw: Draw, name: str) -> Step:
    if draw.chance(0.5):
        # Starts from a value that is exact in binary, and stays exact.
        return step(command(name, "floats", draw.one("abc"), draw.binary_fraction()))
    # Sums that need more digits than 64 bits differ on purpose: they are not kept.
    key, of = draw.key("hash"), field(draw)
    more = b"%.3f" % draw.random.uniform(-500, 500)
    if draw.chance(0.2):
        more = draw.one((b"1e400", b"1e308", b"1e-20", b"inf", b"-inf", b"0x10", b"", b"abc"))
    start = command("HSET", key, of, b"%.3f" % draw.random.uniform(-500, 500))
    return step(*draw.maybe(0.5, start), command(name, key, of, more), command("SET", key, "v"), command("DEL", key))


@family.draws("HRANDFIELD")
def hrandfield(draw: Draw, name: str) -> Step:
    key = draw.key("hash")
    count = draw.count() if draw.chance(0.7) else -draw.number(1, 10)
    distinct = isinstance(count, int) and count > 0
    if draw.chance(0.5):
        whole = command("HGETALL", key, agree=pairs_in_any_order)
        return step(whole, command(name, key, count, "WITHVALUES", agree=drawn(pairs=True, distinct=distinct)))
    whole = command("HKEYS", key, agree=in_any_order)
    return step(whole, command(name, key, *draw.maybe(0.7, count), agree=drawn(distinct=distinct)))


@family.draws("HSCAN")
def hscan(draw: Draw, name: str) -> Step:
    count = 10_000 if draw.chance(0.9) else draw.one((0, -1, "abc"))
    options = [*draw.maybe(0.4, draw.case("MATCH"), draw.one(("*", "f1*", "f?", "[ab]*", ""))), "COUNT", count]
    cursor = draw.one((0, 0, 0, 0, "abc"))
    return step(command(name, draw.key("hash"), cursor, *options, agree=whole_scan_of_pairs))
