"""Scripts: their arguments, conversions of values, errors and the places where they were raised.

Keys are the family's own, `script:*`, so that the result of a script does not depend on other families.
"""

from hashlib import sha1

from differential.draw import Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("script")

KEYS = ("script:a", "script:b", "script:c", "script:list")

# Values that a script returns unchanged.
VALUES = (
    "1",
    "-1",
    "3.99",
    "-3.99",
    "1e20",
    "0/0",
    "'text'",
    "''",
    "true",
    "false",
    "nil",
    "{}",
    "{1, 2, 3}",
    "{1, nil, 3}",
    "{1, {2, {3}}}",
    "{'a', true, false, 2.5}",
    "{ok = 'fine'}",
    "{ok = 'two\\r\\nlines'}",
    "{err = 'MY error'}",
    "{err = 'error'}",
    "{double = 3.5}",
    "{big_number = '12345678901234567890'}",
    "{map = {a = 1}}",
    "{set = {a = true}}",
    "{verbatim_string = {format = 'txt', string = 'x'}}",
    "{x = 1}",
    "redis.error_reply('x')",
    "redis.error_reply('-CODE x')",
    "redis.error_reply('CODE x')",
    "redis.error_reply(1)",
    "redis.status_reply('x')",
    "redis.sha1hex('x')",
    "#KEYS",
    "#ARGV",
    "KEYS[1]",
    "ARGV[1]",
    "ARGV[3]",
    "type(redis.call)",
    "tostring(1/3)",
    "tostring(10/2)",
    "tostring(1e15)",
    "tonumber('0x10')",
    "cjson.encode({1, 2.5, 'x', true, cjson.null})",
    "cjson.encode({})",
    "cjson.encode({a = 'b/\"c\"'})",
    "cjson.encode(ARGV)",
    "cjson.decode('[1,2,{\"a\":[]}]')[3].a",
    "cjson.decode('{\"a\":1.5}').a * 2",
    "cjson.decode(ARGV[1])",
    "cmsgpack.unpack(cmsgpack.pack(ARGV))",
    "cmsgpack.pack(1, 'x', {1, 2}, true, nil, 300, -5, 2.5)",
    "cmsgpack.unpack(ARGV[1])",
    "struct.pack('>I2i4sd', 1, -2, 'x', 1.5)",
    "{struct.unpack('<I1', ARGV[1])}",
    "struct.size('>!4I1I4c5')",
    "bit.bxor(0xffff, 0xff)",
    "bit.tohex(-1)",
    "bit.lshift(1, 31)",
    "string.format('%5.2f|%d|%s|%q', 1.234, 5, 'x', 'y')",
    "('a,b,,c'):gsub(',', ';')",
    "{('key=value'):match('(%w+)=(%w+)')}",
    "{('x'):find('x', 1, true)}",
    "('x'):rep(3)",
    "table.concat({1, 2, 3}, '-')",
    "select('#', 1, 2)",
    "{unpack({1, 2, 3})}",
    "{pcall(error, {err = 'caught'})}",
    "select(2, pcall(error, 'caught'))",
    "math.floor(2.7)",
    "redis.call('echo', 0.1)",
    "redis.call('echo', -0)",
    "redis.call('echo', 1e17)",
    "redis.call('echo', 12345678901234567890)",
    "redis.call('echo', 1e-7)",
    "redis.call('echo', 1e300)",
    "{redis.LOG_DEBUG, redis.LOG_WARNING}",
)

# Failing scripts.
FAILURES = (
    "error('raised')",
    "error({err = 'RAISED here'})",
    "return undefined_name",
    "undefined_name = 1",
    "return nil + 1",
    "return redis.call('nosuch')",
    "return redis.call('get')",
    "return redis.call('subscribe', 'x')",
    "return redis.call('multi')",
    "return redis.call()",
    "return redis.call('set', 'script:a', {})",
    "return redis.pcall('nosuch')",
    "return redis.pcall('get')",
    "return redis.pcall('nosuch').err",
    "return redis.sha1hex()",
    "return redis.log('x')",
    "return redis.log('x', 'y')",
    "return redis.setresp(5)",
    "return redis.set_repl(9)",
    "return cjson.decode('{')",
    "return cjson.decode('[1,]')",
    "return cjson.encode({[1] = 1, [100] = 2})",
    "return ('x'):rep(-1) .. nil",
    "rawset(_G, 'x', 1)",
    "redis.x = 1",
    "x x",
    "return",
    "",
)

# Scripts that use their keys.
ACTIONS = (
    "redis.call('SET', KEYS[1], ARGV[1])",
    "redis.call('GET', KEYS[1])",
    "redis.call('INCR', KEYS[1])",
    "redis.pcall('INCR', KEYS[1])",
    "redis.call('INCRBY', KEYS[1], 5)",
    "redis.call('SET', KEYS[1], 2.5)",
    "redis.call('SET', KEYS[1], 100000000000000000000)",
    "redis.call('APPEND', KEYS[1], ARGV[2])",
    "redis.call('DEL', KEYS[1], KEYS[2])",
    "redis.call('EXISTS', KEYS[1], KEYS[2])",
    "redis.call('RENAME', KEYS[1], KEYS[2])",
    "redis.call('LPUSH', 'script:list', ARGV[1], ARGV[2])",
    "redis.call('RPOP', 'script:list')",
    "redis.call('LRANGE', 'script:list', 0, -1)",
    "redis.call('LLEN', 'script:list')",
    "redis.call('SET', 'script:c', ARGV[1])",
    "redis.call('MGET', 'script:a', 'script:b', 'script:c')",
    "redis.call('TYPE', KEYS[1])",
    "redis.call('TTL', KEYS[1])",
    "redis.call('PING')",
    "redis.call('ECHO', ARGV[1])",
)


# Shows the values that a script receives, independent of the order of fields, without the mark that an error is
# counted already.
DESCRIBE = (
    "local function describe(value) "
    "if type(value) ~= 'table' then return type(value) .. ':' .. tostring(value) end "
    "local parts = {} "
    "for name, part in pairs(value) do if name ~= 'ignore_error_stats_update' then "
    "parts[#parts + 1] = tostring(name) .. '=' .. describe(part) end end "
    "table.sort(parts) return '{' .. table.concat(parts, ',') .. '}' end "
)

# Replies of every kind, for the values set by `FILL`.
FILL = (
    "redis.call('DEL', 'script:h', 'script:s', 'script:z', 'script:l', 'script:x') "
    "redis.call('HSET', 'script:h', 'f', ARGV[1]) redis.call('SADD', 'script:s', 'm') "
    "redis.call('ZADD', 'script:z', 1.5, 'a', 2, 'b') redis.call('RPUSH', 'script:l', 'x', 2, ARGV[2]) "
    "redis.call('XADD', 'script:x', '5-1', 'f', 'v') "
)
REPLIES = (
    "'HGETALL', 'script:h'",
    "'HGET', 'script:h', 'none'",
    "'HMGET', 'script:h', 'f', 'none'",
    "'HRANDFIELD', 'script:h', 1, 'WITHVALUES'",
    "'SMEMBERS', 'script:s'",
    "'SISMEMBER', 'script:s', 'm'",
    "'SMISMEMBER', 'script:s', 'm', 'n'",
    "'SPOP', 'script:s', 5",
    "'ZSCORE', 'script:z', 'a'",
    "'ZMSCORE', 'script:z', 'a', 'none'",
    "'ZRANGE', 'script:z', 0, -1, 'WITHSCORES'",
    "'ZINCRBY', 'script:z', 1.5, 'b'",
    "'ZPOPMIN', 'script:z'",
    "'ZRANK', 'script:z', 'none'",
    "'LRANGE', 'script:l', 0, -1",
    "'LPOP', 'script:l', 2",
    "'LPOP', 'script:none', 2",
    "'LPOS', 'script:l', 'none'",
    "'GET', 'script:none'",
    "'SET', 'script:s', 1, 'NX'",
    "'SET', 'script:a', 1, 'GET'",
    "'TYPE', 'script:z'",
    "'INCR', 'script:h'",
    "'XRANGE', 'script:x', '-', '+'",
    "'XREAD', 'STREAMS', 'script:x', 0",
    "'XREAD', 'STREAMS', 'script:x', 9",
    "'OBJECT', 'ENCODING', 'script:none'",
    "'GEOPOS', 'script:z', 'none'",
    "'CONFIG', 'GET', 'maxmemory'",
    "'EXISTS', KEYS[1], KEYS[2]",
    "'PING'",
    "'NOSUCH'",
    "'GET'",
)


def literal(draw: Draw, depth: int = 0) -> str:
    """A value in Lua syntax, with at most one field where the order of fields is not determined."""
    if depth == 3 or draw.chance(0.5):
        return draw.one(VALUES)
    parts = draw.many(lambda: literal(draw, depth + 1), 0, 4)
    one = literal(draw, depth + 1)
    match draw.number(0, 7):
        case 0:
            return "{map = {[%s] = %s}}" % (draw.one(("'name'", "1", "true", "2.5")), one)
        case 1:
            return "{set = {[%s] = true}}" % draw.one(("'member'", "7", "'x'"))
        case 2:
            return "{%s = %s}" % (draw.one(("ok", "err", "double", "big_number", "map", "set", "other")), one)
        case _:
            return "{%s}" % ", ".join(parts)


def arguments(draw: Draw) -> tuple:
    """Two keys and two arguments, sometimes a wrong number of keys."""
    count = 2 if draw.chance(0.95) else draw.one((0, 1, 3, 5, -1, "x"))
    return (count, draw.one(KEYS), draw.one(KEYS), draw.one((1, "text", b"\x01\x02", 2.5, "")), draw.number(0, 9))


def evaluation(draw: Draw, name: str, script: str) -> Command:
    return command(name, script, *arguments(draw))


@family.draws("EVAL", weight=4)
def value(draw: Draw, name: str) -> Step:
    before = "redis.setresp(3) " if draw.chance(0.2) else ""
    return step(evaluation(draw, name, f"{before}return {draw.one(VALUES)}"))


@family.draws("EVAL", weight=5)
def returned(draw: Draw, name: str) -> Step:
    """The conversion of returned values."""
    before = draw.one(("", "redis.setresp(3) ", "redis.setresp(2) "))
    return step(evaluation(draw, name, f"{before}return {literal(draw)}"))


@family.draws("EVAL", weight=5)
def seen(draw: Draw, name: str) -> Step:
    """The conversion of replies into Lua values, and back."""
    before = FILL + draw.one(("", "redis.setresp(3) ", "redis.setresp(2) "))
    asked = f"redis.{draw.one(('call', 'pcall', 'pcall'))}({draw.one(REPLIES)})"
    shown = f"{DESCRIBE}return describe({asked})" if draw.chance(0.5) else f"return {asked}"
    return step(evaluation(draw, name, before + shown))


@family.draws("EVAL", weight=3)
def failure(draw: Draw, name: str) -> Step:
    before = draw.one(("", "", "redis.call('SET', 'script:b', 1) ", "\n\n", "local x = 1\n"))
    return step(evaluation(draw, name, before + draw.one(FAILURES)))


@family.draws("EVAL", "EVAL_RO", weight=4)
def action(draw: Draw, name: str) -> Step:
    actions = draw.many(lambda: draw.one(ACTIONS), 1, 4)
    return step(evaluation(draw, name, f"{' '.join(actions[:-1])} return {actions[-1]}"))


@family.draws("EVALSHA", weight=1)
def known(draw: Draw, name: str) -> Step:
    # None of these for EVAL: its scripts are evicted at some time, and in 7.0 never.
    script = f"return {draw.one(VALUES)} -- by name"
    digits = sha1(script.encode()).hexdigest() if draw.chance(0.8) else draw.one(("", "abc", "f" * 40))
    load = command("SCRIPT", draw.one(("LOAD", "EXISTS", "NOSUCH")), script)
    return step(load, command(name, draw.one((digits, digits.upper())), *arguments(draw)))


@family.draws("SCRIPT", weight=0.5)
def manage(draw: Draw, name: str) -> Step:
    words = draw.one((("EXISTS", "f" * 40), ("FLUSH", "BAD"), ("FLUSH",), ("FLUSH", "ASYNC"), ("EXISTS",), ("LOAD", "x x")))
    return step(command(name, *words))
