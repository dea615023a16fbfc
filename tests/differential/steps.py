"""Commands to send, and rules for the agreement of two replies.

A `Step` is drawn by a generator and removed by shrinking as a whole: one command, or a few that only make
sense together. Each `Command` declares by its `agree` how much of its reply Redis determines.
"""

from collections.abc import Callable
from dataclasses import dataclass

from differential.reply import Tree, children, is_error

# agree(reply of Redis, reply of Sheaf, replies of Redis to the earlier commands of the step); called when
# they differ.
Agreement = Callable[[Tree, Tree, list[Tree]], bool]

TEXT_CHARS_MAX = 2000
TTL_TOLERANCE_S = 2
TTL_TOLERANCE_MS = 1500


@dataclass(frozen=True, slots=True)
class Command:
    """One command with all its arguments."""

    arguments: tuple[bytes, ...]
    agree: Agreement

    @property
    def name(self) -> str:
        """Its name in capitals."""
        return self.arguments[0].decode(errors="replace").upper()

    def __str__(self) -> str:
        text = " ".join(_quoted(argument) for argument in self.arguments)
        return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that belong together, on one of the connections."""

    commands: tuple[Command, ...]
    connection: int = 0
    # Whether one argument may be spoilt: not where that would make the outcome depend on time or chance.
    spoilable: bool = True


def command(*arguments: bytes | str | int, agree: Agreement | None = None) -> Command:
    """A command with any arguments."""
    return Command(tuple(map(_raw, arguments)), agree or exactly)


def step(*commands: Command, connection: int = 0) -> Step:
    """Commands that are sent and removed together, unchanged."""
    return Step(commands, connection, spoilable=False)


def _raw(argument: bytes | str | int) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _quoted(argument: bytes) -> str:
    text = argument.decode("latin-1")
    if text and all("!" <= character <= "~" and character not in "\"'\\" for character in text):
        return text
    inner = "".join(
        f"\\{character}" if character in '"\\' else character if " " <= character <= "~" else f"\\x{ord(character):02x}"
        for character in text
    )
    return f'"{inner}"'


# ---- agreements --------------------------------------------------------------------------------------------


def exactly(_redis: Tree, _sheaf: Tree, _before: list[Tree]) -> bool:
    """Equal bytes; all other rules are used only for unequal ones."""
    return False


def in_any_order(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """The same members."""
    return redis[0] == sheaf[0] and _sorted(children(redis)) == _sorted(children(sheaf))


def pairs_in_any_order(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """The same names with the same values, as a flat array, as a map, or as an array of pairs."""
    return redis[0] == sheaf[0] and _sorted(_pairs(redis)) == _sorted(_pairs(sheaf))


def whole_scan(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """A scan that ended with its first reply and found the same elements, with or without duplicates."""
    return _scanned(redis, pairs=False) is not None and _scanned(redis, pairs=False) == _scanned(sheaf, pairs=False)


def whole_scan_of_pairs(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """The same for HSCAN and ZSCAN."""
    return _scanned(redis, pairs=True) is not None and _scanned(redis, pairs=True) == _scanned(sheaf, pairs=True)


def same_shape(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
    """Both have a value of the same kind or both have none."""
    return redis[0] == sheaf[0] and not is_error(redis) and (redis[1] is None) == (sheaf[1] is None)


def within(tolerance: int) -> Agreement:
    """Two points in time, or two times to live, that were requested one after the other."""

    def agree(redis: Tree, sheaf: Tree, _before: list[Tree]) -> bool:
        if redis[0] != b":" or sheaf[0] != b":":
            return False
        left, right = int(redis[1]), int(sheaf[1])
        return min(left, right) > 0 and abs(left - right) <= tolerance

    return agree


def drawn(pairs: bool = False, distinct: bool = False) -> Agreement:
    """Members drawn at random from the reply to the command before: equally many from both, no others."""

    def agree(redis: Tree, sheaf: Tree, before: list[Tree]) -> bool:
        known = _pairs(before[-1]) if pairs else children(before[-1]) or ()
        if redis[0] != sheaf[0]:
            return False
        left, right = _draws(redis, pairs), _draws(sheaf, pairs)
        if left is None or right is None or len(left) != len(right):
            return False
        same_form = [len(children(tree) or ()) for tree in (redis, sheaf)]
        unique = not distinct or len(set(right)) == len(right)
        return set(right) <= set(known) and unique and same_form[0] == same_form[1]

    return agree


def _draws(tree: Tree, pairs: bool) -> list | None:
    if children(tree) is None:
        return None if tree[1] is None or is_error(tree) else [tree]
    return list(_pairs(tree)) if pairs else list(children(tree))


def _pairs(tree: Tree) -> tuple | None:
    members = children(tree)
    if members is None:
        return None
    nested = [children(member) for member in members]
    if members and tree[0] != b"%" and all(pair is not None and len(pair) == 2 for pair in nested):
        return tuple(nested)
    return tuple(zip(members[::2], members[1::2])) if len(members) % 2 == 0 else None


def _scanned(tree: Tree, pairs: bool) -> list | None:
    parts = children(tree)
    if parts is None or len(parts) != 2 or parts[0] != (b"$", b"0"):
        return None
    found = _pairs(parts[1]) if pairs else children(parts[1])
    return None if found is None else sorted(set(found), key=repr)


def _sorted(members) -> list | None:
    return None if members is None else sorted(members, key=repr)
