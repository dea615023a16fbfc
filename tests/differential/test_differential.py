"""Random commands to a peer (Redis 7.0 or 8.2, Valkey 9.1) and to Sheaf side by side: the same replies, and the
same data at the end.

    pytest tests/differential --commands 5000000 --seed 7     the soak; --seed repeats a run exactly
    pytest tests/differential --failures 10                   continues after a failure, to see more of them
    pytest tests/differential --peer valkey-9.1               beside another server; `all` for each of them

A failure shows the shortest sequence found that leads to it. docs/compatibility.md lists the accepted
differences.
"""

import pytest

from differential import state, table
from differential.peers import PeerOptions
from differential.reply import Wire, children
from differential.session import Session, commands_of
from harness.server import UNDER_TEST, Server

# The part of strings, collections and transactions that applications use, and related commands.
COMMANDS = """
SET GET SETNX SETEX PSETEX GETSET GETDEL GETEX MGET MSET MSETNX INCR DECR INCRBY DECRBY INCRBYFLOAT APPEND STRLEN
GETRANGE SETRANGE SUBSTR LCS
DEL UNLINK EXISTS TYPE TTL PTTL EXPIRE PEXPIRE EXPIREAT PEXPIREAT EXPIRETIME PEXPIRETIME PERSIST TOUCH RENAME RENAMENX
COPY MOVE RANDOMKEY KEYS SCAN OBJECT DUMP RESTORE SORT SORT_RO DBSIZE FLUSHDB FLUSHALL SWAPDB SELECT
SETBIT GETBIT BITCOUNT BITPOS BITOP BITFIELD BITFIELD_RO PFADD PFCOUNT PFMERGE
HSET HMSET HGET HMGET HGETALL HDEL HEXISTS HLEN HKEYS HVALS HINCRBY HINCRBYFLOAT HSETNX HSTRLEN HRANDFIELD HSCAN
HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HTTL HPTTL HEXPIRETIME HPEXPIRETIME HPERSIST
LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LLEN LRANGE LINDEX LSET LINSERT LREM LTRIM LPOS LMOVE RPOPLPUSH LMPOP
SADD SREM SISMEMBER SMISMEMBER SMEMBERS SCARD SPOP SRANDMEMBER SMOVE SINTER SUNION SDIFF SINTERSTORE SUNIONSTORE
SDIFFSTORE SINTERCARD SSCAN
ZADD ZREM ZSCORE ZMSCORE ZINCRBY ZCARD ZCOUNT ZRANGE ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYSCORE ZRANGEBYLEX
ZREVRANGEBYLEX ZLEXCOUNT ZRANK ZREVRANK ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX ZPOPMIN ZPOPMAX ZMPOP
ZRANDMEMBER ZUNION ZINTER ZDIFF ZUNIONSTORE ZINTERSTORE ZDIFFSTORE ZINTERCARD ZRANGESTORE ZSCAN
GEOADD GEODIST GEOHASH GEOPOS GEOSEARCH GEOSEARCHSTORE GEORADIUS GEORADIUS_RO GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO
XADD XLEN XRANGE XREVRANGE XDEL XTRIM XSETID XREAD XGROUP XREADGROUP XACK XPENDING XCLAIM XAUTOCLAIM XINFO
MULTI EXEC DISCARD WATCH UNWATCH
BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP
MONITOR SLOWLOG LATENCY MEMORY
""".split()


@pytest.fixture
def redis(new_server, tmp_path, compared_with) -> Server:
    """The server that Sheaf is compared with."""
    server = new_server(tmp_path / "redis")
    server.options = PeerOptions(peer=compared_with)
    return server.start()


@pytest.fixture
def sheaf(new_server) -> Server:
    """The server under test."""
    return new_server().start()


@pytest.mark.soak
def test_random_commands(redis, sheaf, compared_with, protocol, request):
    option = request.config.getoption
    session = Session(redis, sheaf, protocol)
    print("not in both, so not asked:", " ".join(session.skipped()) or "nothing")
    failures = session.run(option("seed"), option("commands"), option("failures"))
    report = "\n\n".join(map(str, failures))
    assert not failures, f"--seed {option('seed')} differs from Redis:\n\n{report}"
    session.close()
    if UNDER_TEST == "sheaf":
        before = state.held(redis.port)
        sheaf.kill()
        sheaf.start()
        # Recovery uses the limits of compact forms at the time of the start, not those of the last round.
        assert state.first_difference(before, state.held(sheaf.port), state.WITHOUT_ENCODING, peer=compared_with) is None


@pytest.mark.soak
@pytest.mark.parametrize("theme", ["script", "stream", "blocking", "transaction"])
def test_random_sequences_of_one_family(theme, redis, sheaf, protocol, request):
    """The effects of one family on its values and on those of others, over many more commands than its share
    of the mixture.
    """
    session = Session(redis, sheaf, protocol)
    option = request.config.getoption
    failures = session.run(option("seed"), option("sequences"), option("failures"), theme=theme)
    report = "\n\n".join(map(str, failures))
    assert not failures, f"--seed {option('seed')} differs from Redis:\n\n{report}"
    session.close()


def test_the_table_of_differences_is_true(redis, sheaf, compared_with):
    """Both ways: what it lists differs, and everything else in its examples does not."""
    sides = [Wire(server.port, protocol=2) for server in (redis, sheaf)]
    false = []
    for row in table.rows():
        for side in sides:
            side.call("FLUSHALL")
        before = [[side.call("CONFIG", "GET", name) for name in row.settings()] for side in sides]
        theirs, ours = (table.written(side.calls(list(row.commands))[-1]) for side in sides)
        if ours != row.reply or (theirs != ours) != (compared_with.name in row.unlike):
            false.append(f"{row.name}: {compared_with.name} {theirs}, Sheaf {ours}, in the table {row.reply}")
        for side, settings in zip(sides, before, strict=True):
            side.call("RESET")
            side.calls([("CONFIG", "SET", *(part[1] for part in children(setting))) for setting in settings])
    assert false == []
    for side in sides:
        side.close()


def test_dumps_of_one_server_are_values_of_the_other(redis, sheaf, protocol, request):
    session = Session(redis, sheaf, protocol)
    failures = session.run(request.config.getoption("seed"), 20_000, 1, exchanges=True)
    assert not failures, f"--seed {request.config.getoption('seed')}:\n\n{failures[0]}"
    session.close()


@pytest.mark.sheaf_only
def test_no_command_is_missing(sheaf):
    assert sorted(set(COMMANDS) - commands_of(sheaf)) == []
