"""HyperLogLogs, in keys that no other family reads: PFCOUNT of Redis writes to its key, Sheaf's does not."""

from differential.draw import Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("hyperloglog")


def key(draw: Draw) -> str:
    """A HyperLogLog, or rarely something else."""
    if draw.chance(0.03):
        return draw.one(("hll:text", "hll:list"))
    return f"hll:{draw.number(0, 4)}"


def element(draw: Draw) -> bytes:
    """A few distinct elements, and many."""
    return draw.word() if draw.chance(0.3) else b"%d" % draw.number(0, 3000)


@family.draws("PFADD", weight=6)
def pfadd(draw: Draw, name: str) -> Command:
    count = draw.number(200, 400) if draw.chance(0.05) else draw.number(0, 8)
    return command(name, key(draw), *(element(draw) for _ in range(count)))


@family.draws("PFCOUNT", weight=3)
def pfcount(draw: Draw, name: str) -> Command:
    return command(name, *(key(draw) for _ in range(draw.one((1, 1, 1, 2, 3)))))


@family.draws("PFMERGE")
def pfmerge(draw: Draw, name: str) -> Command:
    return command(name, *(key(draw) for _ in range(draw.number(1, 4))))


@family.draws("DEL", weight=0.2)
def start_anew(draw: Draw, name: str) -> Step:
    return step(command(name, f"hll:{draw.number(0, 4)}"))


@family.draws("SET", weight=0.1)
def something_else(draw: Draw, name: str) -> Step:
    odd = (
        b"text",
        b"",
        b"HYLL",
        b"HYLL" + b"\x00" * 12,
        b"HYLL\x02" + b"\x00" * 11,
        b"HYLL\x01" + b"\x00" * 12 + b"\x80",
    )
    return step(command(name, "hll:text", draw.one(odd)))


@family.draws("LPUSH", weight=0.05)
def another_type(_draw: Draw, name: str) -> Step:
    return step(command("DEL", "hll:list"), command(name, "hll:list", "a"))
