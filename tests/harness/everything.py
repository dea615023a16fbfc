"""Data of every type in every encoding, written to a server, and all that a server holds, as it can be read."""

import random

import redis

from differential.state import held
from harness.resp import Connection, ErrorReply, encode

DATABASES = (0, 1, 15)
YEAR_MS = 365 * 24 * 3600 * 1000
# Fields of XINFO STREAM that are not compared: they depend on the form in memory or on the clock, or follow
# from other fields.
NOT_DATA = ("radix-tree-keys", "radix-tree-nodes", "lag", "recorded-first-entry-id")
# Pipelines of a writer, commands of each, and the reply that ends them.
PIPELINES = 100
COMMANDS = 100
END = b"the end of a pipeline"
# Fields of XINFO STREAM that a source does not send with its later writes, not even to its own replicas: times,
# consumers without pending entries and, before Redis 7.2, the number of entries that a group has read.
DETAILS = frozenset(("seen-time", "active-time", "delivery-time", "entries-read", "idle-consumers"))
LIBRARY = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"


def has(client: redis.Redis, command: str) -> bool:
    """Whether the server has the command."""
    return client.eval("return redis.call('COMMAND', 'INFO', ARGV[1])[1] and 1 or 0", 0, command) == 1


def write_everything(port: int, chance: random.Random) -> None:
    """A key, or several, of each kind, in several databases."""
    with redis.Redis(port=port) as client:
        client.function_load(LIBRARY, replace=True)
    for database in DATABASES:
        with redis.Redis(port=port, db=database) as client:
            _write_values(client, chance)
            _write_streams(client)
            if has(client, "hpexpire"):
                _write_expiring_fields(client)
            for number, key in enumerate(sorted(client.scan_iter())):
                if number % 3 == 0:
                    client.pexpire(key, YEAR_MS + number)


def _write_values(client: redis.Redis, chance: random.Random) -> None:
    for number, text in enumerate(("", "0", "-1", "127", "32768", "2147483648", str(2**63 - 1), "01", "x" * 45, "ab" * 5000)):
        client.set(f"string:{number}", text)
    client.set(b"\x00\xff\r\n name", chance.randbytes(3000))
    client.setbit("bits", 12345, 1)
    client.pfadd("sparse", *range(20))
    client.pfadd("dense", *range(20000))
    client.geoadd("places", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    client.sadd("integers:16", 1, -2, 300)
    client.sadd("integers:32", 1, 70000)
    client.sadd("integers:64", 1, 2**40)
    for size in (1, 100, 3000):
        members = [f"{number}:{'m' * (number % 50)}" for number in range(size)]
        client.rpush(f"list:{size}", *members, *range(size))
        client.sadd(f"set:{size}", *members)
        client.zadd(f"zset:{size}", {member: number / 7 for number, member in enumerate(members)})
        client.hset(f"hash:{size}", mapping={member: number for number, member in enumerate(members)})
    client.zadd("scores", {"inf": float("inf"), "-inf": float("-inf"), "small": 5e-324, "large": 1.7e308, "third": 1 / 3})
    long = "v" * 100
    client.sadd("long:set", long, "w" * 5000)
    client.zadd("long:zset", {long: 1, "z": 1})
    client.hset("long:hash", mapping={long: long, "f": chance.randbytes(20_000)})
    client.rpush("long:list", "s", "l" * 20_000, "t")


def _write_expiring_fields(client: redis.Redis) -> None:
    for size in (3, 2000):
        key, fields = f"expiring:{size}", [f"field:{number}" for number in range(size)]
        client.hset(key, mapping=dict.fromkeys(fields, "v"))
        client.execute_command("HPEXPIRE", key, YEAR_MS, "FIELDS", 2, *fields[:2])
        client.execute_command("HPEXPIRE", key, 2 * YEAR_MS, "FIELDS", 1, fields[2])
        client.hset(key, "never", "w")
    client.hset("expiring:long", mapping={"a": "v" * 200, "b": "w"})
    client.execute_command("HPEXPIRE", "expiring:long", YEAR_MS, "FIELDS", 1, "a")


def _write_streams(client: redis.Redis) -> None:
    for number in range(1, 301):
        fields = {"a": number, "b": "x" * (number % 70)} if number % 5 else {f"other:{number}": "y"}
        client.xadd("stream", fields, id=f"{number}-{number % 3}")
    client.xgroup_create("stream", "first", "0", entries_read=0)
    client.xgroup_create("stream", "second", "5-2")
    client.xgroup_create("stream", "unread", "$")
    client.xreadgroup("first", "alice", {"stream": ">"}, count=50)
    client.xreadgroup("first", "bob", {"stream": ">"}, count=10)
    client.xreadgroup("first", "bob", {"stream": ">"}, count=10, noack=True)
    client.xreadgroup("second", "carol", {"stream": ">"}, count=5)
    client.xgroup_createconsumer("stream", "first", "idle")
    client.xack("stream", "first", "3-0", "4-1")
    client.xclaim("stream", "first", "bob", 0, ["6-0"], retrycount=7)
    # Pending references to entries that are gone.
    client.xdel("stream", "1-1", "2-2", "52-1", "7-1", "300-0")
    client.xtrim("stream", minid="6-0", approximate=False)
    # Streams without entries, with and without groups.
    client.xgroup_create("stream:none", "group", "$", mkstream=True)
    client.xadd("stream:gone", {"f": "v"}, id="7-7")
    client.xgroup_create("stream:gone", "group", "0")
    client.xreadgroup("group", "consumer", {"stream:gone": ">"})
    client.xtrim("stream:gone", maxlen=0, approximate=False)
    client.xadd("stream:high", {"f": "v"}, id=f"{2**64 - 1}-{2**64 - 2}")
    client.xadd("stream:set", {"f": "v"}, id="1-1")
    client.execute_command("XSETID", "stream:set", "9-9", "ENTRIESADDED", 20, "MAXDELETEDID", "5-5")


def all_data(port: int, details: frozenset[str] = DETAILS) -> dict:
    """All keys with values and deadlines, deadlines of fields, streams with their groups, and functions. Of the
    fields in DETAILS, only those in `details` are included.
    """
    found: dict = {
        name: (it.type, it.content, it.expire_at_ms)
        for name, it in held(port, DATABASES).items()
        # A hash without fields is left out: all its fields have expired, and the server will remove the hash.
        if it.content or it.type != "hash"
    }
    with Connection(port) as connection:
        for (database, key), (kind, content, _) in [*found.items()]:
            if kind in ("hash", "stream"):
                connection.call("SELECT", database)
            if kind == "hash":
                fields = [field for field, _ in content]
                deadlines = connection.call("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
                found[database, key, "fields"] = (
                    [-1] * len(fields) if isinstance(deadlines, ErrorReply) else deadlines
                )
            elif kind == "stream":
                found[database, key, "stream"] = _without(connection.call("XINFO", "STREAM", key, "FULL", "COUNT", 0), details)
        found["functions"] = sorted(str(_without(it, details)) for it in connection.call("FUNCTION", "LIST", "WITHCODE"))
    return found


def _without(reply: object, details: frozenset[str]) -> object:
    """A reply of alternating names and values as a dict, without NOT_DATA and the DETAILS that `details` lacks."""
    if not isinstance(reply, list):
        return reply
    is_dict = reply and len(reply) % 2 == 0 and all(isinstance(name, bytes) for name in reply[::2])
    if not is_dict:
        return [_without(part, details) for part in reply]
    found = dict(zip((name.decode(errors="replace") for name in reply[::2]), reply[1::2], strict=True))
    shown = {name: _without(value, details) for name, value in found.items() if name not in NOT_DATA}
    shown = {name: value for name, value in shown.items() if name not in DETAILS or name in details}
    if "delivery-time" not in details and "pel-count" in shown:
        # A pending entry of a group is (id, consumer, time, count), one of a consumer is (id, time, count): the
        # time is left out.
        shown["pending"] = [[*rest, number] for *rest, _, number in shown["pending"]]
    if "idle-consumers" not in details and "consumers" in shown:
        shown["consumers"] = [consumer for consumer in shown["consumers"] if consumer["pel-count"]]
    return shown


def expires_soon(client: redis.Redis) -> bool:
    """Whether a key or a field expires before the end of this year; reading removes what has expired."""
    keys = client.info("keyspace")
    soon = 0
    for database in keys:
        with redis.Redis(port=client.connection_pool.connection_kwargs["port"], db=int(database[2:])) as of_database:
            with of_database.pipeline(transaction=False) as pipeline:
                found = [*of_database.scan_iter(count=1000)]
                for key in found:
                    pipeline.pttl(key)
                soon += sum(0 < ttl_ms < 10**6 for ttl_ms in pipeline.execute())
    return soon > 0


def difference(source: dict, target: dict) -> str | None:
    """The first difference."""
    for name in sorted(source.keys() | target.keys(), key=repr):
        if source.get(name) != target.get(name):
            return f"{name}\n    source: {str(source.get(name))[:3000]}\n    target: {str(target.get(name))[:3000]}"
    return None


class Writer:
    """Writes of every kind in pipelines, some of them transactions. They are encoded before, so that the test does not
    slow them down. Keys of a type have names of their own, so that no write is refused.
    """

    def __init__(self, port: int, database: int, chance: random.Random, prefix: str):
        self._connection, self._chance = Connection(port), chance
        self._connection.call("SELECT", database)
        with redis.Redis(port=port) as client:
            servers = has(client, "hpexpire"), has(client, "delifeq")
            self._pipelines = [self._encoded(client, prefix, servers, number % 4 == 0) for number in range(PIPELINES)]

    def _encoded(self, client: redis.Redis, prefix: str, servers: tuple[bool, bool], is_transaction: bool) -> bytes:
        pipeline = client.pipeline(transaction=False)
        for _ in range(COMMANDS):
            _write_one(pipeline, self._chance, prefix, *servers)
        commands = [arguments for arguments, _ in pipeline.command_stack]
        pipeline.reset()
        commands = [("MULTI",), *commands, ("EXEC",)] if is_transaction else commands
        return b"".join(
            encode(*(repr(it) if isinstance(it, float) else it for it in command)) for command in [*commands, ("ECHO", END)]
        )

    def write(self) -> int:
        """Sends one pipeline, and returns the number of its commands once all are answered."""
        self._connection.send(self._chance.choice(self._pipelines))
        received = b""
        while not received.endswith(b"$%d\r\n%b\r\n" % (len(END), END)):
            received += self._connection.socket.recv(1 << 20)
        assert not received.startswith(b"-") and b"\r\n-" not in received, received
        return COMMANDS

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()


def _write_one(client: redis.Redis, chance: random.Random, prefix: str, expires_fields: bool, is_valkey: bool) -> None:
    key = f"{prefix}:{chance.randrange(300)}"
    text = chance.choice((str(chance.randrange(1000)), "x" * chance.randrange(200), f"m:{chance.randrange(50)}"))
    # Some deadlines pass during the copy, the others long after the test.
    ttl_ms = chance.choice((chance.randrange(1, 300), YEAR_MS, YEAR_MS + 1))
    match chance.randrange(30 if expires_fields else 24):
        case 0 | 1:
            client.set(f"s:{key}", text, px=chance.choice((None, ttl_ms)))
        case 2:
            client.incrby(f"n:{key}", chance.randrange(100))
        case 3:
            client.incrbyfloat(f"f:{key}", chance.random())
        case 4:
            client.append(f"a:{key}", text[:20])
        case 5 | 6:
            client.rpush(f"l:{key}", text, text + "!")
        case 7:
            client.lpop(f"l:{key}", 3)
        case 8:
            client.lmove(f"l:{key}", f"l:{prefix}:{chance.randrange(300)}")
        case 9:
            client.sadd(f"e:{key}", text, text + "!")
        case 10:
            client.spop(f"e:{key}", 2)
        case 11:
            client.zadd(f"z:{key}", {text: chance.random() * 100, text + "!": 1e17})
        case 12:
            client.zremrangebyrank(f"z:{key}", 0, 1)
        case 13:
            client.hset(f"h:{key}", mapping={text: text, "count": 1})
        case 14:
            client.hincrby(f"h:{key}", "count", 7)
        case 15:
            client.pexpire(f"{chance.choice('snfalezhx')}:{key}", ttl_ms)
        case 16:
            client.persist(f"{chance.choice('snfalezhx')}:{key}")
        case 17:
            client.unlink(f"{chance.choice('snfalezhx')}:{key}")
        case 18:
            client.copy(f"h:{key}", f"c:{prefix}:{chance.randrange(300)}", replace=True)
        case 19:
            client.xadd(f"x:{key}", {"f": text}, maxlen=50)
            client.execute_command("EVAL", TRY, 1, f"x:{key}", "XGROUP", "CREATE", f"x:{key}", "g", "0")
        case 20:
            client.execute_command("EVAL", TRY, 1, f"x:{key}", "XREADGROUP", "GROUP", "g", f"c{chance.randrange(3)}", "COUNT", 3, "STREAMS", f"x:{key}", ">")
        case 21:
            client.execute_command("EVAL", TRY, 1, f"x:{key}", "XAUTOCLAIM", f"x:{key}", "g", f"c{chance.randrange(3)}", 0, 0)
        case 22:
            client.eval("redis.call('set', KEYS[1], ARGV[1]) redis.call('pexpire', KEYS[1], ARGV[2]) return 1", 1, f"s:{key}", text, ttl_ms)
        case 23:
            if is_valkey:
                client.execute_command("MSETEX", 2, f"s:{key}", text, f"s:{key}+", text, "PX", ttl_ms)
                client.execute_command("SET", f"s:{key}", "was", "IFEQ", text)
            else:
                client.mset({f"s:{key}": text, f"s:{key}+": text})
        case 24 | 25:
            # One field per command: if a command also names an expired field, Valkey 9.1 sends the command
            # unchanged, and its replica takes the expired field for alive.
            for field in (text, "count"):
                client.execute_command("HPEXPIRE", f"h:{key}", ttl_ms, "FIELDS", 1, field)
        case 26:
            client.execute_command("HPERSIST", f"h:{key}", "FIELDS", 1, "count")
        case 27:
            client.execute_command("HSETEX", f"h:{key}", "PX", ttl_ms, "FIELDS", 2, "count", 3, text, text)
        case 28:
            client.execute_command("HGETEX", f"h:{key}", "PX", ttl_ms, "FIELDS", 1, "count")
        case 29:
            client.execute_command("HGETDEL", f"h:{key}", "FIELDS", 1, text)


# Runs a command in such a way that its error does not fail the transaction around it.
TRY = "redis.pcall(unpack(ARGV)) return 1"
