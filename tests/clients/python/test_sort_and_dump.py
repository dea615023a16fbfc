"""SORT, DUMP and RESTORE through redis-py."""

import pytest
import redis


def test_sorting(client):
    client.rpush("l", 3, 1, 2)
    assert client.sort("l") == [b"1", b"2", b"3"]
    assert client.sort("l", desc=True, start=0, num=2) == [b"3", b"2"]
    client.mset({"weight:1": 30, "weight:2": 10, "weight:3": 20, "name:1": "one", "name:2": "two"})
    assert client.sort("l", by="weight:*") == [b"2", b"3", b"1"]
    assert client.sort("l", by="weight:*", get=["#", "name:*"], groups=True) == [
        (b"2", b"two"),
        (b"3", None),
        (b"1", b"one"),
    ]
    assert client.sort("l", store="sorted") == 3
    assert client.lrange("sorted", 0, -1) == [b"1", b"2", b"3"]
    client.sadd("words", "b", "a")
    assert client.sort("words", alpha=True) == [b"a", b"b"]
    with pytest.raises(redis.ResponseError, match="can't be converted into double"):
        client.sort("words")


def test_a_value_of_every_type_survives_dump_and_restore(client):
    client.set("string", "text")
    client.set("number", "12345")
    client.rpush("list", *range(500))
    client.sadd("integers", 1, 2, 3)
    client.sadd("words", "a", "b")
    client.zadd("zset", {"a": 1.5, "b": float("inf")})
    client.hset("hash", mapping={"f": "v", "g": "x" * 1000})
    for key in client.keys():
        assert client.restore(b"again:" + key, 0, client.dump(key))
    assert client.get("again:string") == b"text"
    assert client.get("again:number") == b"12345"
    assert client.lrange("again:list", 0, -1) == client.lrange("list", 0, -1)
    assert set(client.smembers("again:integers")) == {b"1", b"2", b"3"}
    assert set(client.smembers("again:words")) == {b"a", b"b"}
    assert client.zscore("again:zset", "b") == float("inf")
    assert client.hgetall("again:hash") == client.hgetall("hash")
    assert client.dump("missing") is None


def test_restoring_under_conditions(client):
    client.set("k", "v")
    payload = client.dump("k")
    with pytest.raises(redis.ResponseError, match="BUSYKEY Target key name already exists."):
        client.restore("k", 0, payload)
    assert client.restore("k", 100_000, payload, replace=True)
    assert 0 < client.pttl("k") <= 100_000
    with pytest.raises(redis.ResponseError, match="DUMP payload version or checksum are wrong"):
        client.restore("other", 0, payload[:-1] + bytes([payload[-1] ^ 1]))
    assert client.exists("other") == 0
