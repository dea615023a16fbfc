"""Bits of strings."""

from differential.draw import INT64_MAX, INT64_MIN, Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("bitmap")
ODD_OFFSETS = (-1, "abc", "", "1.5", 4_294_967_296, INT64_MAX, "9223372036854775808", "#1")
OVERFLOWS = ("WRAP", "SAT", "FAIL")


def offset(draw: Draw) -> object:
    """A bit's position, mostly within a few dozen bytes."""
    if draw.chance(0.92):
        return draw.number(0, 400)
    return draw.number(0, 50_000) if draw.chance(0.5) else draw.one(ODD_OFFSETS)


@family.draws("SETBIT", weight=4)
def setbit(draw: Draw, name: str) -> Command:
    bit = draw.number(0, 1) if draw.chance(0.95) else draw.one((2, -1, "abc", ""))
    return command(name, draw.key("bitmap"), offset(draw), bit)


@family.draws("GETBIT")
def getbit(draw: Draw, name: str) -> Command:
    return command(name, draw.key("bitmap"), offset(draw))


def bounds(draw: Draw) -> list:
    """Start and end, in bytes or bits."""
    unit = draw.maybe(0.5, draw.case(draw.one(("BIT", "BYTE", "BIT", "WORD") if draw.chance(0.1) else ("BIT", "BYTE"))))
    reach = draw.one((60, 500))
    return [draw.integer(-reach, reach), draw.integer(-reach, reach), *unit]


@family.draws("BITCOUNT", weight=2)
def bitcount(draw: Draw, name: str) -> Command:
    return command(name, draw.key("bitmap"), *draw.maybe(0.7, *bounds(draw)), *draw.maybe(0.03, 1))


@family.draws("BITPOS", weight=2)
def bitpos(draw: Draw, name: str) -> Command:
    bit = draw.number(0, 1) if draw.chance(0.95) else draw.one((2, -1, "abc"))
    reach = bounds(draw) if draw.chance(0.5) else [draw.integer(-60, 60)]
    return command(name, draw.key("bitmap"), bit, *draw.maybe(0.7, *reach))


@family.draws("BITOP", weight=2)
def bitop(draw: Draw, name: str) -> Command:
    names = ("AND", "OR", "XOR", "NOT", "and", "xor")
    if draw.peer.level >= (8, 2):
        names += ("DIFF", "DIFF1", "ANDOR", "ONE", "one")
    operation = draw.one(names) if draw.chance(0.97) else draw.one(("NAND", ""))
    sources = draw.keys("bitmap", 1, 1 if operation == "NOT" and draw.chance(0.8) else 4)
    return command(name, operation, draw.key("bitmap"), *sources)


def field(draw: Draw) -> str:
    """The type of an integer: its sign and number of bits."""
    if draw.chance(0.94):
        return f"{draw.one('ui')}{draw.one((1, 2, 3, 4, 5, 7, 8, 8, 13, 16, 31, 32, 33, 63))}"
    return draw.one(("i64", "u64", "u0", "i0", "i65", "x8", "u", "", "8", "U8", "i08"))


def place(draw: Draw) -> object:
    """An offset in bits, or in fields of the type."""
    return f"#{draw.number(0, 20)}" if draw.chance(0.3) else offset(draw)


def value(draw: Draw) -> object:
    """The value to set or add. Never -2^63: Redis' saturation overflows there and ends at the wrong limit."""
    found = draw.integer(-300, 300)
    return -300 if found == INT64_MIN else found


@family.draws("BITFIELD", weight=4)
def bitfield(draw: Draw, name: str) -> Step:
    parts: list = []
    for _ in range(draw.number(1, 4)):
        match draw.number(0, 3):
            case 0:
                parts += ["GET", field(draw), place(draw)]
            case 1 | 2 as which:
                parts += [("SET", "INCRBY")[which - 1], field(draw), place(draw), value(draw)]
            case 3:
                parts += ["OVERFLOW", draw.case(draw.one(OVERFLOWS) if draw.chance(0.95) else "EVER")]
    if {"FAIL", "fail"} & set(parts):
        # Redis creates the key but does not notify its watchers when all writes fail.
        parts += ["OVERFLOW", "WRAP", "SET", "u1", 0, 0]
    return step(command(name, draw.key("bitmap"), *parts, *draw.maybe(0.03, draw.one(("GET", "SET", "u8", "")))))


@family.draws("BITFIELD_RO")
def bitfield_ro(draw: Draw, name: str) -> Command:
    parts = [part for _ in range(draw.number(0, 3)) for part in (draw.case("GET"), field(draw), place(draw))]
    return command(
        name, draw.key("bitmap"), *parts, *draw.maybe(0.05, "SET", "u8", 0, 1), *draw.maybe(0.05, "OVERFLOW", "SAT")
    )
