"""What a peer has and Sheaf has not is a row of the table "Absent" in docs/compatibility.md, with the reason;
settings of Redis are shown, taken and refused as the peer does.

The table is read: a command, a subcommand or a setting without a row fails the test, and so does a row that is no
longer true beside one of the peers that it names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest

from differential.peers import PEERS, REDIS_7_0, Peer, PeerOptions
from differential.table import COMPATIBILITY
from harness.resp import ErrorReply
from harness.server import Server, run_sheaf

HEADER = "| Absent | In | Why |"
SETTING = "CONFIG "

# Settings that a peer treats in another way, and how.
NOT_COMPARED = {
    "dbfilename",  # 7.0 calls it protected, not immutable.
    "io-threads",  # Valkey can change it.
    "rdma-port",  # Valkey's build decides.
    "locale-collate",  # The system's locales decide.
    "cluster-announce-ip",  # 7.0 takes any text.
    "cluster-announce-human-nodename",
    # Refused here: it would be a promise.
    "replica-read-only", "slave-read-only",
}  # fmt: skip
NO_VALUE = "no value of any kind"


@dataclass(frozen=True)
class Row:
    """Names that Sheaf lacks, for one reason."""

    # Commands, `container|sub` for subcommands; of settings after "CONFIG ". `*` stands for anything.
    patterns: tuple[str, ...]
    peers: frozenset[str]

    def covers(self, name: str) -> bool:
        """Whether it explains the absence of this name."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


def rows() -> list[Row]:
    """The rows of the table."""
    lines = COMPATIBILITY.read_text().splitlines()
    found = []
    for line in lines[lines.index(HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        names, peers, why = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        assert why, f"a row without a reason: {line}"
        patterns = tuple(name.replace("\\|", "|") for name in re.findall(r"`([^`]+)`", names))
        found.append(Row(tuple(pattern_of(name) for name in patterns), frozenset(peers.split(", "))))
    return found


def pattern_of(name: str) -> str:
    """`CLUSTER MEET` is the command cluster|meet."""
    return name if name.startswith(SETTING) else name.lower().replace(" ", "|")


def decoded(names: Iterable[bytes]) -> set[str]:
    """Names as text."""
    return {name.decode() for name in names}


def has(connection) -> set[str]:
    """The names of all commands and settings of a server."""
    commands = {name.lower() for name in decoded(connection.call("COMMAND", "LIST"))}
    settings = decoded(connection.call("CONFIG", "GET", "*")[::2])
    return commands | {SETTING + name for name in settings}


@pytest.fixture
def pair(new_server, compared_with, tmp_path):
    """A connection to Sheaf and one to the peer."""
    peer = Server(tmp_path / "peer", PeerOptions(peer=compared_with)).start()
    sheaf = new_server(durability="none").start()
    try:
        with sheaf.connect() as ours, peer.connect() as theirs:
            yield ours, theirs
    finally:
        peer.close()


def test_the_peers_of_the_table_are_peers():
    strangers = {peer for row in rows() for peer in row.peers} - {peer.name for peer in PEERS}
    assert not strangers


def test_what_is_absent_is_in_the_table(pair, compared_with: Peer):
    ours, theirs = (has(side) for side in pair)
    absent = theirs - ours
    named = [row for row in rows() if compared_with.name in row.peers]
    unexplained = sorted(name for name in absent if not any(row.covers(name) for row in named))
    assert not unexplained, f"absent, and without a row: {unexplained}"
    patterns = [pattern for row in named for pattern in row.patterns]
    untrue = sorted(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in absent))
    assert not untrue, f"in the table, and not absent beside {compared_with.name}: {untrue}"


def quoted(word: bytes) -> str:
    """A word of a file of Redis, whatever its bytes are."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


def test_a_file_with_all_settings_of_the_peer_is_read(pair, compared_with: Peer, tmp_path):
    """But for those that the table names, each line of such a file is taken over or has no effect."""
    ours, theirs = (dict(zip(*[iter(side.call("CONFIG", "GET", "*"))] * 2, strict=True)) for side in pair)
    # Of the peer's own.
    values = {name: value for name, value in theirs.items() if name in ours and name not in {b"dir", b"bind"}}
    # Of this one, Redis takes a value of several words only in quotes.
    words = {name: [value] if name == b"proc-title-template" else value.split() for name, value in values.items()}
    lines = [f"{name.decode()} {' '.join(map(quoted, some or [b'']))}" for name, some in words.items()]
    assert len(lines) > 150
    conf = tmp_path / "redis.conf"
    conf.write_text("\n".join(lines))
    done = run_sheaf("config", "convert", str(conf))
    assert done.returncode == 0, done.stderr
    assert "# Not taken over" not in done.stdout, done.stdout


def inert_names() -> list[str]:
    """The settings that the documentation lists as having no effect."""
    _, _, text = COMPATIBILITY.read_text().partition("## Settings without an effect\n")
    listed = text[text.index("\n- ") : text.index("\nWhat they are about")]
    return re.findall(r"`([a-z0-9_-]+)`", listed)


def settings_that_differ(pair, compared_with: Peer) -> Iterable[str]:
    """What is not as beside the peer, in words."""
    ours, theirs = pair
    for name in inert_names():
        if name in NOT_COMPARED:
            continue
        shown, wanted = (side.call("CONFIG", "GET", name) for side in pair)
        if len(shown) != 2:
            yield f"{name} is not known"
            continue
        if not wanted:
            continue
        if compared_with is REDIS_7_0 and shown != wanted:
            yield f"{name} is {shown[1]}, not {wanted[1]}"
        for value in (NO_VALUE, wanted[1]):
            mine, other = (side.call("CONFIG", "SET", name, value) for side in pair)
            is_compared = compared_with is REDIS_7_0 or not isinstance(other, ErrorReply)
            if str(mine) != str(other) and (is_compared or not isinstance(mine, ErrorReply)):
                yield f"CONFIG SET {name} {value!r}: {mine}, not {other}"
            if mine == b"OK" and ours.call("CONFIG", "GET", name)[1] != theirs.call("CONFIG", "GET", name)[1]:
                yield f"CONFIG SET {name} {value!r} is shown as {ours.call('CONFIG', 'GET', name)}"


def test_settings_without_an_effect_are_shown_taken_and_refused_as_in_redis(pair, compared_with: Peer):
    differing = list(settings_that_differ(pair, compared_with))
    assert not differing, "\n".join(differing)
