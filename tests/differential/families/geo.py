"""Places on the globe. Coordinates are drawn from a continuum, so distances are never equal by chance."""

from differential.draw import Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.reply import Tree, children
from differential.steps import Agreement, Command, command, exactly, in_any_order

family = Family("geo")
UNITS = ("m", "km", "mi", "ft", "KM")


def same_number(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """The same number of places; the choice is open."""
    left, right = children(redis), children(sheaf)
    return left is not None and right is not None and len(left) == len(right)


def member(draw: Draw) -> bytes:
    """A place."""
    return b"p%d" % draw.number(0, 25) if draw.chance(0.97) else draw.word()


def unit(draw: Draw) -> str:
    """A unit of distance."""
    return draw.one(UNITS) if draw.chance(0.97) else draw.one(("yd", ""))


def coordinates(draw: Draw) -> list:
    """Longitude and latitude, mostly near each other, sometimes at the ends of the map or beyond."""
    luck = draw.random.random()
    if luck < 0.7:
        return [b"%.9f" % draw.random.uniform(10, 20), b"%.9f" % draw.random.uniform(40, 50)]
    if luck < 0.94:
        return [b"%.9f" % draw.random.uniform(-180, 180), b"%.9f" % draw.random.uniform(-85, 85)]
    return [
        draw.one((b"180", b"-180", b"181", b"abc", b"", b"nan", b"0")),
        draw.one((b"85.05112878", b"-86", b"90", b"inf", b"0")),
    ]


@family.draws("GEOADD", weight=5)
def geoadd(draw: Draw, name: str) -> Command:
    options = [*draw.maybe(0.1, draw.case("NX")), *draw.maybe(0.1, draw.case("XX")), *draw.maybe(0.2, draw.case("CH"))]
    count = draw.number(30, 150) if draw.chance(0.02) else draw.number(1, 4)
    places = [part for _ in range(count) for part in (*coordinates(draw), member(draw))]
    return command(name, draw.key("geo"), *options, *places, *draw.maybe(0.02, 1))


@family.draws("GEODIST")
def geodist(draw: Draw, name: str) -> Command:
    return command(
        name, draw.key("geo"), member(draw), member(draw), *draw.maybe(0.6, unit(draw)), *draw.maybe(0.02, "m")
    )


@family.draws("GEOHASH", "GEOPOS")
def of_members(draw: Draw, name: str) -> Command:
    return command(name, draw.key("geo"), *draw.many(lambda: member(draw), 0, 5))


def distance(draw: Draw) -> object:
    """A radius, or the side of a box."""
    if draw.chance(0.95):
        return draw.one((1, 50, 300, 1000, 5000, 50_000, b"%.3f" % draw.random.uniform(0, 20_000)))
    return draw.one((0, -1, b"abc", b"", b"nan", b"inf"))


def order(draw: Draw) -> tuple[list, Agreement]:
    """The order and limit of replies, and which part of them is then determined."""
    if draw.chance(0.1):
        return ["COUNT", draw.number(1, 5), "ANY"], same_number
    if draw.chance(0.5):
        counted = draw.maybe(0.5, draw.case("COUNT"), draw.count(6))
        return [draw.case(draw.one(("ASC", "DESC"))), *counted], exactly
    if draw.chance(0.3):
        return [draw.case("COUNT"), draw.count(6)], exactly
    return [*draw.maybe(0.02, "ANY")], in_any_order


def details(draw: Draw) -> list:
    """The attributes that are returned of each place."""
    return [
        *draw.maybe(0.4, draw.case("WITHCOORD")),
        *draw.maybe(0.4, draw.case("WITHDIST")),
        *draw.maybe(0.3, draw.case("WITHHASH")),
    ]


def polygon(draw: Draw) -> list:
    """A polygon, seldom a wrong one. Of those as large as a continent, Valkey does not find all places."""
    count = draw.number(2 if draw.chance(0.05) else 3, 8)
    vertices = [b"%.9f" % draw.random.uniform(*ends) for _ in range(count) for ends in ((10, 20), (40, 50))]
    claimed = count if draw.chance(0.95) else draw.one((count + 1, -1, 0, b"x", 1 << 31, 1 << 63))
    return [draw.case("BYPOLYGON"), claimed, *vertices, *draw.maybe(0.03, draw.one(vertices))]


def area(draw: Draw) -> list:
    """The centre and the shape of GEOSEARCH, or a polygon."""
    if draw.peer is VALKEY_9_1 and draw.chance(0.3):
        return polygon(draw) if draw.chance(0.95) else [*polygon(draw), "FROMMEMBER", member(draw), "BYRADIUS", 1, "km"]
    centre = ["FROMMEMBER", member(draw)] if draw.chance(0.4) else ["FROMLONLAT", *coordinates(draw)]
    if draw.chance(0.5):
        shape = ["BYRADIUS", distance(draw), unit(draw)]
    else:
        shape = ["BYBOX", distance(draw), distance(draw), unit(draw)]
    if draw.chance(0.03):
        return draw.one((centre, shape, centre + centre + shape, shape + shape + centre))
    return centre + shape if draw.chance(0.8) else shape + centre


@family.draws("GEOSEARCH", weight=4)
def geosearch(draw: Draw, name: str) -> Command:
    sorting, agree = order(draw)
    return command(name, draw.key("geo"), *area(draw), *sorting, *details(draw), agree=agree)


def destination(draw: Draw, distances: bool) -> bytes:
    """The destination key. Read as places, stored distances would all be close together, many equally far
    away.
    """
    return draw.key("zset" if distances else "geo")


@family.draws("GEOSEARCHSTORE", weight=1.5)
def geosearchstore(draw: Draw, name: str) -> Command:
    sorting, agree = order(draw)
    kept = [] if agree is same_number else sorting
    stored = draw.maybe(0.4, draw.case("STOREDIST"))
    return command(name, destination(draw, bool(stored)), draw.key("geo"), *area(draw), *kept, *stored, *draw.maybe(0.03, "WITHDIST"))


@family.draws("GEORADIUS", "GEORADIUS_RO", "GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO")
def georadius(draw: Draw, name: str) -> Command:
    centre = [member(draw)] if "MEMBER" in name else coordinates(draw)
    sorting, agree = order(draw)
    told = details(draw)
    if draw.chance(0.05 if name.endswith("_RO") else 0.25):
        option = draw.one(("STORE", "STOREDIST"))
        told = [draw.case(option), destination(draw, option == "STOREDIST"), *draw.maybe(0.1, "WITHDIST")]
        sorting, agree = ([], exactly) if agree is same_number else (sorting, exactly)
    return command(name, draw.key("geo"), *centre, distance(draw), unit(draw), *told, *sorting, agree=agree)
