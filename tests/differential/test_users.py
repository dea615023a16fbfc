"""Users: random rules are taken or refused by Sheaf as by a peer, shown in the same way, and judge the same
calls in the same way.

A rule set goes to ACL SETUSER of both servers, then ACL GETUSER, ACL LIST and ACL DRYRUN are compared. Texts
are compared with those of Redis 8 alone; verdicts with those of all peers.
"""

from random import Random

import pytest

from differential.draw import Draw
from differential.peers import REDIS_8_2, PeerOptions
from harness.resp import Connection, ErrorReply, encode
from harness.server import Server

USER = "user"
# Rule sets whose verdicts are compared with what happens, by commands that change nothing of the connection.
RULE_SETS_TRIED = 200
NOT_TRIED = ("AUTH", "MULTI", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "BLMOVE", "BZMPOP", "CONFIG", "SELECT", "FLUSHALL")

COMMANDS = ("get", "set", "mget", "config", "config|get", "config|set", "del", "exists", "hset", "publish", "subscribe", "select")
CATEGORIES = ("all", "read", "write", "string", "hash", "keyspace", "fast", "slow", "dangerous", "admin", "pubsub", "connection")
PATTERNS = ("a*", "b?", "[cd]", "x", "*")

CALLS = (
    ("GET", "a1"), ("GET", "b1"), ("GET", "x"), ("SET", "a1", "v"), ("SET", "a1", "v", "GET"), ("MGET", "a", "x"), ("DEL", "c"),
    ("EXISTS", "d"), ("STRLEN", "x"), ("COPY", "a", "b1"), ("RENAME", "a", "x"), ("SMOVE", "a", "x", "m"), ("LMOVE", "x", "a", "LEFT", "LEFT"),
    ("SINTERSTORE", "a", "x"), ("ZUNIONSTORE", "a", "1", "x"), ("ZUNION", "1", "b2"), ("EVAL", "return 1", "1", "a"), ("SORT", "a", "STORE", "x"),
    ("GEORADIUS", "a", "0", "0", "1", "m", "STORE", "x"), ("BITFIELD", "x", "GET", "u8", "0"), ("BITFIELD", "x", "SET", "u8", "0", "1"),
    ("XREAD", "COUNT", "1", "STREAMS", "a", "0"), ("XADD", "a", "*", "f", "v"), ("PFMERGE", "a", "x"), ("PFCOUNT", "a", "x"), ("OBJECT", "ENCODING", "a"),
    ("CONFIG", "GET", "port"), ("CONFIG", "SET", "port", "1"), ("SELECT", "0"), ("SELECT", "1"), ("PUBLISH", "a1", "m"), ("SUBSCRIBE", "a1", "x"),
    ("PSUBSCRIBE", "a*"), ("PSUBSCRIBE", "x"), ("SPUBLISH", "x", "m"), ("KEYS", "*"), ("FLUSHALL",), ("PING",), ("AUTH", "x"), ("MULTI",),
    ("HSET", "a", "f", "v"), ("HGET", "x", "f"), ("TOUCH", "x"), ("UNLINK", "a"), ("GETDEL", "a"), ("INCR", "x"), ("ACL", "WHOAMI"), ("ACL", "LIST"),
    # Keys that stand where one would not look, or that look like options.
    ("SORT", "a", "GET", "STORE", "STORE", "x"), ("SORT", "a", "LIMIT", "0", "1", "STORE", "x"), ("SORT", "a", "STORE", "x", "STORE", "b1"),
    ("GEORADIUS", "a", "0", "0", "1", "m", "STOREDIST", "x"), ("GEORADIUSBYMEMBER", "a", "m", "1", "m", "STOREDIST", "x"),
    ("GEOSEARCHSTORE", "x", "a", "FROMLONLAT", "0", "0", "BYRADIUS", "1", "m"), ("ZRANGESTORE", "x", "a", "0", "-1"), ("BITOP", "AND", "a", "x", "b1"),
    ("XREADGROUP", "GROUP", "STREAMS", "x", "STREAMS", "a", ">"), ("XREAD", "STREAMS", "a", "x", "0", "0"), ("XGROUP", "CREATE", "x", "g", "$"),
    ("XINFO", "STREAM", "x"), ("EVAL", "return 1", "2", "a", "x"), ("EVAL", "return 1", "0", "x"), ("EVAL_RO", "return 1", "1", "x"), ("LCS", "a", "x"),
    ("FCALL", "f", "1", "x"), ("LMPOP", "2", "a", "x", "LEFT"), ("ZMPOP", "1", "x", "MIN"), ("SINTERCARD", "2", "a", "x"), ("MSETNX", "a", "1", "x", "1"),
    ("WATCH", "a", "x"), ("MEMORY", "USAGE", "x"), ("DUMP", "x"), ("RESTORE", "x", "0", "v"), ("BLMOVE", "a", "x", "LEFT", "LEFT", "0.01"),
    ("BZMPOP", "0.01", "1", "x", "MIN"), ("SSUBSCRIBE", "a1", "x"), ("ZINTERSTORE", "a", "2", "b1", "x"), ("SUNIONSTORE", "x", "a"), ("MOVE", "x", "1"),
)  # fmt: skip


def rule(draw: Draw) -> str:
    """One rule."""
    sign = draw.one("+-")
    return draw.one(
        (
            f"{sign}{draw.one(COMMANDS)}",
            f"{sign}@{draw.one(CATEGORIES)}",
            f"~{draw.one(PATTERNS)}",
            f"%{draw.one(('R', 'W', 'RW'))}~{draw.one(PATTERNS[:-1])}",
            f"&{draw.one(PATTERNS)}",
            draw.one(("on", "off", "nopass", "resetpass", ">one", ">two", "<one", "allkeys", "resetkeys", "allchannels", "resetchannels", "reset")),
            draw.one(("+select|1", "+config|nosuch", "+nosuch", "@read", "x", "~", "%~a", "%X~a", ">", "#12", "-select|1", "clearselectors")),
            f"({sign}{draw.one(COMMANDS)} ~{draw.one(PATTERNS)})",
        )
    )


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


def replies(connection: Connection, commands: list[tuple[str, ...]]) -> list:
    """The replies to commands that are sent together."""
    connection.send(b"".join(encode(*command) for command in commands))
    return [connection.read() for _ in commands]


def is_refused(verdict: object) -> bool:
    """Whether a reply of ACL DRYRUN denies the call."""
    return verdict != b"OK"


def test_rules_mean_the_same(pair, compared_with, request):
    seed, rule_sets = (request.config.getoption(name) for name in ("seed", "rule_sets"))
    draw = Draw(Random(seed), compared_with)
    shows_alike = compared_with is REDIS_8_2
    dry_runs = [("ACL", "DRYRUN", USER, *call) for call in CALLS]
    shown = [("ACL", "LIST"), ("ACL", "GETUSER", USER)] if shows_alike else []
    for number in range(rule_sets):
        rules = draw.many(lambda: rule(draw), 1, 7)
        start = ["reset"] if draw.chance(0.5) else []
        words = ("ACL", "SETUSER", USER, *start, *rules)
        place = f"rule set {number} of seed {seed}: {words}"
        (taken, *ours), (wanted, *theirs) = (replies(side, [words, *shown, *dry_runs]) for side in pair)
        assert isinstance(taken, ErrorReply) == isinstance(wanted, ErrorReply), f"{place}: {taken}, {wanted}"
        if shows_alike and not any(word[0] in "<>#" for word in rules):
            assert taken == wanted, place
        for left, right in zip(ours[: len(shown)], theirs[: len(shown)], strict=True):
            assert left == right, place
        for call, verdict, other in zip(CALLS, ours[len(shown) :], theirs[len(shown) :], strict=True):
            assert is_refused(verdict) == is_refused(other), f"{place} {call}: {verdict}, {other}"
            if shows_alike:
                assert verdict == other, f"{place} {call}"


@pytest.mark.sheaf_only
def test_what_dryrun_says_is_what_happens(server, compared_with, request):
    seed = request.config.getoption("seed")
    draw = Draw(Random(seed), compared_with)
    calls = [call for call in CALLS if call[0] not in NOT_TRIED]
    with server.connect() as admin, server.connect() as user:
        for number in range(RULE_SETS_TRIED):
            rules = draw.many(lambda: rule(draw), 1, 7)
            place = f"rule set {number} of seed {seed}: {rules}"
            admin.call("ACL", "SETUSER", USER, *rules)
            assert admin.call("ACL", "SETUSER", USER, "on", ">password") == b"OK", place
            assert user.call("AUTH", USER, "password") == b"OK", place
            verdicts = replies(admin, [("ACL", "DRYRUN", USER, *call) for call in calls])
            for call, verdict, reply in zip(calls, verdicts, replies(user, calls), strict=True):
                is_denied = isinstance(reply, ErrorReply) and reply.text.startswith("NOPERM")
                assert is_denied == is_refused(verdict), f"{place} {call}: {verdict}, {reply}"


def names(reply: list) -> set[bytes]:
    """Names of commands in lower case."""
    return {name.lower() for name in reply}


def test_categories_are_those_of_redis(pair, compared_with):
    if compared_with is not REDIS_8_2:
        pytest.skip("the categories of a command change with the versions")
    ours, theirs = pair
    all_ours = names(ours.call("COMMAND", "LIST"))
    both = all_ours & names(theirs.call("COMMAND", "LIST"))
    both |= {name for name in all_ours if b"|" in name and name.split(b"|")[0] in both}
    categories = set(theirs.call("ACL", "CAT"))
    assert categories <= set(ours.call("ACL", "CAT"))
    theirs_all = set().union(*(names(theirs.call("ACL", "CAT", category)) for category in categories))
    for category in sorted(categories):
        left, right = names(ours.call("ACL", "CAT", category)), names(theirs.call("ACL", "CAT", category))
        common = both & theirs_all
        assert left & common == right & common, category


def test_uses_of_keys_are_those_of_redis(pair, compared_with):
    if compared_with is not REDIS_8_2:
        pytest.skip("the flags of keys change with the versions")
    ours, theirs = pair
    for call in CALLS:
        mine, wanted = (side.call("COMMAND", "GETKEYSANDFLAGS", *call) for side in pair)
        assert isinstance(mine, ErrorReply) == isinstance(wanted, ErrorReply), call
        if not isinstance(mine, ErrorReply):
            assert [(key, set(flags)) for key, flags in mine] == [(key, set(flags)) for key, flags in wanted], call
