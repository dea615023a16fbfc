"""Sets."""

from differential.draw import Draw
from differential.families import Family
from differential.families.lists import numbered
from differential.steps import Command, Step, command, drawn, in_any_order, step, whole_scan

family = Family("set")


def member(draw: Draw) -> bytes:
    """Integers, so that sets remain sets of integers for a while, and other members."""
    return draw.small_integer() if draw.chance(0.7) else draw.word()


@family.draws("SADD", weight=5)
def sadd(draw: Draw, name: str) -> Command:
    if draw.chance(0.01):
        start = draw.number(0, 1000)
        return command(name, draw.key("set"), *range(start, start + draw.number(100, 700)))
    only_integers = draw.chance(0.6)
    drawn_member = draw.small_integer if only_integers else lambda: member(draw)
    return command(name, draw.key("set"), *draw.many(drawn_member, 1, 8))


@family.draws("SREM", weight=2)
def srem(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), *draw.many(lambda: member(draw), 1, 5))


@family.draws("SISMEMBER")
def sismember(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), member(draw))


@family.draws("SMISMEMBER")
def smismember(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), *draw.many(lambda: member(draw), 1, 5))


@family.draws("SMEMBERS")
def smembers(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), agree=in_any_order)


@family.draws("SCARD")
def scard(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"))


@family.draws("SPOP")
def spop(draw: Draw, name: str) -> Command | Step:
    key = draw.key("set")
    if draw.chance(0.3):
        return step(command(name, key, 1000, agree=in_any_order))
    if draw.chance(0.1):
        return step(command(name, key, draw.one((0, -1, "abc", "", "1.5"))))
    popped = command(name, key, *draw.maybe(0.6, draw.number(1, 6)), agree=drawn(distinct=True))
    return step(command("SMEMBERS", key, agree=in_any_order), popped, command("SCARD", key), command("DEL", key))


@family.draws("SRANDMEMBER")
def srandmember(draw: Draw, name: str) -> Step:
    key = draw.key("set")
    count = draw.count() if draw.chance(0.8) else -draw.number(1, 10)
    distinct = isinstance(count, int) and count > 0
    taken = command(name, key, *draw.maybe(0.7, count), agree=drawn(distinct=distinct))
    return step(command("SMEMBERS", key, agree=in_any_order), taken)


@family.draws("SMOVE", weight=2)
def smove(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), draw.key("set"), member(draw))


@family.draws("SINTER", "SUNION", "SDIFF")
def combine(draw: Draw, name: str) -> Command:
    return command(name, *draw.keys("set", 1, 4), agree=in_any_order)


@family.draws("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE")
def combine_and_store(draw: Draw, name: str) -> Command:
    return command(name, draw.key("set"), *draw.keys("set", 1, 4))


@family.draws("SINTERCARD")
def sintercard(draw: Draw, name: str) -> Command:
    return command(name, *numbered(draw, draw.keys("set", 1, 4)), *draw.maybe(0.4, draw.case("LIMIT"), draw.count(5)))


@family.draws("SSCAN")
def sscan(draw: Draw, name: str) -> Step:
    count = 10_000 if draw.chance(0.9) else draw.one((0, -1, "abc"))
    options = [*draw.maybe(0.4, draw.case("MATCH"), draw.one(("*", "1*", "[ab]*", "?", ""))), "COUNT", count]
    return step(command(name, draw.key("set"), draw.one((0, 0, 0, 0, "abc")), *options, agree=whole_scan))
