"""The intended differences from Redis 7.0.15: the only table of them. docs/compatibility.md describes them in
prose.

Each row converts a reply of Redis into the reply that Sheaf has to give, so that only this difference is
accepted.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from differential.reply import Tree, is_error
from differential.steps import Command

# rewrite(command, reply of Redis, reply of Sheaf) is the required reply of Sheaf.
Rewrite = Callable[[Command, Tree, Tree], Tree]


@dataclass(frozen=True)
class Difference:
    """One intended difference; its title is a heading in docs/compatibility.md."""

    title: str
    rewrite: Rewrite


def expected(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    """The required reply of Sheaf where Redis replies `redis`."""
    for difference in DIFFERENCES:
        redis = difference.rewrite(command, redis, sheaf)
    return redis


# ---- floating point numbers --------------------------------------------------------------------------------

_DOUBLE = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?\Z")
_INTEGERS_UP_TO = 1 << 52


def shortest(value: float) -> bytes:
    """A number as Redis 7.2 writes it: the fewest digits that read back as the same number."""
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


def _lowest_rank(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name != "LPOS" or b"-9223372036854775808" not in command.arguments:
        return redis
    # Arguments are checked before keys: 7.0 accepts this one and checks the type of the key.
    if is_error(redis) and not redis[1].startswith(b"WRONGTYPE"):
        return redis
    return (b"-", b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807")


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

# Type, name in Redis, name in Sheaf.
ENCODINGS = {
    ("string", "raw", "embstr"),
    ("string", "raw", "int"),
    ("string", "embstr", "int"),
    # Since 7.2.
    ("list", "quicklist", "listpack"),
    ("set", "hashtable", "listpack"),
}
# The same for a value that was large and is small again: in Sheaf it may return to its compact form.
SMALL_AGAIN = {
    ("set", "hashtable", "intset"),
    ("set", "hashtable", "listpack"),
    ("zset", "skiplist", "listpack"),
    ("hash", "hashtable", "listpack"),
}
# The same for a value that is almost too large: in Sheaf members that are named twice count twice.
NEARLY_LARGE = {
    ("set", "intset", "hashtable"),
    ("zset", "listpack", "skiplist"),
    ("hash", "listpack", "hashtable"),
}


def _encodings(command: Command, redis: Tree, sheaf: Tree) -> Tree:
    if command.name != "OBJECT" or redis[0] != b"$" or sheaf[0] != b"$":
        return redis
    # state.py, which knows the contents, judges which of the values may be compact.
    named_otherwise = {(theirs.encode(), ours.encode()) for _, theirs, ours in ENCODINGS | SMALL_AGAIN | NEARLY_LARGE}
    return sheaf if (redis[1], sheaf[1]) in named_otherwise else redis


DIFFERENCES = (
    Difference("Scores and distances in their shortest form", _doubles),
    Difference("LPOS refuses the lowest RANK", _lowest_rank),
    Difference("Timeouts of more than 64 bits are out of range", _endless_timeouts),
    Difference("BITCOUNT and BITPOS check their arguments first", _arguments_of_bits),
    Difference("Decimal sums are exact", _noise_of_sums),
    Difference("Numbers are decimal and within the range of a double", _more_than_a_double),
    Difference("Errors quote whole arguments", _cut_at_nul),
    Difference("Encodings follow from what a value is", _encodings),
)
