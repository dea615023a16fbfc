"""COMMAND INFO tells what that of Redis 8.2 tells of every command that both have; the differences are rows of
the table "COMMAND INFO" in docs/compatibility.md, with their reasons. A row that explains nothing fails the test.
"""

import re
from fnmatch import fnmatchcase

import pytest

from differential.peers import REDIS_8_2, Peer, PeerOptions
from differential.table import COMPATIBILITY
from harness.server import Server

HEADER = "| Differs | Commands | Why |"


def rows() -> list[tuple[list[str], list[str]]]:
    """What differs, and the patterns of the names of commands."""
    lines = COMPATIBILITY.read_text().splitlines()
    found = []
    for line in lines[lines.index(HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        what, names, why = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        assert why, f"a row without a reason: {line}"
        found.append((re.findall(r"`([^`]+)`", what), re.findall(r"`([^`]+)`", names.replace("\\|", "|"))))
    return found


def text(value: object) -> object:
    """Bytes as text, at any depth."""
    if isinstance(value, list):
        return [text(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def specification(fields: list) -> str:
    """A key specification without its notes; flags have no order."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    named.pop("notes", None)
    return str(named | {"flags": sorted(named["flags"])})


def commands(server: Server) -> dict[str, dict[str, object]]:
    """What COMMAND tells of each command and subcommand."""
    with server.connect() as connection:
        found, left = {}, text(connection.call("COMMAND"))
    while left:
        name, arity, flags, first, last, step, _, tips, specifications, below = left.pop()
        left += below
        positions = (first, last, step)
        key_specs = [specification(one) for one in specifications]
        told = {"arity": arity, "flags": set(flags), "positions": positions, "tips": set(tips), "key_specs": key_specs}
        found[name.lower()] = told
    return found


def differences(ours: dict[str, object], theirs: dict[str, object]) -> set[str]:
    """The flags and tips that only one has, and the names of the other fields that differ."""
    whole = {name for name in ("arity", "positions", "key_specs") if ours[name] != theirs[name]}
    return whole | (ours["flags"] ^ theirs["flags"]) | (ours["tips"] ^ theirs["tips"])


def test_command_info_is_that_of_redis_or_differs_as_the_table_says(new_server, compared_with: Peer, tmp_path):
    if compared_with is not REDIS_8_2:
        pytest.skip("flags, tips and specifications change with the versions")
    peer = Server(tmp_path / "peer", PeerOptions(peer=compared_with)).start()
    try:
        theirs, ours = commands(peer), commands(new_server(durability="none").start())
    finally:
        peer.close()
    common = ours.keys() & theirs.keys()
    assert len(common) > 350
    differing = {(name, what) for name in common for what in differences(ours[name], theirs[name])}
    explained = [(what, name) for whats, names in rows() for what in whats for name in names]
    used = set()
    for name, what in sorted(differing):
        covering = {row for row in explained if row[0] == what and fnmatchcase(name, row[1])}
        assert covering, f"{name}: {what} differs: {ours[name]}, not {theirs[name]}"
        used |= covering
    # A row may name several flags for several commands, of which each is used at least once.
    for whats, names in rows():
        assert all(any((what, name) in used for name in names) for what in whats), f"nothing differs any more: {whats}"
        assert all(any((what, name) in used for what in whats) for name in names), f"nothing differs any more: {names}"
