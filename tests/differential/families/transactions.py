"""MULTI and its companions. Any command drawn between MULTI and EXEC is queued, on either connection."""

from differential.draw import Draw
from differential.families import Family
from differential.peers import VALKEY_9_1
from differential.steps import Command, Step, command, step

family = Family("transaction")


@family.draws("MULTI", weight=1)
def multi(draw: Draw, name: str) -> Step:
    return step(*outside(draw), command(name))


def outside(draw: Draw) -> list[Command]:
    """Valkey discards a transaction for a MULTI or WATCH in it."""
    return [command("DISCARD")] if draw.peer is VALKEY_9_1 else []


@family.draws("EXEC", weight=4)
def exec_(_draw: Draw, name: str) -> Step:
    return step(command(name))


@family.draws("DISCARD", weight=0.4)
def discard(_draw: Draw, name: str) -> Step:
    return step(command(name))


def watched_key(draw: Draw) -> str:
    """One of the watched keys. Other families do not use them: in Redis it depends on the command whether a
    write that changes nothing aborts the watchers, and in Sheaf it never does. Values written to these keys
    are always new.
    """
    return f"watched:{draw.number(0, 2)}"


@family.draws("WATCH", weight=2)
def watch(draw: Draw, name: str) -> Command | Step:
    watching = command(name, *draw.many(lambda: watched_key(draw), 1, 3))
    return step(*outside(draw), watching) if outside(draw) else watching


def always_new(draw: Draw) -> int:
    """A number that has almost certainly not been drawn before."""
    return draw.number(10**11, 10**12)


@family.draws("SET", "APPEND", "RPUSH", "LPUSH", "SADD", "PFADD", weight=0.5)
def add_to_watched(draw: Draw, name: str) -> Step:
    return step(command(name, watched_key(draw), always_new(draw)))


@family.draws("DEL", "LPOP", "PERSIST", "INCR", "ZPOPMIN", "GETDEL", weight=0.3)
def take_from_watched(draw: Draw, name: str) -> Step:
    return step(command(name, watched_key(draw)))


@family.draws("ZADD", "HSET", weight=0.5)
def change_in_watched(draw: Draw, name: str) -> Step:
    pair = [always_new(draw), "m"] if name == "ZADD" else ["f", always_new(draw)]
    return step(command(name, watched_key(draw), *pair))


@family.draws("PEXPIREAT", weight=0.5)
def expire_watched(draw: Draw, name: str) -> Step:
    return step(command(name, watched_key(draw), 4_000_000_000_000 + always_new(draw)))


@family.draws("RENAME", "COPY", "MOVE", weight=0.3)
def move_watched(draw: Draw, name: str) -> Step:
    if name == "MOVE":
        return step(command(name, watched_key(draw), draw.number(0, 2)))
    return step(command(name, watched_key(draw), watched_key(draw), *(["REPLACE"] if name == "COPY" else [])))


@family.draws("GET", "LRANGE", "EXISTS", weight=0.3)
def read_watched(draw: Draw, name: str) -> Step:
    return step(command(name, watched_key(draw), *([0, -1] if name == "LRANGE" else [])))


@family.draws("UNWATCH", weight=0.4)
def unwatch(_draw: Draw, name: str) -> Command:
    return command(name)


@family.draws("NOSUCH", weight=0.1)
def unknown(draw: Draw, name: str) -> Command:
    return command(name, *draw.many(draw.word, 0, 3))
