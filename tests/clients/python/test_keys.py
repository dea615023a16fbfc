"""Keys of any type through redis-py."""

import pytest
import redis


def test_counting_and_removing(client):
    client.mset({"a": 1, "b": 2, "c": 3, "d": 4})
    assert client.exists("a", "b", "missing", "a") == 3
    assert client.touch("a", "missing") == 1
    assert client.delete("a", "missing", "a") == 1
    assert client.unlink("b", "c") == 2
    assert client.dbsize() == 1
    assert client.type("d") == b"string"
    assert client.type("a") == b"none"


def test_renaming(client):
    client.set("a", "1", ex=100)
    assert client.rename("a", "b") is True
    assert client.exists("a") == 0
    assert 0 < client.ttl("b") <= 100
    client.set("c", "2")
    assert client.renamenx("b", "c") is False
    assert client.renamenx("b", "d") is True
    assert client.rename("c", "c") is True
    assert client.get("d") == b"1"
    with pytest.raises(redis.ResponseError, match="no such key"):
        client.rename("missing", "e")
    with pytest.raises(redis.ResponseError, match="no such key"):
        client.renamenx("missing", "e")


def test_renaming_replaces_the_target_with_its_expiry(client):
    client.set("from", "new")
    client.set("to", "old", ex=100)
    client.rename("from", "to")
    assert client.get("to") == b"new"
    assert client.ttl("to") == -1


def test_copying(client):
    client.set("a", "1", px=100_000)
    assert client.copy("a", "b") is True
    assert client.copy("a", "b") is False
    client.set("a", "2")
    assert client.copy("a", "b", replace=True) is True
    assert client.get("b") == b"2"
    assert client.ttl("b") == -1
    assert client.copy("a", "a2", destination_db=3) is True
    assert client.copy("missing", "x") is False
    with pytest.raises(redis.ResponseError, match="source and destination objects are the same"):
        client.copy("a", "a")


def test_moving_between_databases(client, connect):
    other = connect(db=5)
    client.set("k", "v", ex=100)
    assert client.move("k", 5) is True
    assert client.exists("k") == 0
    assert other.get("k") == b"v"
    assert 0 < other.ttl("k") <= 100
    client.set("k", "blocked")
    assert client.move("k", 5) is False
    assert client.move("missing", 5) is False
    with pytest.raises(redis.ResponseError, match="source and destination objects are the same"):
        client.move("k", 0)
    with pytest.raises(redis.ResponseError, match="DB index is out of range"):
        client.move("k", 16)


def test_random_key(client):
    assert client.randomkey() is None
    names = {f"k{number}".encode() for number in range(20)}
    client.mset({name: "v" for name in names})
    drawn = {client.randomkey() for _ in range(400)}
    assert drawn <= names
    assert len(drawn) > 1


def test_keys_by_pattern(client):
    client.mset({"user:1": "", "user:2": "", "user:10": "", "u[x]": "", "other": ""})
    assert set(client.keys()) == {b"user:1", b"user:2", b"user:10", b"u[x]", b"other"}
    assert set(client.keys("user:?")) == {b"user:1", b"user:2"}
    assert set(client.keys("user:[2-9]*")) == {b"user:2"}
    assert set(client.keys("user:[^1]*")) == {b"user:2"}
    assert set(client.keys(r"u\[x\]")) == {b"u[x]"}
    assert client.keys("nothing*") == []


def test_object_subcommands(client):
    client.mset({"int": "123456", "short": "x" * 44, "long": "x" * 45})
    assert client.object("encoding", "int") == b"int"
    assert client.object("encoding", "short") == b"embstr"
    assert client.object("encoding", "long") == b"raw"
    assert client.object("idletime", "int") >= 0
    assert client.object("refcount", "short") == 1
    assert client.object("encoding", "missing") is None
    with pytest.raises(redis.ResponseError, match="An LFU maxmemory policy is not selected"):
        client.object("freq", "int")


def test_object_freq_with_an_lfu_policy(client):
    client.config_set("maxmemory-policy", "allkeys-lfu")
    client.set("k", "v")
    assert client.object("freq", "k") >= 0
    with pytest.raises(redis.ResponseError, match="An LFU maxmemory policy is selected"):
        client.object("idletime", "k")


def test_memory_limit_refuses_growth_and_allows_removal(client):
    client.set("k", "x" * 1000)
    client.config_set("maxmemory", "1")
    with pytest.raises(redis.ResponseError) as refused:
        client.set("more", "v")
    assert "command not allowed when used memory > 'maxmemory'" in str(refused.value)
    assert client.get("k") == b"x" * 1000
    assert client.delete("k") == 1
    client.config_set("maxmemory", "0")
    assert client.set("more", "v") is True
