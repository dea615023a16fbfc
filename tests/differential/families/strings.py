"""Strings and the numbers in them."""

from differential.draw import INT64_MAX, Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.steps import Command, Step, command, step

family = Family("string")
BAD_TIMES = (0, -1, "abc", "", "1.5", INT64_MAX, INT64_MAX // 1000 + 1)


def expiry(draw: Draw, persist: bool = False) -> tuple:
    """The options that say when a key expires."""
    luck = draw.number(0, 9 if persist else 8)
    if luck < 2:
        return (draw.case("EX"), draw.far_seconds())
    if luck < 4:
        return (draw.case("PX"), draw.far_milliseconds())
    if luck < 6:
        return (draw.case("EXAT"), draw.future_s())
    if luck < 8:
        return (draw.case("PXAT"), draw.future_ms())
    if luck == 9:
        return (draw.case("PERSIST"),)
    return (draw.one(("EX", "PX", "EXAT", "PXAT")), draw.one(BAD_TIMES[1:]))


def removal_of_expired(key: object) -> tuple[Command, ...]:
    """Removes an expired key: until then DBSIZE may count it."""
    return command("SET", key, "v"), command("DEL", key)


@family.draws("SET", weight=6)
def set_(draw: Draw, name: str) -> Command | Step:
    key = draw.key("string")
    if draw.chance(0.02):
        past = command(name, key, draw.word(), "PXAT", draw.number(1, 1000))
        return step(past, command("GET", key), *removal_of_expired(key))
    options = []
    if draw.chance(0.3):
        options.append(expiry(draw))
    if draw.chance(0.1):
        options.append((draw.case("KEEPTTL"),))
    if draw.chance(0.3):
        options.append((draw.case(draw.one(("NX", "XX"))),))
    if draw.chance(0.03):
        options.append((draw.one(("NX", "XX")),))
    if draw.peer is VALKEY_9_1 and draw.chance(0.2):
        options.append((draw.case("IFEQ"), draw.word()))
    if draw.chance(0.2):
        options.append((draw.case("GET"),))
    draw.random.shuffle(options)
    return command(name, key, draw.word(), *(part for option in options for part in option))


@family.draws("GET", "STRLEN", "GETDEL", weight=2)
def of_one_key(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"))


@family.draws("SETNX", "GETSET", "APPEND")
def with_value(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"), draw.word())


@family.draws("SETEX", "PSETEX")
def with_time(draw: Draw, name: str) -> Command:
    sound = draw.far_seconds() if name == "SETEX" else draw.far_milliseconds()
    return command(name, draw.key("string"), sound if draw.chance(0.8) else draw.one(BAD_TIMES), draw.word())


@family.draws("GETEX", weight=2)
def getex(draw: Draw, name: str) -> Command:
    key = draw.key("string")
    if draw.chance(0.1):
        return command(name, key, "PXAT", draw.number(1, 1000))
    return command(name, key, *draw.maybe(0.8, *expiry(draw, persist=True)), *draw.maybe(0.05, "PERSIST"))


@family.draws("MGET")
def mget(draw: Draw, name: str) -> Command:
    return command(name, *draw.many(draw.any_key, 1, 8))


@family.draws("MSET", "MSETNX")
def mset(draw: Draw, name: str) -> Command:
    pairs = draw.many(lambda: (draw.key("string"), draw.word()), 1, 6)
    return command(name, *(part for pair in pairs for part in pair), *draw.maybe(0.03, "alone"))


@family.draws("DELIFEQ")
def delifeq(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"), draw.word())


@family.draws("MSETEX")
def msetex(draw: Draw, name: str) -> Command:
    pairs = draw.many(lambda: (draw.key("string"), draw.word()), 1, 4)
    number = len(pairs) if draw.chance(0.95) else draw.one((0, -1, "abc", 9, INT64_MAX))
    options = [expiry(draw) if draw.chance(0.9) else (draw.case("KEEPTTL"),)] if draw.chance(0.5) else []
    options += [(draw.case(draw.one(("NX", "XX"))),) for _ in range(draw.number(0, 2)) if draw.chance(0.3)]
    draw.random.shuffle(options)
    words = (part for group in (*pairs, *options) for part in group)
    return command(name, number, *words)


@family.draws("INCR", "DECR")
def count(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"))


@family.draws("INCRBY", "DECRBY")
def count_by(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"), draw.integer(-1000, 1000))


@family.draws("INCRBYFLOAT", weight=2)
def incrbyfloat(draw: Draw, name: str) -> Step:
    if draw.chance(0.5):
        # Starts from a value that is exact in binary, and stays exact.
        return step(command(name, f"float:{draw.number(0, 2)}", draw.binary_fraction()))
    # Sums that need more digits than 64 bits differ on purpose: they are not kept.
    key = draw.key("string")
    more = b"%.3f" % draw.random.uniform(-500, 500)
    if draw.chance(0.2):
        more = draw.one((b"1e400", b"-1e400", b"1e308", b"1.7e308", b"1e-20", b"inf", b"-inf", b"0x10", b"", b"abc"))
    start = command("SET", key, b"%.3f" % draw.random.uniform(-500, 500))
    return step(*draw.maybe(0.5, start), command(name, key, more), command("SET", key, "v"), command("DEL", key))


@family.draws("GETRANGE", "SUBSTR")
def getrange(draw: Draw, name: str) -> Command:
    return command(name, draw.key("string"), draw.integer(-80, 80), draw.integer(-80, 80))


@family.draws("SETRANGE")
def setrange(draw: Draw, name: str) -> Command:
    far = (-1, 536_870_911, 536_870_912, 1 << 40, INT64_MAX, "abc", "")
    offset = draw.number(0, 90) if draw.chance(0.9) else draw.one(far)
    value = b"" if offset == 536_870_911 else draw.word()
    return command(name, draw.key("string"), offset, value)


@family.draws("LCS")
def lcs(draw: Draw, name: str) -> Command:
    options = [
        *draw.maybe(0.3, draw.case("LEN")),
        *draw.maybe(0.4, draw.case("IDX")),
        *draw.maybe(0.3, draw.case("MINMATCHLEN"), draw.integer(-2, 5)),
        *draw.maybe(0.3, draw.case("WITHMATCHLEN")),
    ]
    return command(name, draw.key("string"), draw.key("string"), *options)
