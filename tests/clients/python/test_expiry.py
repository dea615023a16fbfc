"""Expiry through redis-py. Absolute times in the past and polling replace waiting."""

import time

import pytest
import redis

from harness.waiting import wait_until


def test_ttl_tells_missing_lasting_and_expiring_keys_apart(client):
    assert client.ttl("missing") == -2
    assert client.pttl("missing") == -2
    client.set("k", "v")
    assert client.ttl("k") == -1
    assert client.pttl("k") == -1
    assert client.expire("k", 100) is True
    assert 0 < client.ttl("k") <= 100
    assert client.pexpire("k", 100_000) is True
    assert 0 < client.pttl("k") <= 100_000
    assert client.persist("k") is True
    assert client.persist("k") is False
    assert client.expire("missing", 100) is False


def test_absolute_times(client):
    at_s = int(time.time()) + 1000
    client.set("k", "v")
    assert client.expiretime("k") == -1
    assert client.expiretime("missing") == -2
    assert client.expireat("k", at_s) is True
    assert client.expiretime("k") == at_s
    assert client.pexpireat("k", at_s * 1000 + 7) is True
    assert client.pexpiretime("k") == at_s * 1000 + 7


def test_conditions(client):
    client.set("k", "v")
    assert client.expire("k", 100, xx=True) is False
    assert client.expire("k", 100, gt=True) is False
    assert client.expire("k", 100, lt=True) is True
    assert client.expire("k", 50, nx=True) is False
    assert client.expire("k", 50, gt=True) is False
    assert client.expire("k", 200, gt=True) is True
    assert client.expire("k", 300, lt=True) is False
    assert client.expire("k", 60, xx=True) is True
    assert 0 < client.ttl("k") <= 60
    with pytest.raises(redis.ResponseError, match="NX and XX, GT or LT options at the same time are not compatible"):
        client.expire("k", 10, nx=True, xx=True)
    with pytest.raises(redis.ResponseError, match="GT and LT options at the same time are not compatible"):
        client.expire("k", 10, gt=True, lt=True)
    with pytest.raises(redis.ResponseError, match="Unsupported option FOREVER"):
        client.execute_command("EXPIRE", "k", 10, "FOREVER")


@pytest.mark.parametrize("command", ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"])
def test_a_time_in_the_past_removes(client, command):
    client.set("k", "v")
    assert client.execute_command(command, "k", -1) == 1
    assert client.exists("k") == 0
    assert client.dbsize() == 0


def test_times_out_of_range(client):
    client.set("k", "v")
    for command in ("expire", "pexpire", "expireat"):
        with pytest.raises(redis.ResponseError, match=f"invalid expire time in '{command}' command"):
            client.execute_command(command, "k", 2**63 - 1)
    with pytest.raises(redis.ResponseError, match="value is not an integer or out of range"):
        client.execute_command("EXPIRE", "k", "soon")
    assert client.ttl("k") == -1


def test_an_expired_key_is_gone_for_every_command(client):
    client.set("k", "v", px=1)
    wait_until("the key to expire", lambda: client.get("k") is None)
    assert client.exists("k") == 0
    assert client.ttl("k") == -2
    assert client.type("k") == b"none"
    assert client.keys() == []
    assert list(client.scan_iter()) == []
    assert client.set("k", "new", nx=True) is True
    assert client.ttl("k") == -1


def test_expired_keys_are_removed_without_being_asked_for(client):
    with client.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.set(f"k{number}", "v", px=1)
        pipe.execute()
    client.set("stays", "v")
    wait_until("expired keys to be removed", lambda: client.dbsize() == 1)
    assert client.info("stats")["expired_keys"] >= 1000


def test_info_counts_keys_that_expire(client):
    client.set("k", "v")
    client.set("e", "v", ex=100)
    assert client.info("keyspace")["db0"]["keys"] == 2
    assert client.info("keyspace")["db0"]["expires"] == 1
    client.persist("e")
    assert client.info("keyspace")["db0"]["expires"] == 0
