"""All data of a server, in a form that two servers can be compared by."""

from dataclasses import dataclass

from differential import differences
from differential.peers import REDIS_7_0, Peer
from differential.reply import Tree, Wire, children
from differential.steps import TTL_TOLERANCE_MS
from differential.table import names_allowed

DATABASES = (0, 1, 2)
READ = {
    "string": ("GET",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",),
    "stream": ("XRANGE", "-", "+"),
}
# The bytes in which a HyperLogLog keeps its last count, which Redis updates when it counts and Sheaf does
# not.
COUNT_OF_HYPERLOGLOG = slice(8, 16)
# The bytes that each negative list-max-listpack-size stands for; with a positive one, those of -2.
BYTES_OF_LISTPACK = {-1: 4096, -2: 8192, -3: 16384, -4: 32768, -5: 65536}

Name = tuple[int, bytes]


@dataclass(frozen=True)
class Held:
    """One key's value."""

    type: str
    encoding: str
    expire_at_ms: int
    content: object
    # Of a stream: its groups, each with its counters.
    groups: tuple[dict[bytes, Tree], ...] = ()


def held(port: int, databases: tuple[int, ...] = DATABASES) -> dict[Name, Held]:
    """All keys of the databases."""
    wire = Wire(port, protocol=2)
    try:
        return {(database, key): value for database in databases for key, value in _of_database(wire, database)}
    finally:
        wire.close()


def _of_database(wire: Wire, database: int) -> list[tuple[bytes, Held]]:
    wire.call("SELECT", database)
    keys = sorted(member[1] for member in children(wire.call("KEYS", "*")))
    types = [reply[1].decode() for reply in wire.calls([("TYPE", key) for key in keys])]
    encodings = wire.calls([("OBJECT", "ENCODING", key) for key in keys])
    expiries = wire.calls([("PEXPIRETIME", key) for key in keys])
    contents = wire.calls([(READ[kind][0], key, *READ[kind][1:]) for key, kind in zip(keys, types, strict=True)])
    streams = [key for key, kind in zip(keys, types, strict=True) if kind == "stream"]
    groups = dict(zip(streams, map(_groups, wire.calls([("XINFO", "GROUPS", key) for key in streams])), strict=True))
    return [
        (key, Held(kind, (encoding[1] or b"").decode(), int(expiry[1]), _content(kind, content), groups.get(key, ())))
        for key, kind, encoding, expiry, content in zip(keys, types, encodings, expiries, contents, strict=True)
    ]


def _groups(reply: Tree) -> tuple[dict[bytes, Tree], ...]:
    rows = [children(group) for group in children(reply)]
    return tuple({name[1]: value for name, value in zip(row[::2], row[1::2], strict=True)} for row in rows)


def _content(kind: str, reply: Tree) -> object:
    if kind == "stream":
        return repr(children(reply))
    if kind == "string":
        return _without_count(reply[1])
    members = [member[1] for member in children(reply)]
    if kind == "set":
        return sorted(members)
    pairs = list(zip(members[::2], members[1::2], strict=True)) if kind in ("zset", "hash") else members
    if kind == "hash":
        return sorted(pairs)
    return [(member, float(score)) for member, score in pairs] if kind == "zset" else pairs


def _without_count(value: bytes) -> bytes:
    if not value.startswith(b"HYLL") or len(value) < 16:
        return value
    return value[: COUNT_OF_HYPERLOGLOG.start] + bytes(8) + value[COUNT_OF_HYPERLOGLOG.stop :]


WITHOUT_ENCODING = ("type", "content", "expire_at_ms", "groups")
FIELDS = (*WITHOUT_ENCODING, "encoding")


def first_difference(
    redis: dict[Name, Held],
    sheaf: dict[Name, Held],
    fields: tuple[str, ...] = FIELDS,
    limits: dict[str, int] | None = None,
    peer: Peer = REDIS_7_0,
) -> tuple[str, str, str] | None:
    """The first difference, in the peer and in Sheaf. `limits` are those of compact forms."""
    for name in sorted(redis.keys() | sheaf.keys()):
        ours, theirs = sheaf.get(name), redis.get(name)
        if ours is None or theirs is None:
            return f"key {name}", str(theirs)[:400], str(ours)[:400]
        for field in fields:
            # The form of a hash with fields that expire has other names, and other limits.
            if field == "encoding" and name[1].startswith(b"expiring:"):
                continue
            left, right = getattr(theirs, field), getattr(ours, field)
            if left != right and not _close(field, theirs, left, right, limits or {}, peer):
                return f"{field} of key {name}, a {theirs.type}", str(left)[:400], str(right)[:400]
    return None


def _close(field: str, value: Held, left: object, right: object, limits: dict[str, int], peer: Peer) -> bool:
    if field == "expire_at_ms":
        return min(left, right) > 0 and abs(left - right) <= TTL_TOLERANCE_MS
    if field == "groups":
        return differences.LAG in names_allowed(peer) and _without_counters(left) == _without_counters(right)
    if field != "encoding":
        return False
    named = (value.type, left, right)
    if named in differences.NEARLY_LARGE:
        return not _is_small(value, left, limits, share=0.5)
    return named in differences.encodings(peer) or named in differences.SMALL_AGAIN and _is_small(value, right, limits)


def _without_counters(groups: tuple[dict[bytes, Tree], ...]) -> list[dict[bytes, Tree]]:
    return [{name: value for name, value in group.items() if name not in (b"entries-read", b"lag")} for group in groups]


def _is_small(value: Held, encoding: str, limits: dict[str, int], share: float = 1) -> bool:
    """Whether the value may be in this compact form, with at most this share of the permitted members."""
    if value.type == "list":
        return _is_short(value.content, limits.get("list-max-listpack-size", -2))
    entries = limits.get(f"{value.type}-max-{encoding}-entries", 128)
    longest = limits.get(f"{value.type}-max-{encoding}-value", 64)
    members = [member for member, _ in value.content] if value.type in ("zset", "hash") else value.content
    if value.type == "hash":
        members = [part for pair in value.content for part in pair]
        entries *= 2
    return len(members) <= share * entries and max(map(len, members)) <= longest


def _is_short(elements: list[bytes], size: int) -> bool:
    """Whether a listpack may hold a list: `size` is a number of elements, or stands for a number of bytes."""
    elements_max, bytes_max = (size, BYTES_OF_LISTPACK[-2]) if size > 0 else (None, BYTES_OF_LISTPACK[size])
    return (elements_max is None or len(elements) <= elements_max) and sum(map(len, elements)) <= bytes_max
