"""The acknowledged-write oracle: the states that a crashed server may show after its restart.

One `Oracle` follows one connection, the only writer of one database. It knows every command that was sent and
every one that was answered. Replies must be those of a server that executes the commands one by one. After a
restart the database must hold exactly the state after some prefix of the sent commands, and that prefix must
contain every answered command. This one comparison finds lost acknowledged writes, phantoms, torn values,
half-applied MSETs, commands applied twice, and holes (a later write of the connection without an earlier
one).

Every value carries the number of the command that wrote it, `#<number>#`, so that a reader elsewhere can
prove which command it has seen.
"""

import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from harness import resp

# Strings as bytes, lists as tuples, sets as frozensets, hashes and sorted sets as dictionaries that are never
# modified.
Value = bytes | tuple | frozenset | dict
State = dict[bytes, Value]
KEYS = [b"key:%d" % number for number in range(48)]
COUNTERS = [b"counter:%d" % number for number in range(4)]
LISTS = [b"list:%d" % number for number in range(3)]
SETS = [b"set:%d" % number for number in range(3)]
HASHES = [b"hash:%d" % number for number in range(3)]
SORTED_SETS = [b"zset:%d" % number for number in range(3)]
# Written together in every transaction.
PAIR = (b"pair:left", b"pair:right")
LIST_MEMBERS_MAX = 200
MARK = re.compile(rb"#(\d+)#")
NOISE = random.Random(20).randbytes(12 << 20).replace(b"#", b"+")


@dataclass(frozen=True)
class Operation:
    """One command, or one transaction. `apply` does to a state the same as the server, and returns the last
    reply.
    """

    number: int
    raw: bytes
    apply: Callable[[State], object]
    # The number of replies, including those of MULTI and of queued commands.
    replies: int = 1


def value_of(number: int, size: int) -> bytes:
    """A value that contains the number of its command; about `size` bytes, different for every number."""
    start = number * 31 % 4096
    return b"#%d#" % number + NOISE[start : start + size]


def newest_mark(value: bytes) -> int:
    """The number of the last command that wrote to the value: SET marks the head, APPEND the tail."""
    return max(map(int, MARK.findall(value[:40] + b"|" + value[-64:])))


class Workload:
    """Draws operations. Large values are rare, but large enough to be split in the log."""

    def __init__(self, seed: int, large_values: bool = True):
        self._random = random.Random(seed)
        self._next_number = 1
        kinds = {self._set: 60, self._mset: 12, self._append: 8, self._delete: 6, self._incr: 8, self._rename: 3}
        kinds |= {self._push: 8, self._pop: 3, self._hset: 8, self._hdel: 2, self._sadd: 6, self._srem: 3}
        kinds |= {self._zadd: 8, self._zpop: 3, self._transaction: 8}
        kinds |= {self._set_large: 0.02 if large_values else 0, self._flushdb: 0.05}
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def next(self) -> Operation:
        """The next operation of the connection."""
        number = self._next_number
        self._next_number += 1
        [kind] = self._random.choices(self._kinds, self._weights)
        return kind(number)

    def depth(self) -> int:
        """The number of operations to send before their replies are read."""
        return self._random.choice((1, 1, 2, 8, 32, 64))

    def _size(self) -> int:
        return self._random.choice((8, 8, 30, 100, 100, 1000, 4096, 16_000))

    def _key(self) -> bytes:
        return self._random.choice(KEYS)

    def _set(self, number: int) -> Operation:
        return self._set_to(number, value_of(number, self._size()))

    def _set_large(self, number: int) -> Operation:
        return self._set_to(number, value_of(number, self._random.randrange(1 << 20, 11 << 20)))

    def _set_to(self, number: int, value: bytes) -> Operation:
        key = self._key()

        def apply(state: State) -> object:
            state[key] = value
            return b"OK"

        return Operation(number, resp.encode("SET", key, value), apply)

    def _mset(self, number: int) -> Operation:
        pairs = {key: value_of(number, self._size()) for key in self._random.sample(KEYS, 4)}

        def apply(state: State) -> object:
            state.update(pairs)
            return b"OK"

        return Operation(number, resp.encode("MSET", *(part for pair in pairs.items() for part in pair)), apply)

    def _append(self, number: int) -> Operation:
        key, tail = self._key(), value_of(number, 20)

        def apply(state: State) -> object:
            state[key] = state.get(key, b"") + tail
            return len(state[key])

        return Operation(number, resp.encode("APPEND", key, tail), apply)

    def _delete(self, number: int) -> Operation:
        keys = self._random.sample(KEYS, 2)

        def apply(state: State) -> object:
            return sum(state.pop(key, None) is not None for key in keys)

        return Operation(number, resp.encode("DEL", *keys), apply)

    def _incr(self, number: int) -> Operation:
        key = self._random.choice(COUNTERS)

        def apply(state: State) -> object:
            count = int(state.get(key, b"0")) + 1
            state[key] = b"%d" % count
            return count

        return Operation(number, resp.encode("INCR", key), apply)

    def _rename(self, number: int) -> Operation:
        source, target = self._random.sample(KEYS, 2)

        def apply(state: State) -> object:
            if source not in state:
                return resp.ErrorReply("ERR no such key")
            state[target] = state.pop(source)
            return b"OK"

        return Operation(number, resp.encode("RENAME", source, target), apply)

    def _push(self, number: int) -> Operation:
        """A list of the pushed numbers; a long one is cut to the newest."""
        key, member = self._random.choice(LISTS), value_of(number, self._random.choice((0, 20, 300)))

        def apply(state: State) -> object:
            state[key] = (*state.get(key, ()), member)
            return len(state[key])

        def cut(state: State) -> object:
            if key in state:
                state[key] = state[key][-LIST_MEMBERS_MAX:]
            return b"OK"

        if self._random.random() < 0.05:
            return Operation(number, resp.encode("LTRIM", key, -LIST_MEMBERS_MAX, -1), cut)
        return Operation(number, resp.encode("RPUSH", key, member), apply)

    def _pop(self, number: int) -> Operation:
        key, count = self._random.choice(LISTS), self._random.randrange(1, 5)

        def apply(state: State) -> object:
            members = state.pop(key, None)
            if members is None:
                return None
            if members[count:]:
                state[key] = members[count:]
            return list(members[:count])

        return Operation(number, resp.encode("LPOP", key, count), apply)

    def _hset(self, number: int) -> Operation:
        key = self._random.choice(HASHES)
        fields = {b"f%d" % self._random.randrange(150): value_of(number, 20) for _ in range(3)}

        def apply(state: State) -> object:
            before = state.get(key, {})
            state[key] = before | fields
            return len(state[key]) - len(before)

        return Operation(number, resp.encode("HSET", key, *(part for pair in fields.items() for part in pair)), apply)

    def _hdel(self, number: int) -> Operation:
        key, fields = self._random.choice(HASHES), [b"f%d" % found for found in self._random.sample(range(150), 4)]
        return Operation(number, resp.encode("HDEL", key, *fields), lambda state: _discard(state, key, fields))

    def _sadd(self, number: int) -> Operation:
        key, members = self._random.choice(SETS), self._some_members()

        def apply(state: State) -> object:
            before = state.get(key, frozenset())
            state[key] = before | set(members)
            return len(state[key]) - len(before)

        return Operation(number, resp.encode("SADD", key, *members), apply)

    def _srem(self, number: int) -> Operation:
        key, members = self._random.choice(SETS), self._some_members()
        return Operation(number, resp.encode("SREM", key, *members), lambda state: _discard(state, key, members))

    def _some_members(self) -> list[bytes]:
        return [b"%d" % member for member in self._random.sample(range(800), 5)]

    def _zadd(self, number: int) -> Operation:
        """The number of the command is the score."""
        key, members = self._random.choice(SORTED_SETS), self._some_members()

        def apply(state: State) -> object:
            before = state.get(key, {})
            state[key] = before | dict.fromkeys(members, number)
            return len(state[key]) - len(before)

        return Operation(
            number, resp.encode("ZADD", key, *(part for member in members for part in (number, member))), apply
        )

    def _zpop(self, number: int) -> Operation:
        key = self._random.choice(SORTED_SETS)

        def apply(state: State) -> object:
            if key not in state:
                return []
            member, score = min(state[key].items(), key=lambda pair: (pair[1], pair[0]))
            _discard(state, key, [member])
            return [member, b"%d" % score]

        return Operation(number, resp.encode("ZPOPMIN", key), apply)

    def _transaction(self, number: int) -> Operation:
        """Two keys that are equal at any time, and a list that grows with them."""
        value = value_of(number, self._size())

        def apply(state: State) -> object:
            state.update(dict.fromkeys(PAIR, value))
            state[LISTS[0]] = (*state.get(LISTS[0], ()), b"#%d#" % number)
            return [b"OK", len(state[LISTS[0]]), b"OK"]

        commands = [
            ("MULTI",),
            ("SET", PAIR[0], value),
            ("RPUSH", LISTS[0], b"#%d#" % number),
            ("SET", PAIR[1], value),
            ("EXEC",),
        ]
        return Operation(number, b"".join(resp.encode(*command) for command in commands), apply, replies=len(commands))

    def _flushdb(self, number: int) -> Operation:
        def apply(state: State) -> object:
            state.clear()
            return b"OK"

        return Operation(number, resp.encode("FLUSHDB"), apply)


def _discard(state: State, key: bytes, members: list[bytes]) -> int:
    """Removes members of a set or names of a mapping, and the key when it becomes empty."""
    before = state.pop(key, frozenset())
    if isinstance(before, dict):
        left = {name: value for name, value in before.items() if name not in members}
    else:
        left = before - set(members)
    if left:
        state[key] = left
    return len(before) - len(left)


class Oracle:
    """See the module documentation. Fed by one thread."""

    def __init__(self, name: str):
        self.name = name
        self.acknowledged = 0
        # State and number of the last operation that is known to have been executed.
        self.state: State = {}
        self.number = 0
        self._in_flight: deque[Operation] = deque()

    def sent(self, operation: Operation) -> None:
        """Must be called before the operation is sent."""
        self._in_flight.append(operation)

    def answered(self, reply: object) -> None:
        """Takes the reply to the oldest operation without one."""
        operation = self._in_flight.popleft()
        expected = operation.apply(self.state)
        assert reply == expected, (
            f"{self.name}: {operation.raw[:60]!r} was answered {reply!r:.200}, not {expected!r:.200}"
        )
        self.number = operation.number
        self.acknowledged += 1

    def refused(self) -> None:
        """The oldest operation without a reply got an error that guarantees that nothing was executed."""
        self._in_flight.popleft()

    def emptied(self) -> None:
        """Another client emptied the database while no operation was in flight."""
        assert not self._in_flight
        self.state = {}

    def recovered(self, found: State) -> int:
        """Checks the database after a restart and continues from its state. Returns the number of operations
        without a reply that were executed nevertheless.
        """
        candidate, match, survivors = dict(self.state), None, 0
        if candidate == found:
            match = self.number
        for position, operation in enumerate(self._in_flight, start=1):
            operation.apply(candidate)
            if candidate == found:
                match, survivors = operation.number, position
        assert match is not None, self._difference(found)
        self.state, self.number = dict(found), match
        self._in_flight.clear()
        return survivors

    def _difference(self, found: State) -> str:
        lines = [
            f"{self.name}: what was recovered is no prefix of what was sent that contains all that was acknowledged;",
            f"acknowledged up to operation {self.number}, {len(self._in_flight)} more were sent. Against the former:",
        ]
        for key in sorted(self.state.keys() | found.keys()):
            expected, got = self.state.get(key), found.get(key)
            if expected != got:
                lines.append(f"  {key!r}: acknowledged {_shown(expected)}, found {_shown(got)}")
        return "\n".join(lines)


def _shown(value: Value | None) -> str:
    if isinstance(value, (tuple, frozenset, dict)):
        return f"{len(value)} members {str(value)[:300]}"
    return "nothing" if value is None else f"{len(value)} bytes with marks {MARK.findall(value)[:5]} {value[:24]!r}"
