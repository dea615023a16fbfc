"""The table of allowed differences in docs/compatibility.md, which the test reads.

Each row names a difference, shows it by an example with the last reply of Sheaf, and lists the peers that
reply something else. Several rows may have one name. A difference of differences.py is allowed beside a peer
only if a row of its name lists that peer.
"""

import codecs
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from differential.peers import PEERS, Peer
from differential.reply import Tree

COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
HEADER = "| Difference | Example | Sheaf | Unlike |"


@dataclass(frozen=True)
class Row:
    """One allowed difference."""

    name: str
    # Commands on one connection to an empty server with its own settings; the last reply differs.
    commands: tuple[tuple[bytes, ...], ...]
    reply: str
    unlike: frozenset[str]

    def settings(self) -> list[bytes]:
        """The settings that the example changes."""
        return [command[2] for command in self.commands if command[:2] == (b"CONFIG", b"SET")]


@cache
def rows() -> tuple[Row, ...]:
    """All rows, in their order."""
    lines = COMPATIBILITY.read_text().splitlines()
    found = []
    for line in lines[lines.index(HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        name, example, reply, unlike = (cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        commands = tuple(tuple(map(_unescaped, shlex.split(command))) for command in example.strip("`").split("; "))
        found.append(Row(name, commands, reply.strip("`"), frozenset(unlike.split(", "))))
    return tuple(found)


def _unescaped(word: str) -> bytes:
    return codecs.escape_decode(word.encode())[0]


@cache
def names_allowed(peer: Peer) -> frozenset[str]:
    """The names of the differences from this peer."""
    return frozenset(row.name for row in rows() if peer.name in row.unlike)


def strangers() -> list[str]:
    """Names in the last column that are no peer's."""
    return sorted({name for row in rows() for name in row.unlike} - {peer.name for peer in PEERS})


def written(tree: Tree) -> str:
    """A reply as the table shows it."""
    kind, content = tree
    if content is None:
        return "nil"
    if isinstance(content, tuple):
        return f"[{', '.join(map(written, content))}]"
    text = content.decode(errors="backslashreplace").replace("\0", "\\x00")
    return f'"{text}"' if kind == b"$" else text
