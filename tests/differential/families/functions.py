"""Functions: libraries that are loaded or refused, arguments of calls, descriptions of libraries.

A library has one function, and libraries are listed one at a time, because Redis lists several in the order
of its table.
"""

from differential.draw import Draw
from differential.families import Family
from differential.steps import Command, Step, command, step

family = Family("function")

LIBRARIES = ("one", "two", "Two")
FUNCTIONS = ("f", "g", "G")
KEYS = ("function:a", "function:b")

BODIES = (
    "return {keys, args}",
    "return redis.call('SET', keys[1], args[1])",
    "return redis.call('GET', keys[1])",
    "redis.call('INCR', keys[1]) return redis.pcall('INCR', keys[1])",
    "return redis.call('EXISTS', 'function:a', 'function:b')",
    "redis.setresp(3) return redis.call('HGETALL', 'function:none')",
    "return redis.error_reply('MY error')",
    "error('raised')",
    "return KEYS[1]",
    "x = 1",
    "return redis.register_function('x', function() end)",
    "return redis.call('FUNCTION', 'FLUSH')",
    "return redis.call('nosuch')",
    "return loadstring('return 5')()",
    "return type(_G) .. type(cjson.encode)",
    "return redis.sha1hex(args[1])",
)

FLAGS = ("", "'no-writes'", "'allow-oom', 'no-writes'", "'allow-cross-slot-keys'", "'nope'", "1", "'no-cluster'")

# Invalid libraries. Two functions of one library whose names differ only in case are not drawn: they crash
# Redis 7.0.15.
BROKEN = (
    "",
    "return 1",
    "#!lua",
    "#!lua\nreturn 1",
    "#!lua name=\nreturn 1",
    "#!lua name=a-b\nreturn 1",
    "#!lua name=one two\nreturn 1",
    "#!lua name=one name=two\nreturn 1",
    '#!lua name="one\nreturn 1',
    "#!js name=three\nreturn 1",
    "#! name=three\nreturn 1",
    "#!lua name=three\nreturn 1",
    "#!lua name=three\nx x",
    "#!lua name=three\nx = 1",
    "#!lua name=three\nredis.call('PING')",
    "#!lua name=three\nerror('raised')",
    "#!lua name=three\nlocal a = {} a.b.c = 1",
    "#!lua name=three\nredis.register_function()",
    "#!lua name=three\nredis.register_function('f')",
    "#!lua name=three\nredis.register_function('f', 1)",
    "#!lua name=three\nredis.register_function('a-b', function() end)",
    "#!lua name=three\nredis.register_function({}, function() end)",
    "#!lua name=three\nredis.register_function{function_name='f'}",
    "#!lua name=three\nredis.register_function{callback=function() end}",
    "#!lua name=three\nredis.register_function{function_name='f', callback=1}",
    "#!lua name=three\nredis.register_function{function_name='f', callback=function() end, x=1}",
    "#!lua name=three\nredis.register_function{function_name={}, callback=function() end}",
    "#!lua name=three\nredis.register_function('q', function() end) redis.register_function('q', function() end)",
)

# FUNCTION DUMP of Redis 7.0.15 with a library `a` and its function `f`; without any; and an invalid payload.
PAYLOADS = (
    b'\xf59#!lua name=a\nredis.register_function("f", function() end)\n\x00Q_\xd8i\xec\xb3f\xfa',
    b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda",
    b"\xf4\x01a\n\x00\xd7\x06b\x88u\x8be\xe6",
    b"\xf5\x10#!lua name=q\nx=1\n\x00De\xef 4P\xd4v",
    b"x" * 20,
    b"",
)


def library(draw: Draw) -> str:
    name, function, body = draw.one(LIBRARIES), draw.one(FUNCTIONS), draw.one(BODIES)
    callback = f"function(keys, args) {body} end"
    if draw.chance(0.5):
        return f"#!lua name={name}\nredis.register_function('{function}', {callback})"
    described = ", description='what it does'" if draw.chance(0.5) else ""
    named = f"function_name='{function}', callback={callback}, flags={{{draw.one(FLAGS)}}}{described}"
    return f"#!lua name={name}\n\nredis.register_function{{{named}}}"


@family.draws("FUNCTION", weight=4)
def load(draw: Draw, name: str) -> Command:
    code = library(draw) if draw.chance(0.85) else draw.one(BROKEN)
    options = draw.one(((), (), ("REPLACE",), ("replace",), ("nope",)))
    return command(name, "LOAD", *options, code)


@family.draws("FCALL", "FCALL_RO", weight=4)
def call(draw: Draw, name: str) -> Step:
    count = 2 if draw.chance(0.95) else draw.one((0, 1, 3, 5, -1, "x"))
    words = (count, draw.one(KEYS), draw.one(KEYS), draw.one((1, "text", 2.5, "")), draw.number(0, 9))
    return step(command(name, draw.one((*FUNCTIONS, "F", "nosuch")), *words))


@family.draws("FUNCTION", weight=2)
def manage(draw: Draw, name: str) -> Command:
    one = draw.one(LIBRARIES)
    words = draw.one(
        (
            ("DELETE", one),
            ("LIST", "LIBRARYNAME", "one", "WITHCODE"),
            ("LIST", "WITHCODE", "LIBRARYNAME", "[ONE]ne*"),
            ("LIST", "LIBRARYNAME"),
            ("LIST", "nope"),
            ("STATS",),
            ("KILL",),
            ("FLUSH", draw.one(("ASYNC", "SYNC", "nope"))),
            ("RESTORE", draw.one(PAYLOADS), draw.one(("FLUSH", "APPEND", "REPLACE", "nope"))),
            ("RESTORE", draw.one(PAYLOADS)),
            ("NOSUCH",),
        )
    )
    return command(name, *words)
