"""Gives DUMP of one server to RESTORE of the other, for all of its keys.

Sheaf writes version 10 of the format, which all peers read, and version 12 for hashes that have or had fields that
expire, which Valkey does not.
"""

from differential.peers import VALKEY_9_1
from differential.reply import Wire, shown
from differential.state import Held, Name, held
from harness.server import Server

# A database that no round uses.
EXCHANGE = 9
# The first bytes of hashes in version 12.
EXPIRING_HASHES = (b"\x18", b"\x19")


def _is_valkey(server: Server) -> bool:
    return getattr(server.options, "peer", None) is VALKEY_9_1


def restored(source: Server, target: Server) -> tuple[dict[Name, Held], dict[Name, Held]]:
    """The values of `source` in database 0, and those that `target` restores from its dumps."""
    original = held(source.port, databases=(0,))
    reading, writing = Wire(source.port, protocol=2), Wire(target.port, protocol=2)
    try:
        writing.call("SELECT", EXCHANGE)
        names = [key for _, key in original]
        dumps = {key: dump[1] for key, dump in zip(names, reading.calls([("DUMP", key) for key in names]), strict=True)}
        if _is_valkey(target):
            dumps = {key: dump for key, dump in dumps.items() if not dump.startswith(EXPIRING_HASHES)}
        original = {(0, key): original[0, key] for key in dumps}
        commands = [
            ("RESTORE", key, max(original[0, key].expire_at_ms, 0), dump, "ABSTTL") for key, dump in dumps.items()
        ]
        for reply, key in zip(writing.calls(commands), dumps, strict=True):
            assert reply == (b"+", b"OK"), f"RESTORE of {original[0, key]}: {shown(reply)}"
        found = held(target.port, databases=(EXCHANGE,))
        writing.call("FLUSHDB")
    finally:
        reading.close()
        writing.close()
    return original, {(0, key): value for (_, key), value in found.items()}
