"""Sorted sets through redis-py."""

import pytest
import redis


def pairs(reply) -> list[tuple[bytes, float]]:
    """Members with scores, which redis-py returns as tuples or lists."""
    return [(member, float(score)) for member, score in reply]


@pytest.fixture
def board(client):
    """A sorted set of five members."""
    client.zadd("z", {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    return client


def test_adding_under_conditions(client):
    assert client.zadd("z", {"a": 1, "b": 2.5}) == 2
    assert client.zadd("z", {"a": 5, "c": 3}, nx=True) == 1
    assert client.zadd("z", {"a": 5, "d": 3}, xx=True) == 0
    assert client.zadd("z", {"a": 4, "b": 9}, gt=True, ch=True) == 1
    assert client.zadd("z", {"a": 4, "b": 8}, lt=True, ch=True) == 2
    assert client.zadd("z", {"a": 1.5}, incr=True) == 5.5
    assert client.zadd("z", {"x": 1}, xx=True, incr=True) is None
    assert client.zincrby("z", 0.25, "a") == 5.75
    assert client.zscore("z", "a") == 5.75
    assert client.zscore("z", "missing") is None
    assert client.zmscore("z", ["a", "missing"]) == [5.75, None]
    with pytest.raises(redis.ResponseError, match="not a valid float"):
        client.execute_command("ZADD", "z", "nan", "m")


def test_infinite_scores(client):
    client.zadd("z", {"low": "-inf", "high": "inf", "zero": 0})
    assert client.zrange("z", 0, -1) == [b"low", b"zero", b"high"]
    assert client.zscore("z", "high") == float("inf")
    with pytest.raises(redis.ResponseError, match=r"resulting score is not a number \(NaN\)"):
        client.zincrby("z", "-inf", "high")


def test_ranges(board):
    assert board.zrange("z", 0, 1) == [b"a", b"b"]
    assert board.zrange("z", 0, 1, desc=True) == [b"e", b"d"]
    assert pairs(board.zrange("z", -2, -1, withscores=True)) == [(b"d", 4.0), (b"e", 5.0)]
    assert board.zrange("z", 2, "+inf", byscore=True, offset=1, num=2) == [b"c", b"d"]
    assert board.zrangebyscore("z", "(1", 3) == [b"b", b"c"]
    assert board.zrevrangebyscore("z", "+inf", "-inf", start=0, num=2) == [b"e", b"d"]
    assert board.zrevrange("z", 0, 0) == [b"e"]
    assert board.zcount("z", 2, "(4") == 2
    assert board.zrank("z", "c") == 2
    assert board.zrevrank("z", "c") == 2
    assert board.zrank("z", "missing") is None
    assert board.zcard("z") == 5
    assert board.zrangestore("t", "z", 1, 3) == 3
    assert board.zrange("t", 0, -1) == [b"b", b"c", b"d"]


def test_ranges_by_name(client):
    client.zadd("z", dict.fromkeys("abcdef", 0))
    assert client.zrangebylex("z", "[b", "(e") == [b"b", b"c", b"d"]
    assert client.zrevrangebylex("z", "+", "[e") == [b"f", b"e"]
    assert client.zlexcount("z", "-", "+") == 6
    assert client.zremrangebylex("z", "-", "[b") == 2
    assert client.zrange("z", 0, -1) == [b"c", b"d", b"e", b"f"]


def test_removing(board):
    assert board.zrem("z", "a", "missing") == 1
    assert board.zremrangebyrank("z", 0, 0) == 1
    assert board.zremrangebyscore("z", 5, 5) == 1
    assert pairs(board.zpopmin("z", 1)) == [(b"c", 3.0)]
    assert pairs(board.zpopmax("z", 5)) == [(b"d", 4.0)]
    assert board.exists("z") == 0
    board.zadd("second", {"a": 1, "b": 2})
    name, taken = board.zmpop(2, ["first", "second"], min=True)
    assert name == b"second"
    assert [(member, float(score)) for member, score in taken] == [(b"a", 1.0)]


def test_combining(client):
    client.zadd("a", {"x": 1, "y": 2})
    client.zadd("b", {"y": 10, "z": 20})
    assert client.zunion(["a", "b"]) == [b"x", b"y", b"z"]
    assert pairs(client.zinter(["a", "b"], withscores=True)) == [(b"y", 12.0)]
    assert client.zdiff(["a", "b"]) == [b"x"]
    assert client.zunionstore("u", {"a": 2, "b": 1}, aggregate="MAX") == 3
    assert pairs(client.zrange("u", 0, -1, withscores=True)) == [(b"x", 2.0), (b"y", 10.0), (b"z", 20.0)]
    assert client.zinterstore("i", ["a", "b"], aggregate="MIN") == 1
    assert client.zscore("i", "y") == 2
    assert client.zdiffstore("d", ["a", "b"]) == 1
    assert client.zintercard(2, ["a", "b"]) == 1


def test_drawing_by_chance(board):
    names = {b"a", b"b", b"c", b"d", b"e"}
    assert board.zrandmember("z") in names
    assert set(board.zrandmember("z", 5)) == names
    assert len(board.zrandmember("z", -20)) == 20


def test_a_large_one(client):
    client.zadd("z", {f"member:{number}": number * 7919 % 10007 for number in range(10007)})
    in_order = client.zrange("z", 0, -1, withscores=True)
    assert [float(score) for _, score in in_order] == [float(score) for score in range(10007)]
    assert client.zrank("z", "member:1") == 7919
    assert client.zrange("z", 5000, 5000) == [b"member:%d" % (5000 * pow(7919, -1, 10007) % 10007)]
    assert {member for member, _ in client.zscan_iter("z", count=500)} == {member for member, _ in in_order}
    assert client.object("encoding", "z") == b"skiplist"
    assert client.zremrangebyrank("z", 100, -101) == 9807
    assert client.zcard("z") == 200
