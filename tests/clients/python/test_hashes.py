"""Hashes through redis-py, with expiring fields."""

import pytest
import redis


def test_fields_come_and_go(client):
    assert client.hset("h", "f", "1") == 1
    assert client.hset("h", mapping={"f": "2", "g": "3"}) == 1
    assert client.hget("h", "f") == b"2"
    assert client.hget("h", "missing") is None
    assert client.hmget("h", ["f", "missing", "g"]) == [b"2", None, b"3"]
    assert client.hgetall("h") == {b"f": b"2", b"g": b"3"}
    assert client.hgetall("missing") == {}
    assert sorted(client.hkeys("h")) == [b"f", b"g"]
    assert sorted(client.hvals("h")) == [b"2", b"3"]
    assert client.hlen("h") == 2
    assert client.hexists("h", "f")
    assert not client.hexists("h", "missing")
    assert client.hsetnx("h", "f", "9") == 0
    assert client.hsetnx("h", "n", "9") == 1
    assert client.hstrlen("h", "n") == 1
    assert client.hdel("h", "f", "g", "missing") == 2
    assert client.hdel("h", "n") == 1
    assert client.exists("h") == 0


def test_numbers(client):
    assert client.hincrby("h", "n", 5) == 5
    assert client.hincrby("h", "n", -7) == -2
    assert client.hincrbyfloat("h", "x", 0.5) == 0.5
    assert client.hincrbyfloat("h", "x", "1e2") == 100.5
    client.hset("h", "text", "abc")
    with pytest.raises(redis.ResponseError, match="hash value is not an integer"):
        client.hincrby("h", "text", 1)
    with pytest.raises(redis.ResponseError, match="hash value is not a float"):
        client.hincrbyfloat("h", "text", 1)


def test_drawing_by_chance(client):
    client.hset("h", mapping={f"f{number}": number for number in range(20)})
    assert client.hrandfield("h").startswith(b"f")
    assert len(set(client.hrandfield("h", 5))) == 5
    assert len(client.hrandfield("h", -50)) == 50
    assert client.hrandfield("missing") is None


def test_a_scan_finds_every_field(client):
    mapping = {b"f%d" % number: b"%d" % number for number in range(3000)}
    client.hset("h", mapping=mapping)
    assert dict(client.hscan_iter("h", count=100)) == mapping
    assert client.object("encoding", "h") == b"hashtable"
    client.hset("small", "f", "v")
    assert client.object("encoding", "small") == b"listpack"


@pytest.mark.sheaf_only
def test_fields_expire_one_by_one(client):
    client.hset("h", mapping={"a": 1, "b": 2, "c": 3})
    assert client.hexpire("h", 100, "a", "missing") == [1, -2]
    assert client.hpexpire("h", 200_000, "b") == [1]
    [left] = client.httl("h", "a")
    assert 0 < left <= 100
    [left_ms, none] = client.hpttl("h", "b", "c")
    assert 0 < left_ms <= 200_000
    assert none == -1
    assert client.hpersist("h", "a") == [1]
    assert client.httl("h", "a") == [-1]
    assert client.hpexpireat("h", 1, "a") == [2]
    assert client.hgetall("h") == {b"b": b"2", b"c": b"3"}
    assert client.hexpire("missing", 100, "a") in ([-2], None)
