"""Streams. Ids are given fully or in part: those made of the time would not agree. Beside 7.0 a consumer is
created before it reads or claims: since 7.2 it is created even if it gets nothing.
"""

from differential.draw import Draw
from differential.families import Family
from differential.reply import Tree, children
from differential.steps import Agreement, Command, Step, command, step

family = Family("stream")
GROUPS = (b"g", b"h")
CONSUMERS = (b"c1", b"c2", b"c3")
BOUNDS = (b"-", b"+", b"0", b"(1", b"(0-0", b"(+", b"18446744073709551615-18446744073709551615", b"(", b"5-", b"", b"$")
# No entry is ever idle for so long.
FOREVER_MS = 10**9


def identity(draw: Draw) -> bytes:
    """An id, mostly a low one, so that few are refused; sometimes none."""
    luck = draw.random.random()
    if luck < 0.02:
        return draw.one((b"0-0", b"-1", b"abc", b"", b"1-2-3", b"18446744073709551616", b"5-x"))
    ms = int(80 * draw.random.random() ** 3)
    return b"%d" % ms if luck < 0.2 else b"%d-%d" % (ms, draw.number(0, 4))


def new_identity(draw: Draw) -> bytes:
    """An id for a new entry."""
    return b"%d-*" % int(80 * draw.random.random() ** 3) if draw.chance(0.6) else identity(draw)


def bound(draw: Draw) -> bytes:
    """An end of a range."""
    luck = draw.random.random()
    if luck < 0.4:
        return draw.one((b"-", b"+"))
    return draw.one(BOUNDS) if luck < 0.5 else draw.one((b"", b"(")) + identity(draw)


def group(draw: Draw) -> bytes:
    return draw.one(GROUPS) if draw.chance(0.97) else b"nobody"


def trimming(draw: Draw) -> list:
    """MAXLEN or MINID with their options. The effect of `~` depends on blocks, and on deletions from them:
    see `xtrim_about`.
    """
    how = draw.maybe(0.2, "=")
    if draw.chance(0.6):
        words = [draw.case("MAXLEN"), *how, draw.count(12)]
    else:
        words = [draw.case("MINID"), *how, identity(draw)]
    return [*words, *draw.maybe(0.05, draw.case("LIMIT"), draw.count()), *references(draw, 0.3)]


def with_consumer(draw: Draw, key: bytes, name: bytes, consumer: bytes, reading: Command) -> Step:
    if draw.peer.level > (7, 0):
        return step(reading)
    return step(command("XGROUP", "CREATECONSUMER", key, name, consumer), reading)


def references(draw: Draw, probability: float) -> list:
    """What happens to references to entries that go."""
    if draw.peer.level < (8, 2) or not draw.chance(probability):
        return []
    return [draw.case(draw.one(("KEEPREF", "DELREF", "ACKED", "ACKED")))]


def value(draw: Draw) -> bytes:
    """A word that is not an id, after a sign or a space: a spoilt command may use it as an id, and Redis
    accepts it.
    """
    word = draw.word()
    return b"1" if word in (b"+1", b" 1") else word


@family.draws("XADD", weight=12)
def xadd(draw: Draw, name: str) -> Command:
    options = [*draw.maybe(0.05, draw.case("NOMKSTREAM")), *(trimming(draw) if draw.chance(0.1) else [])]
    names = (b"a", b"b", b"field") if draw.chance(0.8) else (b"x", b"", b"other")
    pairs = draw.many(lambda: (draw.one(names), value(draw)), 1, 4)
    rest = [part for pair in pairs for part in pair]
    return command(name, draw.key("stream"), *options, new_identity(draw), *rest, *draw.maybe(0.02, "odd"))


@family.draws("XADD", weight=0.2)
def xadd_many(draw: Draw, name: str) -> Step:
    """More than a block holds."""
    key = draw.key("stream")
    entries = [command(name, key, b"40-*", "f", number) for number in range(draw.number(50, 250))]
    return step(*entries, command("XLEN", key))


@family.draws("XLEN")
def xlen(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"))


@family.draws("XRANGE", "XREVRANGE", weight=2)
def xrange(draw: Draw, name: str) -> Command:
    return command(
        name, draw.key("stream"), bound(draw), bound(draw), *draw.maybe(0.4, draw.case("COUNT"), draw.count())
    )


@family.draws("XDEL", weight=2)
def xdel(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"), *draw.many(lambda: identity(draw), 1, 8))


@family.draws("XDELEX", weight=2)
def xdelex(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"), *references(draw, 0.8), *listed(draw))


@family.draws("XACKDEL", weight=2)
def xackdel(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"), group(draw), *references(draw, 0.8), *listed(draw))


def listed(draw: Draw) -> list:
    """Ids with their number, which is sometimes wrong."""
    ids = draw.many(lambda: identity(draw), 1, 8)
    number = len(ids) if draw.chance(0.95) else draw.one((0, 1, -1, "abc", 9))
    return [draw.case("IDS"), number, *ids]


@family.draws("XTRIM")
def xtrim(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"), *(trimming(draw) if draw.chance(0.95) else ["LIMIT", 3]))


@family.draws("XTRIM", weight=0.3)
def xtrim_about(draw: Draw, name: str) -> Step:
    """A stream in whole blocks, without deletions."""
    key = draw.key("stream")
    kept = [draw.case("MAXLEN"), "~", draw.count(250)]
    above = [draw.case("MINID"), "~", b"40-%d" % draw.number(0, 250)]
    limit = draw.maybe(0.3, draw.case("LIMIT"), draw.count(250))
    return step(
        command("DEL", key),
        *(command("XADD", key, b"40-*", "f", number) for number in range(draw.number(50, 250))),
        command(name, key, *draw.one((kept, above)), *limit),
        command("XLEN", key),
    )


@family.draws("XSETID", weight=0.5)
def xsetid(draw: Draw, name: str) -> Step:
    """A stream with known deletions: since 7.2, no last id may be below a deleted one, which 7.0 accepts."""
    key = draw.key("stream")
    if draw.chance(0.2):
        return step(command(name, key, *draw.one(REFUSED_LAST_IDS)))
    entries = sorted({(draw.number(0, 80), draw.number(1, 4)) for _ in range(draw.number(0, 6))})
    deleted = [entry for entry in entries if draw.chance(0.3)]
    last = max([(draw.number(0, 90), draw.number(0, 4)), *deleted])
    return step(
        command("DEL", key),
        *(command("XADD", key, plain(entry), "f", draw.word()) for entry in entries),
        *(command("XGROUP", "CREATE", key, of, draw.one((b"$", b"0", plain(last)))) for of in GROUPS if entries),
        *(command("XDEL", key, *map(plain, deleted)) for _ in deleted[:1]),
        command(
            name,
            key,
            plain(last),
            *draw.maybe(0.5, draw.case("ENTRIESADDED"), draw.count(100)),
            *draw.maybe(0.4, draw.case("MAXDELETEDID"), plain((draw.number(0, 90), 0))),
        ),
        command("XINFO", "GROUPS", key),
        command("XINFO", "STREAM", key, agree=described),
    )


# For a key of any type.
REFUSED_LAST_IDS = (
    (b"abc",),
    (b"5-5", b"ENTRIESADDED"),
    (b"5-5", b"ENTRIESADDED", b"-1"),
    (b"5-5", b"ENTRIESADDED", b"many"),
    (b"5-5", b"MAXDELETEDID", b"9-0"),
    (b"5-5", b"MAXDELETEDID", b"5-"),
    (b"5-5", b"SINCE", b"1"),
)


def plain(entry: tuple[int, int]) -> bytes:
    """An id in full."""
    return b"%d-%d" % entry


@family.draws("XREAD", weight=2)
def xread(draw: Draw, name: str) -> Step:
    keys = draw.keys("stream", 1, 3)
    odd = (b"$", b">", b"-", b"+") if draw.peer.level > (7, 0) else (b"$", b">", b"-")
    ids = [identity(draw) if draw.chance(0.9) else draw.one(odd) for _ in keys]
    options = [
        *draw.maybe(0.3, draw.case("COUNT"), draw.count()),
        *draw.maybe(0.1, draw.case("BLOCK"), draw.one((1, 5, -1, b"abc"))),
        *draw.maybe(0.02, draw.one(("NOACK", "NOW"))),
    ]
    return step(command(name, *options, draw.case("STREAMS"), *keys, *ids))


@family.draws("XGROUP", weight=3)
def xgroup(draw: Draw, name: str) -> Command | Step:
    key, of = draw.key("stream"), group(draw)
    match draw.number(0, 9):
        case 0 | 1 | 2 | 3:
            options = [*draw.maybe(0.5, draw.case("MKSTREAM")), *draw.maybe(0.2, "ENTRIESREAD", draw.count(20))]
            return command(name, draw.case("CREATE"), key, of, draw.one((b"$", b"0", identity(draw))), *options)
        case 4 | 5:
            options = draw.maybe(0.3, "ENTRIESREAD", draw.count(20))
            return command(name, draw.case("SETID"), key, of, draw.one((b"$", b"0", identity(draw))), *options)
        case 6:
            # Redis 8.2 goes on counting the position of the destroyed group, until one at a lower position goes.
            renewed = [command(name, "CREATE", key, b"renewed", b"0"), command(name, "DESTROY", key, b"renewed")]
            return step(command(name, "DESTROY", key, of), *renewed)
        case 7:
            return command(name, "CREATECONSUMER", key, of, draw.one(CONSUMERS))
        case _:
            return command(name, "DELCONSUMER", key, of, draw.one(CONSUMERS))


@family.draws("XREADGROUP", weight=6)
def xreadgroup(draw: Draw, name: str) -> Step:
    key, of, consumer = draw.key("stream"), group(draw), draw.one(CONSUMERS)
    which = b">" if draw.chance(0.75) else draw.one((b"0", identity(draw), b"$"))
    options = [
        *draw.maybe(0.6, draw.case("COUNT"), draw.count()),
        *draw.maybe(0.05, draw.case("BLOCK"), draw.one((1, -1, b"abc"))),
        *draw.maybe(0.1, draw.case("NOACK")),
    ]
    reading = command(name, draw.case("GROUP"), of, consumer, *options, draw.case("STREAMS"), key, which)
    return with_consumer(draw, key, of, consumer, reading)


@family.draws("XACK", weight=2)
def xack(draw: Draw, name: str) -> Command:
    return command(name, draw.key("stream"), group(draw), *draw.many(lambda: identity(draw), 1, 8))


def without(*positions: int) -> Agreement:
    """The same except for times in each row."""

    def masked(tree: Tree) -> object:
        rows = children(tree)
        if rows is None:
            return tree
        kept = [children(row) for row in rows]
        return [row and [part for at, part in enumerate(row) if at not in positions] for row in kept]

    return lambda redis, sheaf, _: redis[0] == sheaf[0] and masked(redis) == masked(sheaf)


@family.draws("XPENDING", weight=3)
def xpending(draw: Draw, name: str) -> Command:
    key, of = draw.key("stream"), group(draw)
    if draw.chance(0.4):
        return command(name, key, of)
    idle = draw.maybe(0.2, draw.case("IDLE"), draw.one((0, FOREVER_MS, -1, b"abc")))
    return command(
        name,
        key,
        of,
        *idle,
        bound(draw),
        bound(draw),
        draw.count(),
        *draw.maybe(0.4, draw.one(CONSUMERS)),
        agree=without(2),
    )


@family.draws("XCLAIM", weight=2)
def xclaim(draw: Draw, name: str) -> Step:
    key, of, consumer = draw.key("stream"), group(draw), draw.one(CONSUMERS)
    options = [
        *draw.maybe(0.2, draw.case("IDLE"), draw.count(1000)),
        *draw.maybe(0.1, draw.case("TIME"), draw.count(1000)),
        *draw.maybe(0.3, draw.case("RETRYCOUNT"), draw.count()),
        *draw.maybe(0.3, draw.case("FORCE")),
        *draw.maybe(0.3, draw.case("JUSTID")),
        *draw.maybe(0.1, draw.case("LASTID"), identity(draw)),
        *draw.maybe(0.02, "NOW"),
    ]
    ids = draw.many(lambda: identity(draw), 1, 6)
    idle = draw.one((0, 0, 0, FOREVER_MS, -1, b"abc"))
    return with_consumer(draw, key, of, consumer, command(name, key, of, consumer, idle, *ids, *options))


@family.draws("XAUTOCLAIM", weight=2)
def xautoclaim(draw: Draw, name: str) -> Step:
    key, of, consumer = draw.key("stream"), group(draw), draw.one(CONSUMERS)
    options = [*draw.maybe(0.5, draw.case("COUNT"), draw.count()), *draw.maybe(0.3, draw.case("JUSTID"))]
    idle = draw.one((0, 0, 0, FOREVER_MS, b"abc"))
    claiming = command(name, key, of, consumer, idle, draw.one((b"-", b"0", bound(draw))), *options)
    return with_consumer(draw, key, of, consumer, claiming)


def described(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """The same except for the shape of the tree."""

    def fields(tree: Tree) -> object:
        parts = children(tree)
        if parts is None:
            return tree
        return [pair for pair in zip(parts[::2], parts[1::2], strict=True) if "radix" not in repr(pair[0])]

    return redis[0] == sheaf[0] and fields(redis) == fields(sheaf)


@family.draws("XINFO", weight=3)
def xinfo(draw: Draw, name: str) -> Command:
    key = draw.key("stream")
    if draw.chance(0.6):
        return command(name, draw.case("GROUPS"), key)
    return command(name, draw.case("STREAM"), key, agree=described)
