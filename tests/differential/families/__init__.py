"""The drawable commands: one module per family of commands, one generator per command.

    family = Family("list")

    @family.draws("LPUSH", "RPUSH", weight=3)
    def push(draw, name):
        return command(name, draw.key("list"), *draw.many(draw.word, 1, 5))

A generator returns a `Command`, which may be spoilt and queued by MULTI, or a `Step` of several, which is
sent unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass

from differential.draw import Draw
from differential.steps import Command, Step

Generator = Callable[[Draw, str], Command | Step]


@dataclass(frozen=True)
class Drawable:
    """One command that can be drawn."""

    family: str
    name: str
    weight: float
    generate: Generator


class Family:
    """The generators of one family."""

    def __init__(self, name: str):
        self.name = name
        self.drawables: list[Drawable] = []

    def draws(self, *names: str, weight: float = 1.0) -> Callable[[Generator], Generator]:
        """Declares a generator for each of the commands; `weight` is for each of them."""

        def declare(generate: Generator) -> Generator:
            self.drawables.extend(Drawable(self.name, name, weight, generate) for name in names)
            return generate

        return declare


def all_families() -> list[Family]:
    """All families, in the order of the documentation."""
    from differential.families import (
        bitmaps,
        blocking,
        expiring_fields,
        functions,
        generic,
        geo,
        hashes,
        hyperloglogs,
        lists,
        payloads,
        scripts,
        sets,
        sorting,
        streams,
        strings,
        transactions,
        zsets,
    )

    modules = (strings, generic, bitmaps, hyperloglogs, lists, sets, zsets, hashes, geo, sorting, streams)
    return [module.family for module in (*modules, expiring_fields, transactions, blocking, payloads, scripts, functions)]
