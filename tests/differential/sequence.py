"""Whole sequences of steps: one round has a theme, the family of most of its commands, and a few commands of
all others.
"""

from collections.abc import Sequence
from itertools import accumulate
from random import Random

from differential.draw import Draw
from differential.families import Drawable, Family
from differential.peers import REDIS_7_0, Peer
from differential.reply import Tree
from differential.steps import Agreement, Command, Step, in_any_order

THEME_SHARE = 10.0
GENERIC_SHARE = 1.5
OTHERS_SHARE = 0.25
SPOILT_SHARE = 0.04
# The probability that the next step is on another connection.
SWITCH_SHARE = 0.04

JUNK = (
    b"",
    b"abc",
    b"-1",
    b"0",
    b"1.5",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"(1",
    b"-",
    b"LIMIT",
    b"nan",
)
# With other arguments of these commands a peer has other data afterwards (docs/compatibility.md).
EFFECTS_DIFFER = frozenset({"LREM", "ZRANGESTORE"})
# Spoiling the numbers of these commands could make a key expire during a round.
TIMED = frozenset({"SET", "SETEX", "PSETEX", "GETEX", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "RESTORE"})


def themes(families: Sequence[Family]) -> list[str]:
    """The themes of the rounds, one after another: every family, then all of them alike."""
    return [family.name for family in families] + ["everything"]


def steps_of_round(
    families: Sequence[Family],
    available: frozenset[str],
    payloads: Sequence[bytes],
    seed: str,
    theme: str,
    commands: int,
    peer: Peer = REDIS_7_0,
) -> list[Step]:
    """Steps of at least this many commands. The same arguments give the same steps."""
    draw = Draw(Random(seed), payloads, peer)
    drawables, weights = _weighted(families, available, theme)
    steps: list[Step] = []
    connection = 0
    while commands > 0:
        [drawable] = draw.random.choices(drawables, cum_weights=weights)
        drawn = drawable.generate(draw, drawable.name)
        found = Step((drawn,)) if isinstance(drawn, Command) else drawn
        if not all(command.name in available or command.name == drawable.name for command in found.commands):
            continue
        if found.spoilable and draw.chance(SPOILT_SHARE):
            found = Step((spoilt(draw, found.commands[0]),))
        if draw.chance(SWITCH_SHARE):
            connection = draw.one((0, 0, 1))
        steps.append(Step(found.commands, connection))
        commands -= len(found.commands)
    return steps


def _weighted(families: Sequence[Family], available: frozenset[str], theme: str) -> tuple[list[Drawable], list[float]]:
    drawables, weights = [], []
    for family in families:
        share = _share(family.name, theme)
        whole = sum(drawable.weight for drawable in family.drawables)
        for drawable in family.drawables:
            if drawable.name in available:
                drawables.append(drawable)
                weights.append(share * drawable.weight / whole)
    return drawables, list(accumulate(weights))


def _share(family: str, theme: str) -> float:
    if theme == "everything":
        return 1.0
    if family == theme:
        return THEME_SHARE
    return GENERIC_SHARE if family == "generic" else OTHERS_SHARE


def spoilt(draw: Draw, command: Command) -> Command:
    """The command with one mistake in its arguments."""
    name, *arguments = command.arguments
    mistakes = ["drop", "add"]
    if command.name not in EFFECTS_DIFFER:
        mistakes += ["replace", "replace", "replace"] + (["swap", "repeat"] if command.name not in TIMED else [])
    mistake = draw.one(mistakes)
    if not arguments or mistake == "add":
        arguments.append(draw.one(JUNK))
    elif mistake == "drop":
        arguments.pop()
    elif mistake == "replace":
        arguments[draw.number(0, len(arguments) - 1)] = draw.one(JUNK)
    elif mistake == "swap":
        first, second = (draw.number(0, len(arguments) - 1) for _ in range(2))
        arguments[first], arguments[second] = arguments[second], arguments[first]
    else:
        spot = draw.number(0, len(arguments) - 1)
        arguments.insert(spot, arguments[spot])
    return Command((name, *arguments), _or_in_any_order(command.agree))


def _or_in_any_order(agree: Agreement) -> Agreement:
    """A mistake may remove an argument that determines an order."""

    def either(redis: Tree, sheaf: Tree, before: list[Tree]) -> bool:
        return agree(redis, sheaf, before) or (isinstance(redis[1], tuple) and in_any_order(redis, sheaf, before))

    return either
