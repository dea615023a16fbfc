"""Gives DUMP of one server to RESTORE of the other, for all of its keys.

Sheaf writes version 10 of the format, which all peers read, and version 12 for fields that expire, which Valkey
does not.
"""

from differential.peers import VALKEY_9_1
from differential.reply import Wire, shown
from differential.state import Held, Name, held
from harness.server import Server

def is_valkey(server: Server) -> bool:
    return getattr(server.options, "peer", None) is VALKEY_9_1


# A database that no round uses.
EXCHANGE = 9


def restored(source: Server, target: Server) -> tuple[dict[Name, Held], dict[Name, Held]]:
    """The values of `source` in database 0, and those that `target` restores from its dumps."""
    original = held(source.port, databases=(0,))
    names = [key for _, key in original if not (key.startswith(b"expiring:") and is_valkey(target))]
    original = {(0, key): original[0, key] for key in names}
    reading, writing = Wire(source.port, protocol=2), Wire(target.port, protocol=2)
    try:
        writing.call("SELECT", EXCHANGE)
        dumps = reading.calls([("DUMP", key) for key in names])
        commands = [
            ("RESTORE", key, max(original[0, key].expire_at_ms, 0), dump[1], "ABSTTL")
            for key, dump in zip(names, dumps, strict=True)
        ]
        for reply, key in zip(writing.calls(commands), names, strict=True):
            assert reply == (b"+", b"OK"), f"RESTORE of {original[0, key]}: {shown(reply)}"
        found = held(target.port, databases=(EXCHANGE,))
        writing.call("FLUSHDB")
    finally:
        reading.close()
        writing.close()
    return original, {(0, key): value for (_, key), value in found.items()}
