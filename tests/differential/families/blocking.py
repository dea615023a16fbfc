"""Commands that may wait: with data to take, inside MULTI, and until a short timeout."""

from differential.draw import Draw
from differential.families import Family
from differential.families.lists import numbered, side
from differential.families.strings import removal_of_expired
from differential.steps import Command, Step, command, step

family = Family("blocking")
TIMEOUT_S = b"0.01"


def timeout(draw: Draw) -> bytes:
    """Short, or refused at once: even with other errors, no command waits longer."""
    if draw.chance(0.95):
        return TIMEOUT_S
    return draw.one((b"-1", b"-0.5", b"abc", b"", b"nan", b"1e400", b"-inf", b"99999999999999999999"))


def mostly_after_push(draw: Draw, key: bytes, blocking: Command) -> Step:
    """A push before most of them, so that few have to wait."""
    if key.startswith(b"zset") or blocking.name.startswith("BZ"):
        filling = command("ZADD", key, draw.score(), draw.word())
    else:
        filling = command(draw.one(("LPUSH", "RPUSH")), key, *draw.many(draw.word, 1, 3))
    return step(filling, blocking) if draw.chance(0.8) else step(blocking)


@family.draws("BLPOP", "BRPOP")
def pop(draw: Draw, name: str) -> Step:
    keys = draw.keys("list", 1, 3)
    return mostly_after_push(draw, draw.one(keys), command(name, *keys, timeout(draw)))


@family.draws("BZPOPMIN", "BZPOPMAX")
def zpop(draw: Draw, name: str) -> Step:
    keys = draw.keys("zset", 1, 3)
    return mostly_after_push(draw, draw.one(keys), command(name, *keys, timeout(draw)))


@family.draws("BRPOPLPUSH")
def brpoplpush(draw: Draw, name: str) -> Step:
    source = draw.key("list")
    return mostly_after_push(draw, source, command(name, source, draw.key("list"), timeout(draw)))


@family.draws("BLMOVE")
def blmove(draw: Draw, name: str) -> Step:
    source = draw.key("list")
    moving = command(name, source, draw.key("list"), side(draw), side(draw), timeout(draw))
    return mostly_after_push(draw, source, moving)


@family.draws("BLMPOP", "BZMPOP")
def mpop(draw: Draw, name: str) -> Step:
    keys = draw.keys("list" if name == "BLMPOP" else "zset", 1, 3)
    end = (
        side(draw)
        if name == "BLMPOP"
        else draw.case(draw.one(("MIN", "MAX", "MID") if draw.chance(0.1) else ("MIN", "MAX")))
    )
    taking = command(
        name, timeout(draw), *numbered(draw, keys), end, *draw.maybe(0.5, draw.case("COUNT"), draw.count())
    )
    return mostly_after_push(draw, draw.one(keys), taking)


@family.draws("PEXPIRE", weight=0.3)
def expire_while_waiting(draw: Draw, name: str) -> Step:
    """A key that expires while a later command of the connection waits until its timeout."""
    key = draw.any_key()
    wait = command("BLPOP", "nothing", b"0.02")
    # In a transaction it would not wait.
    return step(command("DISCARD"), command(name, key, 1), wait, command("EXISTS", key), *removal_of_expired(key))
