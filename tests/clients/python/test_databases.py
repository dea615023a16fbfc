"""The sixteen databases: SELECT, SWAPDB, FLUSHDB, FLUSHALL."""

import pytest
import redis


def test_databases_are_apart(client, connect):
    everyone = [connect(db=number) for number in range(16)]
    for number, database in enumerate(everyone):
        database.set("k", number)
    assert [int(database.get("k")) for database in everyone] == list(range(16))
    assert set(client.info("keyspace")) == {f"db{number}" for number in range(16)}


def test_select_changes_the_connection(server):
    with server.connect() as connection:
        assert connection.call("SELECT", 3) == b"OK"
        assert connection.call("SET", "k", "v") == b"OK"
        assert connection.call("SELECT", 0) == b"OK"
        assert connection.call("GET", "k") is None
        assert connection.call("SELECT", 16).text == "ERR DB index is out of range"
        assert connection.call("SELECT", -1).text == "ERR DB index is out of range"
        assert connection.call("SELECT", "x").text == "ERR value is not an integer or out of range"


def test_flushdb_takes_one_database(client, connect):
    other = connect(db=1)
    client.set("k", "v")
    other.set("k", "v")
    assert client.flushdb() is True
    assert client.dbsize() == 0
    assert other.dbsize() == 1
    assert other.flushdb(asynchronous=True) is True
    assert other.dbsize() == 0


def test_flushall_takes_all(client, connect):
    databases = [connect(db=number) for number in range(16)]
    for database in databases:
        database.set("k", "v", ex=1000)
    assert client.flushall() is True
    assert [database.dbsize() for database in databases] == [0] * 16
    assert client.set("k", "again") is True
    assert client.flushall(asynchronous=True) is True
    assert client.get("k") is None
    with pytest.raises(redis.ResponseError, match="syntax error"):
        client.execute_command("FLUSHALL", "NOW")


def test_swapdb_swaps_for_every_connection(client, connect):
    zero, one = connect(db=0), connect(db=1)
    zero.set("k", "was zero", ex=1000)
    one.set("k", "was one")
    assert client.swapdb(0, 1) is True
    assert zero.get("k") == b"was one"
    assert zero.ttl("k") == -1
    assert one.get("k") == b"was zero"
    assert one.ttl("k") > 0
    assert client.swapdb(1, 0) is True
    assert zero.get("k") == b"was zero"
    for first, second, text in (
        ("x", 1, "invalid first DB index"),
        (0, "x", "invalid second DB index"),
        (0, 16, "DB index is out of range"),
    ):
        with pytest.raises(redis.ResponseError, match=text):
            client.execute_command("SWAPDB", first, second)


def test_swapdb_and_flushdb_survive_a_crash(server, connect):
    one, two = connect(db=1), connect(db=2)
    one.set("k", "was one")
    connect(db=3).set("k", "v")
    two.swapdb(1, 2)
    connect(db=3).flushdb()
    one.set("after", "swap")
    server.kill()
    server.start()
    assert connect(db=2).get("k") == b"was one"
    assert connect(db=1).keys() == [b"after"]
    assert connect(db=3).dbsize() == 0
