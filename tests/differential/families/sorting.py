"""SORT, over keys of its own, `sort:*`, and weights and values beside them."""

from differential.draw import Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.steps import Agreement, Step, command, exactly, in_any_order, step

family = Family("sort")
SORTED_TYPES = ("list", "set", "zset")
ELEMENTS = 12


def element(draw: Draw) -> object:
    """Mostly a number with a weight; other words make numeric sorting fail."""
    if draw.chance(0.93):
        return draw.number(0, ELEMENTS)
    # Valkey refuses an empty number, 7.0 accepts a space.
    empty = b"word" if draw.peer is VALKEY_9_1 else b""
    space = b" 1" if draw.peer.level > (7, 0) else b"1 "
    return draw.one((b"-3", b"1.5", b"01", b"1e2", b"inf", b"-inf", b"nan", b"word", empty, space))


@family.draws("RPUSH", "SADD", "ZADD")
def fill(draw: Draw, name: str) -> Step:
    elements = draw.many(lambda: element(draw), 1, 5)
    if name == "ZADD":
        return step(command(name, "sort:zset", *(part for found in elements for part in (draw.number(0, 5), found))))
    return step(command(name, "sort:list" if name == "RPUSH" else "sort:set", *elements))


@family.draws("DEL", weight=0.4)
def empty(draw: Draw, name: str) -> Step:
    return step(command(name, f"sort:{draw.one(SORTED_TYPES)}"))


@family.draws("SET", "HSET", weight=1.5)
def weigh(draw: Draw, name: str) -> Step:
    number, weight = draw.number(0, ELEMENTS), draw.number(-5, 5) if draw.chance(0.97) else "heavy"
    if name == "SET":
        return step(command(name, f"weight:{number}", weight))
    return step(command(name, f"object:{number}", "weight", weight, "name", draw.word()))


def sources(draw: Draw) -> list:
    """GET patterns."""
    patterns = (
        "#",
        "weight:*",
        "object:*->name",
        "object:*->weight",
        "nothing:*",
        "plain",
        "object:*->",
        "weight:*->name",
    )
    return [part for pattern in draw.many(lambda: draw.one(patterns), 0, 3) for part in (draw.case("GET"), pattern)]


@family.draws("SORT", "SORT_RO", weight=4)
def sort(draw: Draw, name: str) -> Step:
    of_type = draw.one(SORTED_TYPES)
    is_any = draw.chance(0.05)
    key: object = draw.key("string") if is_any else f"sort:{of_type}"
    by = draw.one(("", "", "weight:*", "object:*->weight", "nosort", "object:*->nothing"))
    alpha = draw.chance(0.3)
    limit = draw.maybe(0.4, draw.case("LIMIT"), draw.integer(-2, 5), draw.integer(-2, 8))
    store = draw.maybe(0.25 if name == "SORT" else 0.03, draw.case("STORE"), draw.key("list"))
    agree: Agreement = exactly
    # The order of equal weights compared as text is open; so is that of an unsorted set, and any key may hold
    # one.
    if by not in ("", "nosort") and alpha or by == "nosort" and (of_type == "set" or is_any):
        limit, store, agree = (), (), in_any_order
    options = [
        draw.maybe(1 if by else 0, draw.case("BY"), by),
        limit,
        sources(draw),
        draw.maybe(0.5, draw.case(draw.one(("ASC", "DESC")))),
        draw.maybe(1 if alpha else 0, draw.case("ALPHA")),
        store,
        draw.maybe(0.02, "DOWN"),
    ]
    if draw.chance(0.3):
        draw.random.shuffle(options)
    # After a number that was out of range, from any client, Redis reports that a weight is not a number;
    # parsing a cursor clears this state.
    fresh = command("ZSCAN", "sort:nothing", 0)
    # Sent unchanged: a spoilt pattern may leave the order open.
    return step(fresh, command(name, key, *(part for option in options for part in option), agree=agree))
