"""MULTI and what belongs to it. Whatever is drawn between MULTI and EXEC is queued, on either connection."""

from differential.draw import Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("transaction")


@family.draws("MULTI", weight=1)
def multi(_draw: Draw, name: str) -> Step:
    return step(command(name))


@family.draws("EXEC", weight=4)
def exec_(_draw: Draw, name: str) -> Step:
    return step(command(name))


@family.draws("DISCARD", weight=0.4)
def discard(_draw: Draw, name: str) -> Step:
    return step(command(name))


@family.draws("WATCH", weight=2)
def watch(draw: Draw, name: str) -> Command:
    return command(name, *draw.many(draw.any_key, 1, 4))


@family.draws("UNWATCH", weight=0.4)
def unwatch(_draw: Draw, name: str) -> Command:
    return command(name)


@family.draws("NOSUCH", weight=0.1)
def unknown(draw: Draw, name: str) -> Command:
    return command(name, *draw.many(draw.word, 0, 3))
