"""Strings and counters through redis-py."""

import time

import pytest
import redis

INT64_MAX = 2**63 - 1


def test_set_and_get_keep_every_byte(client):
    every_byte = bytes(range(256))
    assert client.set(every_byte, every_byte * 3) is True
    assert client.get(every_byte) == every_byte * 3
    assert client.set("", "") is True
    assert client.get("") == b""
    assert client.get("missing") is None


def test_set_takes_its_conditions(client):
    assert client.set("k", "1", nx=True) is True
    assert client.set("k", "2", nx=True) is None
    assert client.set("k", "3", xx=True) is True
    assert client.set("other", "3", xx=True) is None
    assert client.get("k") == b"3"
    assert client.exists("other") == 0


def test_set_returns_the_old_value(client):
    assert client.set("k", "1", get=True) is None
    assert client.set("k", "2", get=True) == b"1"
    assert client.set("k", "3", nx=True, get=True) == b"2"
    assert client.get("k") == b"2"


def test_set_with_expiry(client):
    now_s = int(time.time())
    client.set("ex", "v", ex=100)
    client.set("px", "v", px=100_000)
    client.set("exat", "v", exat=now_s + 100)
    client.set("pxat", "v", pxat=(now_s + 100) * 1000)
    for key in ("ex", "px", "exat", "pxat"):
        assert 0 < client.pttl(key) <= 101_000, key
    client.set("ex", "kept", keepttl=True)
    assert client.ttl("ex") > 0
    client.set("ex", "gone")
    assert client.ttl("ex") == -1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("k", "v", "EX", "0"), "invalid expire time in 'set' command"),
        (("k", "v", "EX", "-1"), "invalid expire time in 'set' command"),
        (("k", "v", "EX", "ten"), "value is not an integer or out of range"),
        (("k", "v", "EX", str(INT64_MAX)), "invalid expire time in 'set' command"),
        (("k", "v", "NX", "XX"), "syntax error"),
        (("k", "v", "EX", "10", "KEEPTTL"), "syntax error"),
        (("k", "v", "EX"), "syntax error"),
        (("k",), "wrong number of arguments for 'set' command"),
    ],
)
def test_set_refuses_invalid_arguments(client, arguments, text):
    with pytest.raises(redis.ResponseError) as refused:
        client.execute_command("SET", *arguments)
    assert str(refused.value) == text
    assert client.exists("k") == 0


def test_old_ways_to_set(client):
    assert client.setnx("k", "1") is True
    assert client.setnx("k", "2") is False
    assert client.setex("s", 100, "v") is True
    assert client.psetex("p", 100_000, "v") is True
    assert 0 < client.ttl("s") <= 100
    assert 0 < client.pttl("p") <= 100_000
    assert client.getset("k", "3") == b"1"
    with pytest.raises(redis.ResponseError, match="invalid expire time in 'setex' command"):
        client.setex("s", 0, "v")
    with pytest.raises(redis.ResponseError, match="invalid expire time in 'psetex' command"):
        client.psetex("s", -5, "v")


def test_getdel_and_getex(client):
    client.set("k", "v")
    assert client.getex("k", ex=100) == b"v"
    assert 0 < client.ttl("k") <= 100
    assert client.getex("k", persist=True) == b"v"
    assert client.ttl("k") == -1
    assert client.getex("k", pxat=int(time.time() * 1000) - 1) == b"v"
    assert client.exists("k") == 0
    assert client.getex("k", ex=1) is None
    client.set("k", "v")
    assert client.getdel("k") == b"v"
    assert client.getdel("k") is None


def test_many_at_once(client):
    assert client.mset({"a": "1", "b": "2", "c": ""}) is True
    assert client.mget("a", "missing", "b", "c", "a") == [b"1", None, b"2", b"", b"1"]
    assert client.msetnx({"d": "4", "a": "9"}) is False
    assert client.exists("d") == 0
    assert client.msetnx({"d": "4", "e": "5"}) is True
    assert client.mget(["d", "e"]) == [b"4", b"5"]
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'mset' command"):
        client.execute_command("MSET", "a", "1", "b")


def test_mset_takes_the_last_of_equal_keys(client):
    client.execute_command("MSET", "k", "1", "k", "2")
    assert client.get("k") == b"2"


def test_counters(client):
    assert client.incr("n") == 1
    assert client.incrby("n", 41) == 42
    assert client.decr("n") == 41
    assert client.decrby("n", 50) == -9
    assert client.get("n") == b"-9"
    client.set("n", INT64_MAX)
    with pytest.raises(redis.ResponseError, match="increment or decrement would overflow"):
        client.incr("n")
    assert client.get("n") == str(INT64_MAX).encode()
    with pytest.raises(redis.ResponseError, match="decrement would overflow"):
        client.decrby("n", -(2**63))
    for no_number in ("", " 1", "1.0", "01", "+1", "9223372036854775808", "x"):
        client.set("n", no_number)
        with pytest.raises(redis.ResponseError, match="value is not an integer or out of range"):
            client.incr("n")


def test_counters_keep_their_expiry(client):
    client.set("n", "1", ex=100)
    client.incr("n")
    client.append("n", "0")
    assert 0 < client.ttl("n") <= 100


def test_fractions(client):
    assert client.incrbyfloat("f", "10.5") == 10.5
    assert client.incrbyfloat("f", "0.1") == 10.6
    assert client.get("f") == b"10.6"
    assert client.incrbyfloat("f", "-10.6") == 0
    assert client.get("f") == b"0"
    client.set("f", "5.0e3")
    assert client.incrbyfloat("f", "2.0e2") == 5200
    assert client.get("f") == b"5200"
    client.set("f", "text")
    with pytest.raises(redis.ResponseError, match="value is not a valid float"):
        client.incrbyfloat("f", "1")
    client.set("f", "1")
    with pytest.raises(redis.ResponseError, match="increment would produce NaN or Infinity"):
        client.execute_command("INCRBYFLOAT", "f", "inf")


def test_parts_of_strings(client):
    assert client.append("k", "Hello") == 5
    assert client.append("k", " World") == 11
    assert client.strlen("k") == 11
    assert client.strlen("missing") == 0
    assert client.getrange("k", 0, 4) == b"Hello"
    assert client.getrange("k", -5, -1) == b"World"
    assert client.getrange("k", 5, 1) == b""
    assert client.getrange("k", -100, 100) == b"Hello World"
    assert client.substr("k", 6) == b"World"
    assert client.setrange("k", 6, "Redis") == 11
    assert client.get("k") == b"Hello Redis"
    assert client.setrange("gap", 3, "x") == 4
    assert client.get("gap") == b"\0\0\0x"
    assert client.setrange("nothing", 3, "") == 0
    assert client.exists("nothing") == 0
    with pytest.raises(redis.ResponseError, match="offset is out of range"):
        client.setrange("k", -1, "x")
    with pytest.raises(redis.ResponseError, match="string exceeds maximum allowed size"):
        client.setrange("k", 512 * 1024 * 1024, "x")
