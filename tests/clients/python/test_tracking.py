"""Client-side caching: CLIENT TRACKING as redis-py's cache and raw connections use it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.cache import CacheConfig, CacheKey
from redis.connection import CacheProxyConnection

from harness.waiting import wait_until


@pytest.fixture
def cached(server, monkeypatch):
    """A redis-py client with a cache. The library requires a server that reports 7.4 or later, although the
    features that it uses are older.
    """
    monkeypatch.setattr(CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.0.0")
    with redis.Redis(port=server.port, protocol=3, cache_config=CacheConfig(max_size=1000)) as client:
        yield client


def test_redis_py_caches_values_until_they_change(cached, client):
    client.set("k", "1")
    assert cached.get("k") == b"1"
    assert cached.get_cache().get(CacheKey(command="GET", redis_keys=("k",), redis_args=("GET", "k"))) is not None
    hits = client.info("stats")["keyspace_hits"]
    assert [cached.get("k") for _ in range(100)] == [b"1"] * 100
    assert client.info("stats")["keyspace_hits"] == hits, "served from the cache"
    client.set("k", "2")
    wait_until("the cache to learn of the change", lambda: cached.get("k") == b"2")
    client.delete("k")
    wait_until("the cache to learn that it is gone", lambda: cached.get("k") is None)
    client.set("k", "3", px=50)
    wait_until("the cache to learn that it is back", lambda: cached.get("k") == b"3")
    wait_until("the cache to learn that it has expired", lambda: cached.get("k") is None)
    client.set("k", "4")
    wait_until("the cache to learn that it is back", lambda: cached.get("k") == b"4")
    client.flushall()
    wait_until("the cache to learn of the flush", lambda: cached.get("k") is None)


def test_a_cache_converges_to_the_stored_values(cached, connect):
    """Writers race with a caching reader: in the end its cache converges to the stored values."""
    keys = [f"k:{number}" for number in range(20)]

    def write(client: redis.Redis) -> None:
        for round_number in range(50):
            pipeline = client.pipeline(transaction=round_number % 2 == 0)
            for key in keys:
                pipeline.incr(key)
            pipeline.execute()
            client.mset({key: round_number for key in keys[::2]})

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, connect()) for _ in range(3)]
        while not all(writer.done() for writer in writers):
            for key in keys:
                cached.get(key)
        for writer in writers:
            writer.result()
    truth = connect().mget(keys)
    for key, value in zip(keys, truth):
        wait_until(f"{key} to be what it is", lambda key=key, value=value: cached.get(key) == value)


def test_pushes_stand_between_replies(server, client):
    with server.connect() as connection:
        connection.call("HELLO", "3")
        assert connection.call("CLIENT", "TRACKING", "ON") == b"OK"
        assert connection.call("GET", "k") is None
        client.set("k", "1")
        assert connection.read() == [b"invalidate", [b"k"]]
        assert connection.call("GET", "k") == b"1"
        client.flushall()
        assert connection.read() == [b"invalidate", None]
        assert connection.call("PING") == b"PONG"


@pytest.mark.parametrize("mode", [(), ("BCAST",)], ids=["reads", "prefixes"])
def test_an_invalidation_follows_the_reply_of_a_long_script_that_shows_the_older_value(server, mode):
    """A client that got the invalidation first would then keep the older value for good."""
    long = "for _ = 1, 3000000 do end"
    script = f"local v = redis.call('GET', KEYS[1]) {long} redis.call('INCR', KEYS[1]) return v"
    with server.connect() as connection:
        connection.call("HELLO", "3")
        assert connection.call("SET", "k", "1") == b"OK"
        assert connection.call("CLIENT", "TRACKING", "ON", *mode) == b"OK"
        assert connection.call("EVAL", script, 1, "k") == b"1"
        assert connection.read() == [b"invalidate", [b"k"]]


def test_prefixes_are_told_of_by_all_workers(server, connect):
    with server.connect() as connection:
        connection.call("HELLO", "3")
        assert connection.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user:", "PREFIX", "job:") == b"OK"
        for number, client in enumerate(connect() for _ in range(4)):
            client.set(f"user:{number}", "1")
            client.set(f"other:{number}", "1")
            client.set(f"job:{number}", "1")
            assert connection.read() == [b"invalidate", [f"user:{number}".encode()]]
            assert connection.read() == [b"invalidate", [f"job:{number}".encode()]]


def test_a_client_can_be_told_in_the_place_of_another(server, client):
    with server.connect() as told, server.connect() as reader:
        told.call("HELLO", "3")
        assert reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", told.call("CLIENT", "ID")) == b"OK"
        reader.call("GET", "k")
        client.set("k", "1")
        assert told.read() == [b"invalidate", [b"k"]]
        assert reader.call("GET", "k") == b"1"


def test_opting_in_for_a_transaction(server, client):
    with server.connect() as connection:
        connection.call("HELLO", "3")
        connection.call("CLIENT", "TRACKING", "ON", "OPTIN")
        connection.call("GET", "a")
        connection.call("CLIENT", "CACHING", "YES")
        for command in (("MULTI",), ("GET", "b"), ("GET", "c"), ("EXEC",), ("GET", "d")):
            connection.call(*command)
        for key in "abcd":
            client.set(key, "1")
        assert [connection.read(), connection.read()] == [[b"invalidate", [b"b"]], [b"invalidate", [b"c"]]]
        assert connection.call("PING") == b"PONG"
