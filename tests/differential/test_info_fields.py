"""What INFO of a peer shows and that of Sheaf does not is a row of the table "Fields of INFO" in docs/compatibility.md,
with the reason. A field without a row fails the test, and so does a row that is no longer true beside a peer that it
names.
"""

import re
from fnmatch import fnmatchcase

from differential.peers import Peer, PeerOptions
from differential.table import COMPATIBILITY
from harness.server import Server

TITLE, HEADER = "### Fields of INFO\n", "| Absent | In | Why |"
# Their names depend on what has happened.
OF_EVENTS = re.compile(r"cmdstat_|errorstat_|latency_percentiles_|db\d|slave\d|listener\d")


def rows() -> list[tuple[list[str], list[str]]]:
    """The patterns of each row, "Section field", and the peers that have them."""
    lines = COMPATIBILITY.read_text().split(TITLE)[1].splitlines()
    found = []
    for line in lines[lines.index(HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        names, peers, why = (cell.strip() for cell in line[1:-1].split("|"))
        assert why, f"a row without a reason: {line}"
        found.append((re.findall(r"`([^`]+)`", names), peers.split(", ")))
    return found


def fields(server: Server) -> set[str]:
    """Every field, behind the name of its section."""
    with server.connect() as connection:
        connection.call("SET", "k", "v")
        section, found = "", set()
        for line in connection.call("INFO", "everything").decode().splitlines():
            if line.startswith("# "):
                section = line[2:]
            elif ":" in line and not OF_EVENTS.match(line):
                found.add(f"{section} {line.partition(':')[0]}")
    return found


def test_every_field_of_info_is_there_or_in_the_table(new_server, compared_with: Peer, tmp_path):
    peer = Server(tmp_path / "peer", PeerOptions(peer=compared_with)).start()
    try:
        absent = fields(peer) - fields(new_server(durability="none").start())
    finally:
        peer.close()
    patterns = [pattern for names, peers in rows() if compared_with.name in peers for pattern in names]
    unexplained = sorted(name for name in absent if not any(fnmatchcase(name, pattern) for pattern in patterns))
    assert not unexplained, f"absent, and without a row: {unexplained}"
    untrue = sorted(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in absent))
    assert not untrue, f"in the table, and not absent beside {compared_with.name}: {untrue}"
