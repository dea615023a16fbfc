"""Lists."""

from differential.draw import INT64_MIN, Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("list")


def side(draw: Draw) -> str:
    """An end of a list."""
    return draw.case(draw.one(("LEFT", "RIGHT"))) if draw.chance(0.97) else draw.one(("MIDDLE", ""))


def element(draw: Draw) -> bytes:
    """Mostly one of a few, so that LREM, LINSERT and LPOS find them."""
    return draw.one((b"a", b"b", b"c", b"1", b"-5")) if draw.chance(0.6) else draw.word()


@family.draws("LPUSH", "RPUSH", weight=3)
def push(draw: Draw, name: str) -> Command:
    count = draw.number(100, 300) if draw.chance(0.01) else draw.number(1, 5)
    return command(name, draw.key("list"), *(element(draw) for _ in range(count)))


@family.draws("LPUSHX", "RPUSHX")
def push_to_existing(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), *draw.many(lambda: element(draw), 1, 4))


@family.draws("LPOP", "RPOP", weight=1.5)
def pop(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), *draw.maybe(0.4, draw.count()))


@family.draws("LLEN")
def llen(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"))


@family.draws("LRANGE", weight=2)
def lrange(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), draw.integer(), draw.integer())


@family.draws("LTRIM", weight=0.7)
def ltrim(draw: Draw, name: str) -> Command:
    if draw.chance(0.5):
        return command(name, draw.key("list"), draw.number(0, 2), draw.number(-3, -1))
    return command(name, draw.key("list"), draw.integer(), draw.integer())


@family.draws("LINDEX")
def lindex(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), draw.integer())


@family.draws("LSET", weight=1.5)
def lset(draw: Draw, name: str) -> Command | Step:
    index = draw.integer()
    if draw.peer.level == (7, 0):
        return command(name, draw.key("list"), index, element(draw))
    # Newer peers take the lower 32 bits of an index.
    low = index if not isinstance(index, int) or abs(index) < 1 << 31 else 10_000
    return step(command(name, draw.key("list"), low, element(draw)))


@family.draws("LINSERT", weight=2)
def linsert(draw: Draw, name: str) -> Command:
    where = draw.case(draw.one(("BEFORE", "AFTER"))) if draw.chance(0.97) else "BESIDE"
    return command(name, draw.key("list"), where, element(draw), element(draw))


@family.draws("LREM", weight=1.5)
def lrem(draw: Draw, name: str) -> Command:
    count = draw.integer(-3, 3)
    # Refused, but for 7.0, which then has other data.
    return command(name, draw.key("list"), -3 if count == INT64_MIN else count, element(draw))


@family.draws("LPOS", weight=2)
def lpos(draw: Draw, name: str) -> Command:
    options = [
        draw.maybe(0.4, draw.case("RANK"), draw.integer(-3, 3)),
        draw.maybe(0.4, draw.case("COUNT"), draw.count(4)),
        draw.maybe(0.3, draw.case("MAXLEN"), draw.count(20)),
    ]
    draw.random.shuffle(options)
    return command(name, draw.key("list"), element(draw), *(part for option in options for part in option))


@family.draws("RPOPLPUSH")
def rpoplpush(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), draw.key("list"))


@family.draws("LMOVE", weight=2)
def lmove(draw: Draw, name: str) -> Command:
    return command(name, draw.key("list"), draw.key("list"), side(draw), side(draw))


def numbered(draw: Draw, keys: list[bytes]) -> list:
    """The keys with their number before them, which is wrong now and then."""
    number = len(keys) if draw.chance(0.94) else draw.one((0, -1, len(keys) + 1, len(keys) - 1, "abc", "", 1 << 40))
    return [number, *keys]


@family.draws("LMPOP", weight=1.5)
def lmpop(draw: Draw, name: str) -> Command:
    keys = numbered(draw, draw.keys("list", 1, 4))
    return command(name, *keys, side(draw), *draw.maybe(0.5, draw.case("COUNT"), draw.count()))
