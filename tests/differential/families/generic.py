"""Keys of any type: type, expiry, copies and moves."""

from differential.draw import INT64_MAX, INT64_MIN, Draw
from differential.families import Family
from differential.steps import (
    TTL_TOLERANCE_MS,
    TTL_TOLERANCE_S,
    Command,
    Step,
    command,
    drawn,
    in_any_order,
    step,
    whole_scan,
    within,
)

family = Family("generic")
DATABASES = 3
PATTERNS = ("*", "list:*", "s*:[01]", "*:?", "?ash:*", "[^s]*:0", "", "nothing*", "*[", "\\*", "zset:[0-2]", "*{tag}*")
KINDS = ("string", "list", "set", "zset", "hash", "stream", "LIST", "nothing", "")


@family.draws("DEL", "UNLINK", "EXISTS", "TOUCH")
def counting(draw: Draw, name: str) -> Command:
    return command(name, *draw.many(draw.any_key, 1, 5))


@family.draws("TYPE", "PERSIST")
def of_one_key(draw: Draw, name: str) -> Command:
    return command(name, draw.any_key())


@family.draws("TTL", "EXPIRETIME")
def in_seconds(draw: Draw, name: str) -> Command:
    return command(name, draw.any_key(), agree=within(TTL_TOLERANCE_S))


@family.draws("PTTL", "PEXPIRETIME")
def in_milliseconds(draw: Draw, name: str) -> Command:
    return command(name, draw.any_key(), agree=within(TTL_TOLERANCE_MS))


@family.draws("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", weight=1.5)
def expire(draw: Draw, name: str) -> Command:
    sound = {
        "EXPIRE": draw.far_seconds,
        "PEXPIRE": draw.far_milliseconds,
        "EXPIREAT": draw.future_s,
        "PEXPIREAT": draw.future_ms,
    }[name]()
    # A time in the past deletes; other arguments are refused.
    odd = (-1, INT64_MIN, "abc", "", "1.5", INT64_MAX, INT64_MAX // 1000 + 1, INT64_MIN // 1000 - 1)
    when = sound if draw.chance(0.88) else draw.one(odd)
    options = draw.many(lambda: draw.case(draw.one(("NX", "XX", "GT", "LT"))), 1, 2) if draw.chance(0.4) else ()
    return command(name, draw.any_key(), when, *options, *draw.maybe(0.02, "OFTEN"))


@family.draws("RENAME", "RENAMENX")
def rename(draw: Draw, name: str) -> Command:
    return command(name, draw.any_key(), draw.any_key())


@family.draws("COPY", weight=1.5)
def copy(draw: Draw, name: str) -> Command:
    database = draw.number(0, DATABASES - 1) if draw.chance(0.9) else draw.one((-1, 16, "abc", ""))
    options = [*draw.maybe(0.3, draw.case("DB"), database), *draw.maybe(0.5, draw.case("REPLACE"))]
    return command(name, draw.any_key(), draw.any_key(), *options)


@family.draws("MOVE")
def move(draw: Draw, name: str) -> Command:
    database = draw.number(0, DATABASES - 1) if draw.chance(0.9) else draw.one((-1, 16, "abc", ""))
    return command(name, draw.any_key(), database)


@family.draws("SELECT", weight=0.5)
def select(draw: Draw, name: str) -> Command | Step:
    if draw.chance(0.2):
        return step(command(name, draw.one((-1, 16, "abc", "", "1.0"))))
    return step(command(name, draw.one((0, 0, 0, 1, 2))))


@family.draws("SWAPDB", weight=0.2)
def swapdb(draw: Draw, name: str) -> Step:
    first, second = (
        draw.number(0, DATABASES - 1) if draw.chance(0.9) else draw.one((-1, 16, "abc", "")) for _ in range(2)
    )
    return step(command(name, first, second))


@family.draws("FLUSHDB", "FLUSHALL", weight=0.02)
def flush(draw: Draw, name: str) -> Step:
    return step(command(name, *draw.maybe(0.5, draw.one(("ASYNC", "SYNC", "NEVER")))))


@family.draws("DBSIZE", weight=0.5)
def dbsize(_draw: Draw, name: str) -> Command:
    return command(name)


@family.draws("KEYS", weight=0.5)
def keys(draw: Draw, name: str) -> Command:
    return command(name, draw.one(PATTERNS), agree=in_any_order)


@family.draws("RANDOMKEY", weight=0.3)
def randomkey(_draw: Draw, name: str) -> Step:
    return step(command("KEYS", "*", agree=in_any_order), command(name, agree=drawn()))


@family.draws("SCAN", weight=0.5)
def scan(draw: Draw, name: str) -> Step:
    # Such a count walks every table here to its end.
    count = 100_000 if draw.chance(0.9) else draw.one((0, -1, "abc", ""))
    options = [
        (draw.case("COUNT"), count),
        draw.maybe(0.5, draw.case("MATCH"), draw.one(PATTERNS)),
        draw.maybe(0.5, draw.case("TYPE"), draw.one(KINDS)),
        draw.maybe(0.02, "BACKWARDS"),
    ]
    draw.random.shuffle(options)
    # None of more than 64 bits: after one, Redis 7.0 and 8.2 refuse every SORT, which finds the error of that
    # conversion still in errno.
    cursor = 0 if draw.chance(0.95) else draw.one(("abc", "", "1.5", "-1"))
    return step(command(name, cursor, *(part for option in options for part in option), agree=whole_scan))


@family.draws("OBJECT")
def object_(draw: Draw, name: str) -> Command:
    return command(name, draw.case("ENCODING"), draw.any_key())


@family.draws("ECHO", "PING", weight=0.1)
def echo(draw: Draw, name: str) -> Command:
    return command(name, draw.word())
