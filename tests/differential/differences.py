"""How the differences that the table of docs/compatibility.md allows show in replies.

Each one converts a reply of the peer into the reply that Sheaf has to give, so that only this difference is
accepted, and only beside the peers that the table lists for it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from differential.peers import Peer
from differential.reply import Tree, children, is_error, is_null
from differential.steps import Command
from differential.table import names_allowed

# rewrite(command, reply of Redis, reply of Sheaf) is the required reply of Sheaf.
Rewrite = Callable[[Command, Tree, Tree], Tree]


@dataclass(frozen=True)
class Difference:
    """One difference; its name is that of a row in the table."""

    name: str
    rewrite: Rewrite


def expected(command: Command, redis: Tree, sheaf: Tree, peer: Peer) -> Tree:
    """The required reply of Sheaf where the peer replies `redis`."""
    allowed = names_allowed(peer)
    for difference in DIFFERENCES:
        if difference.name in allowed:
            redis = difference.rewrite(command, redis, sheaf)
    return redis


def _leaves_of(commands: tuple[str, ...], allows: Callable[[Tree, Tree], bool]) -> Rewrite:
    """Replies of these commands, by the beginnings of their names, in which single leaves may differ."""

    def merged(redis: Tree, sheaf: Tree) -> Tree:
        left, right = children(redis), children(sheaf)
        if left is not None and right is not None and len(left) == len(right):
            return redis[0], tuple(map(merged, left, right))
        return sheaf if redis[0] == sheaf[0] and None not in (redis[1], sheaf[1]) and allows(redis, sheaf) else redis

    return lambda command, redis, sheaf: merged(redis, sheaf) if command.name.startswith(commands) else redis


# ---- floating point numbers --------------------------------------------------------------------------------

_DOUBLE = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?\Z")
_INTEGERS_UP_TO = 1 << 62


def shortest(value: float) -> bytes:
    """A number as Redis 8 writes it: the fewest digits that read back as the same number."""
    if value == int(value) and abs(value) <= _INTEGERS_UP_TO:
        return b"-0" if str(value) == "-0.0" else b"%d" % value
    sign, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    text = "".join(map(str, digits))
    leading = exponent + len(text) - 1
    if exponent >= 0 and leading < len(text) + 7:
        text += "0" * exponent
    elif exponent < 0 and (exponent > -7 or abs(leading) < 4):
        whole = max(len(text) + exponent, 0)
        text = f"{text[:whole] or '0'}.{text[whole:].rjust(-exponent, '0')}"
    else:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        text = f"{mantissa}e{leading:+d}"
    return f"{'-' if value < 0 else ''}{text}".encode()


def _doubles(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if not command.name.startswith(("Z", "BZ", "GEO", "EVAL")):
        return redis
    return _rewrite_leaves(redis)


def _rewrite_leaves(tree: Tree) -> Tree:
    kind, content = tree
    if isinstance(content, tuple):
        return kind, tuple(map(_rewrite_leaves, content))
    if kind in b",$" and content == b"-nan":
        # The sign that a processor gives to NaN.
        return kind, b"nan"
    if kind in b",$" and content is not None and _DOUBLE.match(content):
        # Integers are names of members, or equal in both; so are texts that no %.17g would write.
        long = b"." in content and len(content) > 15
        return (kind, shortest(float(content))) if long or b"e+" in content or b"e-" in content else tree
    return tree


def without_sign_of_zero(command: Command, tree: Tree) -> Tree:
    """The reply with every -0 as 0: Redis keeps the sign in some forms of a sorted set only."""
    if not command.name.startswith(("Z", "BZ")):
        return tree
    kind, content = tree
    if isinstance(content, tuple):
        return kind, tuple(without_sign_of_zero(command, member) for member in content)
    return (kind, b"0") if content == b"-0" else tree


def _noise_of_sums(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name not in ("INCRBYFLOAT", "HINCRBYFLOAT") or redis[0] != b"$" or sheaf[0] != b"$":
        return redis
    right, ours = Decimal(redis[1].decode()), Decimal(sheaf[1].decode())
    # The error of a 64-bit mantissa, for operands up to 1000 and for the sum; Sheaf has 53 bits for very
    # large sums.
    noise = (abs(right) + 1000) / (1 << (62 if abs(right) < 10**20 else 52))
    return sheaf if abs(right - ours) <= noise else redis


def _more_than_a_double(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name not in ("INCRBYFLOAT", "HINCRBYFLOAT"):
        return redis
    # The old value may be the one that only `strtold` accepts; then so is the sum.
    if not _only_for_redis(command.arguments[-1]) and not (redis[0] == b"$" and _only_for_redis(redis[1])):
        return redis
    # Checked before the value, so this error precedes any other of Redis.
    return (b"-", b"ERR value is not a valid float")


def _only_for_redis(number: bytes) -> bool:
    """Whether only `strtold` accepts this as a number."""
    if number.startswith((b"0x", b"-0x")):
        return True
    return _DOUBLE.match(number) is not None and math.isinf(float(number))


def _lowest_count(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_one = command.name == "LREM" and command.arguments[2:3] == (b"-9223372036854775808",)
    return sheaf if is_one and is_error(sheaf) and b"out of range" in sheaf[1] else redis


def _lowest_rank(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name != "LPOS":
        return redis
    for name, value in zip(command.arguments[3::2], command.arguments[4::2], strict=False):
        if name.upper() == b"RANK" and value == b"-9223372036854775808":
            # 7.0 accepts this one, and checks the arguments behind it and the type of the key.
            return (b"-", b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807")
        # An argument before it that is refused is refused by both.
        if not value.lstrip(b"-").isdigit():
            break
    return redis


def _endless_timeouts(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    wraps_around = command.name.startswith("B") and redis == (b"-", b"ERR timeout is negative")
    if not wraps_around or any(argument.startswith(b"-") for argument in command.arguments):
        return redis
    return sheaf if sheaf[0] == b"-" and sheaf[1].endswith(b"out of range") else redis


# ---- errors ------------------------------------------------------------------------------------------------


def _cut_at_nul(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if not (redis[0] == sheaf[0] == b"-") or not any(b"\x00" in argument for argument in command.arguments):
        return redis
    same = len(redis[1].split(b"'")[0].split(b'"')[0].rstrip())
    return sheaf if sheaf[1][:same] == redis[1][:same] else redis


def _arguments_of_bits(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name not in ("BITCOUNT", "BITPOS") or not (redis in _NOTHING_FOUND or redis[1].startswith(b"WRONGTYPE")):
        return redis
    return sheaf if sheaf[0] == b"-" and sheaf[1] in _ARGUMENT_ERRORS else redis


_NOTHING_FOUND = ((b":", b"0"), (b":", b"-1"))
_ARGUMENT_ERRORS = (
    b"ERR value is not an integer or out of range",
    b"ERR syntax error",
    b"ERR The bit argument must be 1 or 0.",
)


# ---- encodings ---------------------------------------------------------------------------------------------

# Type, name in the peer, name in Sheaf.
ENCODINGS = {
    ("string", "raw", "embstr"),
    ("string", "raw", "int"),
    ("string", "embstr", "int"),
}
# Since 7.2.
SMALL_LISTPACKS = {
    ("list", "quicklist", "listpack"),
    ("set", "hashtable", "listpack"),
}
# The same for a value that was large and is small again: in Sheaf it may return to its compact form.
SMALL_AGAIN = {
    ("list", "quicklist", "listpack"),
    ("set", "hashtable", "intset"),
    ("set", "hashtable", "listpack"),
    ("set", "listpack", "intset"),
    ("zset", "skiplist", "listpack"),
    ("hash", "hashtable", "listpack"),
}
# The same for a value that is almost too large: in Sheaf members that are named twice count twice.
NEARLY_LARGE = {
    ("set", "intset", "hashtable"),
    ("set", "listpack", "hashtable"),
    ("zset", "listpack", "skiplist"),
    ("hash", "listpack", "hashtable"),
}
# A list that was long and is short again: it stays a quicklist in Sheaf.
SHORT_AGAIN = {("list", "listpack", "quicklist")}
_SHORT_AGAIN = "A long list that is short again"
# A hash with fields that expire, or did, under whatever name.
EXPIRING_FIELDS = {("hash", "listpackex", "hashtable"), ("hash", "listpackex", "listpack")}
_EXPIRING_FIELDS = "Names of encodings with expiring fields"
_LONGER = "Strings of up to 44 bytes are embstr"
_LISTPACKS = "Small lists and sets are listpacks"


def encodings(peer: Peer) -> set[tuple[str, str, str]]:
    """The names that may differ for any value."""
    allowed = names_allowed(peer)
    named = {
        _LISTPACKS: SMALL_LISTPACKS,
        _SHORT_AGAIN: SHORT_AGAIN,
        _EXPIRING_FIELDS: EXPIRING_FIELDS,
        _LONGER: {("string", "embstr", "raw")},
    }
    return ENCODINGS.union(*(names for name, names in named.items() if name in allowed))


def _named_otherwise(pairs: set[tuple[str, str, str]]) -> Rewrite:
    # state.py, which knows the contents, judges which of the values may be compact.
    names = {(theirs.encode(), ours.encode()) for _, theirs, ours in pairs}

    def rewrite(command: Command, redis: Tree, sheaf: Tree) -> Tree:
        if command.name != "OBJECT" or redis[0] != b"$" or sheaf[0] != b"$":
            return redis
        return sheaf if (redis[1], sheaf[1]) in names else redis

    return rewrite


# ---- streams -----------------------------------------------------------------------------------------------


LAG = "The lag of groups after entries were removed"


def _lag(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    """The counters of groups as in Sheaf."""
    if command.name != "XINFO" or (redis[0] == b"-") or (sheaf[0] == b"-"):
        return redis
    return _with_counters(redis, sheaf)


def _with_counters(redis: Tree, sheaf: Tree) -> Tree:
    left, right = children(redis), children(sheaf)
    if left is None or right is None or len(left) != len(right):
        return redis
    merged, name = [], None
    for mine, theirs in zip(left, right, strict=True):
        merged.append(theirs if name in (b"lag", b"entries-read") else _with_counters(mine, theirs))
        name = mine[1]
    return redis[0], tuple(merged)


def _unbalanced(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    texts = [b"list of streams: for each stream key an ID" in (tree[1] or b"") for tree in (redis, sheaf) if is_error(tree)]
    return sheaf if texts == [True, True] else redis


def _from_last(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    """XREAD with `+`: Sheaf also finds the last entry of a stream whose last id is higher."""
    found, more = children(redis) or (), children(sheaf) or ()
    is_one = command.name == "XREAD" and b"+" in command.arguments and not is_error(redis)
    rest = iter(more)
    return sheaf if is_one and all(stream in rest for stream in found) else redis


# ---- Valkey ------------------------------------------------------------------------------------------------

_SCRIPTS = ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO", "FUNCTION")
_NAME_OF_SCRIPT = re.compile(rb"script: (?:\w+, )?on ")
# What Valkey's texts say without the name Redis.
_NEUTRAL = (
    (b"Unknown Redis command called from script", b"Unknown command called from script"),
    (b"Wrong number of args calling Redis command from script", b"Wrong number of args calling command from script"),
    (b"at least one argument for this redis lib call", b"at least one argument for this call"),
    (b"Lua redis lib command arguments must be strings", b"Command arguments must be strings"),
    (b"This Redis command is not allowed", b"This Valkey command is not allowed"),
    (b"redis.log()", b"server.log()"),
    (b"redis.register_function", b"server.register_function"),
)


def _script_errors(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    return sheaf if command.name in _SCRIPTS and _neutral(redis) == _neutral(sheaf) else redis


def _neutral(tree: Tree) -> Tree:
    kind, content = tree
    if isinstance(content, tuple):
        return kind, tuple(map(_neutral, content))
    if content is None:
        return tree
    for ours, theirs in _NEUTRAL:
        content = content.replace(ours, theirs)
    return kind, _NAME_OF_SCRIPT.sub(b"script: on ", content)


def _is_cut_big_number(redis: Tree, sheaf: Tree) -> bool:
    """Whether the peer shows a big number, which RESP2 has as a text, up to its first NUL."""
    return redis[0] in (b"(", b"$") and redis[1] == sheaf[1].split(b"\0")[0]


def _same_refusal(theirs: bytes, ours: bytes) -> Rewrite:
    """An error with another text."""
    pattern = re.compile(theirs, re.DOTALL)

    def rewrite(command: Command, redis: Tree, sheaf: Tree) -> Tree:
        return (b"-", ours) if is_error(redis) and pattern.fullmatch(redis[1]) else redis

    return rewrite


def _without(theirs: bytes, ours: bytes) -> Rewrite:
    """An error with other words in its text."""
    return lambda command, redis, sheaf: (b"-", redis[1].replace(theirs, ours)) if is_error(redis) else redis


def _refusals_of(is_one: Callable[[Command], bool]) -> Rewrite:
    """Both refuse the arguments, with other texts."""
    return lambda command, redis, sheaf: sheaf if is_one(command) and is_error(redis) and is_error(sheaf) else redis


_ON_FIELDS = ("HEXPIRE", "HPEXPIRE", "HTTL", "HPTTL", "HPERSIST", "HGETEX", "HSETEX", "HGETDEL")


def _getex(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_refused = command.name == "GETEX" and is_error(redis) and b"WRONGTYPE" not in redis[1]
    return sheaf if is_refused and (is_null(sheaf) or is_error(sheaf)) else redis


def _only_start(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    return sheaf if command.name == "BITCOUNT" and is_error(sheaf) and b"WRONGTYPE" not in sheaf[1] else redis


def _is_double(tree: Tree) -> bool:
    return tree[0] in b",$" and _DOUBLE.match(tree[1] or b"") is not None


def _is_coordinate(redis: Tree, sheaf: Tree) -> bool:
    """Whether the peer shows a coordinate with 17 decimal places, and Sheaf in its shortest form."""
    if not _is_double(sheaf):
        return False
    degrees = float(sheaf[1])
    places = f"{degrees:.17f}".rstrip("0").removesuffix(".").encode()
    return redis[1] == places and sheaf[1] == shortest(degrees)


# Numbers with fewer digits are always shown with these alone.
_DIGITS_AT_LEAST = 12


def _has_needless_digit(redis: Tree, sheaf: Tree) -> bool:
    """Whether the peer shows a double with 17 digits although fewer suffice. That happens to numbers of many digits."""
    if not _is_double(redis) or not _is_double(sheaf):
        return False
    is_long = len(_digits(redis[1])) == 17 and len(_digits(sheaf[1])) >= _DIGITS_AT_LEAST
    return is_long and sheaf[1] == shortest(float(redis[1]))


def _digits(number: bytes) -> bytes:
    """The digits of a number from the first one that is not zero, without an exponent."""
    return re.sub(rb"e.*|\D", b"", number).lstrip(b"0")


def _is_same_number(redis: Tree, sheaf: Tree) -> bool:
    """Whether both are the same double in different forms. A script may return it as text, status, error or big number."""
    is_number = redis[0] in b",$+-(" and all(_DOUBLE.match(text) for text in (redis[1], sheaf[1]))
    return is_number and float(redis[1]) == float(sheaf[1])


def _scores_of_scan(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    return _rewrite_leaves(redis) if command.name == "ZSCAN" else redis


def _empty_cursor(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_one = command.name.endswith("SCAN") and b"" in command.arguments
    return sheaf if is_one and sheaf == (b"-", b"ERR invalid cursor") else redis


def _cursor_of_strtoul(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_plain = any(re.fullmatch(rb"0|[1-9]\d*", argument) for argument in command.arguments[:2])
    is_refusal = sheaf == (b"-", b"ERR invalid cursor")
    return sheaf if command.name.endswith("SCAN") and is_refusal and not is_plain else redis


def _negative_offset(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_range = command.name.startswith(("ZRANGE", "ZREVRANGE"))
    words = [word.lower() for word in command.arguments]
    offsets = [offset for word, offset in pairwise(words) if word == b"limit"]
    is_one = is_range and any(offset.startswith(b"-") for offset in offsets)
    return sheaf if is_one and children(sheaf) == () and not is_error(redis) else redis


def _unknown_type(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    is_refused = command.name == "SCAN" and is_error(redis) and redis[1].startswith(b"ERR unknown type name")
    return sheaf if is_refused else redis


DIFFERENCES = (
    # Before the doubles, which would round these places.
    Difference("Coordinates in their shortest form", _leaves_of(("GEO",), _is_coordinate)),
    Difference("Scores and distances in their shortest form", _doubles),
    Difference("LPOS refuses the lowest RANK", _lowest_rank),
    Difference("LREM refuses the lowest count", _lowest_count),
    Difference("Timeouts of more than 64 bits are out of range", _endless_timeouts),
    Difference("BITCOUNT and BITPOS check their arguments first", _arguments_of_bits),
    Difference("Decimal sums are exact", _noise_of_sums),
    Difference("Numbers are decimal and within the range of a double", _more_than_a_double),
    Difference("Errors quote whole arguments", _cut_at_nul),
    Difference("Encodings follow from what a value is", _named_otherwise(ENCODINGS | SMALL_AGAIN | NEARLY_LARGE)),
    Difference(_LISTPACKS, _named_otherwise(SMALL_LISTPACKS)),
    Difference(_SHORT_AGAIN, _named_otherwise(SHORT_AGAIN)),
    Difference(_EXPIRING_FIELDS, _named_otherwise(EXPIRING_FIELDS)),
    Difference(LAG, _lag),
    Difference("Keys and ids of XREAD in unequal numbers", _unbalanced),
    Difference("Errors of scripts name the script", _script_errors),
    Difference("Refusals of arguments of expiring fields", _refusals_of(lambda command: command.name.startswith(_ON_FIELDS))),
    Difference("ZSCAN shows scores as ZRANGE does", _scores_of_scan),
    Difference("Doubles without a needless 17th digit", _leaves_of(("Z", "BZ", "GEO"), _has_needless_digit)),
    Difference("Numbers that scripts pass to commands are short", _leaves_of(_SCRIPTS, _is_same_number)),
    Difference("SCAN refuses an empty cursor", _empty_cursor),
    Difference("Cursors are read as numbers are since 7.2", _cursor_of_strtoul),
    Difference("GETEX looks for the key first", _getex),
    Difference("BITCOUNT with a start needs an end", _only_start),
    Difference(_LONGER, _named_otherwise({("string", "embstr", "raw")})),
    Difference("XREAD from the last entry below the last id", _from_last),
    Difference("Big numbers of scripts are whole", _leaves_of(_SCRIPTS, _is_cut_big_number)),
    Difference(
        "EVALSHA of an unknown script",
        _same_refusal(rb"NOSCRIPT No matching script\.", b"NOSCRIPT No matching script. Please use EVAL."),
    ),
    Difference("Texts of refused libraries", _refusals_of(lambda command: command.name == "FUNCTION")),
    Difference(
        "GEOSEARCH without an area names two kinds",
        _without(b", BYBOX and BYPOLYGON can", b" and BYBOX can"),
    ),
    Difference(
        "WATCH in a transaction",
        _same_refusal(rb"ERR Command 'watch' not allowed inside a transaction", b"ERR WATCH inside MULTI is not allowed"),
    ),
    Difference(
        "MULTI in a transaction",
        _same_refusal(rb"ERR Command 'multi' not allowed inside a transaction", b"ERR MULTI calls can not be nested"),
    ),
    Difference(
        "The center of GEOSEARCH is absent",
        _same_refusal(rb"ERR member .* does not exist", b"ERR could not decode requested zset member"),
    ),
    Difference("SCAN of an unknown type", _unknown_type),
    Difference("A negative offset of LIMIT finds nothing", _negative_offset),
)
