"""Sorted sets. Ranges by name use keys of their own, `lex:*`, whose members all have the same score."""

from differential.draw import Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.families.lists import numbered
from differential.steps import Command, Step, command, drawn, exactly, step, whole_scan, whole_scan_of_pairs

family = Family("zset")
LEX_BOUNDS = (b"-", b"+", b"[a", b"(a", b"[c", b"(c", b"[foo", b"(m3", b"[m5", b"[", b"(", b"a", b"", b"[\xff", b"-x")
SCORE_BOUNDS = (b"-inf", b"+inf", b"inf", b"(0", b"(3", b"(-5", b"0", b"5", b"-10", b"10", b"(inf", b"1.5", b"(1.5")
NO_BOUNDS = (b"", b"(", b"abc", b"[1", b"nan", b"(nan", b"1 ", b"((1")


def member(draw: Draw) -> bytes:
    """Mostly one of few."""
    return b"m%d" % draw.number(0, 12) if draw.chance(0.7) else draw.word()


def lex_key(draw: Draw) -> str:
    """A key whose members have one score, or one that holds a string."""
    return f"lex:{draw.number(0, 2)}" if draw.chance(0.97) else "lex:text"


def score_bounds(draw: Draw) -> list:
    """A range of scores."""
    return [draw.one(SCORE_BOUNDS) if draw.chance(0.97) else draw.one(NO_BOUNDS) for _ in range(2)]


def lex_bounds(draw: Draw) -> list:
    """A range of names."""
    return [draw.one(LEX_BOUNDS), draw.one(LEX_BOUNDS)]


def limit(draw: Draw, probability: float = 0.4, offsets: tuple = ()) -> tuple:
    """LIMIT, with one of these offsets or any, or nothing."""
    offset = draw.one(offsets) if offsets else draw.integer(-2, 4)
    return draw.maybe(probability, draw.case("LIMIT"), offset, draw.integer(-2, 6))


@family.draws("ZADD", weight=6)
def zadd(draw: Draw, name: str) -> Command:
    options = [
        *draw.maybe(0.15, draw.case("NX")),
        *draw.maybe(0.15, draw.case("XX")),
        *draw.maybe(0.12, draw.case("GT")),
        *draw.maybe(0.12, draw.case("LT")),
        *draw.maybe(0.2, draw.case("CH")),
        *draw.maybe(0.1, draw.case("INCR")),
    ]
    draw.random.shuffle(options)
    if draw.chance(0.01):
        pairs = [(draw.number(-1000, 1000), b"m%d" % number) for number in range(draw.number(30, 200))]
    else:
        pairs = draw.many(lambda: (draw.score(), member(draw)), 1, 1 if "INCR" in options else 5)
    return command(name, draw.key("zset"), *options, *(part for pair in pairs for part in pair), *draw.maybe(0.02, 1))


@family.draws("ZADD", weight=2)
def zadd_by_name(draw: Draw, name: str) -> Step:
    if draw.chance(0.02):
        return step(command("SET", "lex:text", "v"))
    members = draw.many(lambda: member(draw), 1, 6)
    return step(command(name, f"lex:{draw.number(0, 2)}", *(part for found in members for part in (0, found))))


@family.draws("ZINCRBY", weight=2)
def zincrby(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), draw.score(), member(draw))


@family.draws("ZREM", weight=2)
def zrem(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), *draw.many(lambda: member(draw), 1, 5))


@family.draws("ZSCORE")
def zscore(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), member(draw))


@family.draws("ZRANK", "ZREVRANK")
def zrank(draw: Draw, name: str) -> Step:
    # Sent unchanged: WITHSCORE exists since 7.2, so an additional argument is a different error there.
    scored = draw.maybe(0.3, draw.case("WITHSCORE")) if draw.peer.level > (7, 0) else ()
    return step(command(name, draw.key("zset"), *draw.maybe(0.98, member(draw), *scored)))


@family.draws("ZMSCORE")
def zmscore(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), *draw.many(lambda: member(draw), 1, 5))


@family.draws("ZCARD")
def zcard(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"))


@family.draws("ZCOUNT", "ZREMRANGEBYSCORE")
def by_score(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), *score_bounds(draw))


@family.draws("ZLEXCOUNT", "ZREMRANGEBYLEX")
def by_lex(draw: Draw, name: str) -> Command:
    return command(name, lex_key(draw), *lex_bounds(draw))


@family.draws("ZREMRANGEBYRANK")
def by_rank(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), draw.integer(), draw.integer())


@family.draws("ZRANGE", "ZRANGESTORE", weight=3)
def zrange(draw: Draw, name: str) -> Command:
    by = draw.one(("", "BYSCORE", "BYLEX"))
    key: object = lex_key(draw) if by == "BYLEX" else draw.key("zset")
    bounds = {"": lambda: [draw.integer(), draw.integer()], "BYSCORE": lambda: score_bounds(draw)}
    options = [
        draw.maybe(1 if by else 0, draw.case(by)),
        draw.maybe(0.3, draw.case("REV")),
        # A negative offset of Valkey would store other data.
        limit(draw, 0.4 if by else 0.03, offsets=(0, 1, 2, 4, "x") if name == "ZRANGESTORE" else ()),
        draw.maybe(0.4 if name == "ZRANGE" and by != "BYLEX" else 0.02, draw.case("WITHSCORES")),
    ]
    draw.random.shuffle(options)
    target = [draw.key("zset")] if name == "ZRANGESTORE" else []
    chosen = bounds.get(by, lambda: lex_bounds(draw))()
    return command(name, *target, key, *chosen, *(part for option in options for part in option))


@family.draws("ZREVRANGE")
def zrevrange(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), draw.integer(), draw.integer(), *draw.maybe(0.5, draw.case("WITHSCORES")))


@family.draws("ZRANGEBYSCORE", "ZREVRANGEBYSCORE")
def zrangebyscore(draw: Draw, name: str) -> Command:
    options = [limit(draw), draw.maybe(0.5, draw.case("WITHSCORES"))]
    draw.random.shuffle(options)
    return command(name, draw.key("zset"), *score_bounds(draw), *(part for option in options for part in option))


@family.draws("ZRANGEBYLEX", "ZREVRANGEBYLEX")
def zrangebylex(draw: Draw, name: str) -> Command:
    return command(name, lex_key(draw), *lex_bounds(draw), *limit(draw))


@family.draws("ZPOPMIN", "ZPOPMAX")
def zpop(draw: Draw, name: str) -> Command:
    return command(name, draw.key("zset"), *draw.maybe(0.5, draw.count(4)))


@family.draws("ZMPOP")
def zmpop(draw: Draw, name: str) -> Command:
    end = draw.case(draw.one(("MIN", "MAX"))) if draw.chance(0.97) else "MID"
    return command(
        name, *numbered(draw, draw.keys("zset", 1, 3)), end, *draw.maybe(0.5, draw.case("COUNT"), draw.count())
    )


def inputs(draw: Draw) -> list[bytes]:
    """Keys to combine: sets count as sorted sets with scores of 1."""
    return draw.many(lambda: draw.key("zset" if draw.chance(0.8) else "set"), 1, 4)


def combination(draw: Draw, name: str, keys: list[bytes]) -> list:
    """The options for combining these keys."""
    if name.startswith("ZDIFF"):
        return []
    many = len(keys) if draw.chance(0.96) else len(keys) + 1
    weights = [draw.one((b"1", b"2", b"-1", b"0.5", b"0", b"inf")) for _ in range(many)]
    if draw.chance(0.03):
        weights[0] = draw.one((b"nan", b"abc", b""))
    aggregate = draw.case(draw.one(("SUM", "MIN", "MAX"))) if draw.chance(0.97) else "AVG"
    return [*draw.maybe(0.4, draw.case("WEIGHTS"), *weights), *draw.maybe(0.4, draw.case("AGGREGATE"), aggregate)]


@family.draws("ZUNION", "ZINTER", "ZDIFF")
def combine(draw: Draw, name: str) -> Command:
    keys = inputs(draw)
    options = combination(draw, name, keys)
    return command(name, *numbered(draw, keys), *options, *draw.maybe(0.6, draw.case("WITHSCORES")))


@family.draws("ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE", weight=1.5)
def combine_and_store(draw: Draw, name: str) -> Command:
    keys = inputs(draw)
    return command(name, draw.key("zset"), *numbered(draw, keys), *combination(draw, name, keys))


@family.draws("ZINTERCARD")
def zintercard(draw: Draw, name: str) -> Command:
    return command(name, *numbered(draw, inputs(draw)), *draw.maybe(0.4, draw.case("LIMIT"), draw.count(5)))


@family.draws("ZRANDMEMBER")
def zrandmember(draw: Draw, name: str) -> Step:
    key = draw.key("zset")
    count = draw.count() if draw.chance(0.7) else -draw.number(1, 10)
    distinct = isinstance(count, int) and count > 0
    if draw.chance(0.5):
        whole = command("ZRANGE", key, 0, -1, "WITHSCORES", agree=exactly)
        return step(whole, command(name, key, count, "WITHSCORES", agree=drawn(pairs=True, distinct=distinct)))
    taken = command(name, key, *draw.maybe(0.7, count), agree=drawn(distinct=distinct))
    return step(command("ZRANGE", key, 0, -1), taken)


@family.draws("ZSCAN")
def zscan(draw: Draw, name: str) -> Step:
    count = 10_000 if draw.chance(0.9) else draw.one((0, -1, "abc"))
    options = [*draw.maybe(0.4, draw.case("MATCH"), draw.one(("*", "m1*", "m?", "[ab]*", ""))), "COUNT", count]
    cursor = draw.one((0, 0, 0, 0, "abc"))
    if draw.peer is VALKEY_9_1 and draw.chance(0.2):
        return step(command(name, draw.key("zset"), cursor, *options, draw.case("NOSCORES"), agree=whole_scan))
    return step(command(name, draw.key("zset"), cursor, *options, agree=whole_scan_of_pairs))
