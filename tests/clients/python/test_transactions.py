"""MULTI, EXEC and WATCH through redis-py's pipelines."""

import threading

import pytest
import redis


def test_a_transaction_replies_to_every_command(client):
    pipe = client.pipeline(transaction=True)
    pipe.set("k", "1").incr("k").rpush("l", "a", "b").hset("h", "f", "v").get("k")
    assert pipe.execute() == [True, 2, 2, 1, b"2"]


def test_a_failing_command_does_not_undo_the_others(client):
    client.set("text", "abc")
    pipe = client.pipeline()
    pipe.set("before", "1").incr("text").set("after", "1")
    replies = pipe.execute(raise_on_error=False)
    assert [type(reply) for reply in replies] == [bool, redis.ResponseError, bool]
    assert client.mget("before", "after") == [b"1", b"1"]


def test_a_command_that_cannot_be_queued_aborts_all(client):
    pipe = client.pipeline()
    pipe.set("k", "1").execute_command("NOSUCH")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        pipe.execute()
    assert client.exists("k") == 0


def test_raw_texts(server, protocol):
    with server.connect() as connection:
        connection.call("HELLO", protocol)
        assert connection.call("EXEC").text == "ERR EXEC without MULTI"
        assert connection.call("DISCARD").text == "ERR DISCARD without MULTI"
        assert connection.call("MULTI") == b"OK"
        assert connection.call("MULTI").text == "ERR MULTI calls can not be nested"
        assert connection.call("WATCH", "k").text == "ERR WATCH inside MULTI is not allowed"
        assert connection.call("SET", "k", "v") == b"QUEUED"
        assert connection.call("SET").text == "ERR wrong number of arguments for 'set' command"
        assert connection.call("EXEC").text == "EXECABORT Transaction discarded because of previous errors."
        assert connection.call("GET", "k") is None


def test_a_watched_key_that_changed_stops_the_transaction(client, connect):
    other = connect()
    client.set("k", "1")
    pipe = client.pipeline()
    pipe.watch("k")
    value = int(pipe.get("k"))
    other.set("k", "5")
    pipe.multi()
    pipe.set("k", value + 1)
    with pytest.raises(redis.WatchError):
        pipe.execute()
    assert client.get("k") == b"5"


def test_a_watched_key_that_nobody_touched(client, connect):
    other = connect()
    pipe = client.pipeline()
    pipe.watch("k")
    other.set("unrelated", "1")
    pipe.multi()
    pipe.set("k", "mine")
    assert pipe.execute() == [True]
    pipe.watch("k")
    other.set("k", "theirs")
    pipe.unwatch()
    pipe.multi()
    pipe.get("k")
    assert pipe.execute() == [b"theirs"]


def test_optimistic_increments_of_many_connections_all_count(client, connect):
    clients = [connect() for _ in range(4)]
    client.set("n", 0)

    def count(own):
        for _ in range(50):
            own.transaction(lambda pipe: raise_by_one(pipe), "n")

    def raise_by_one(pipe):
        value = int(pipe.get("n"))
        pipe.multi()
        pipe.set("n", value + 1)

    threads = [threading.Thread(target=count, args=(own,)) for own in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == b"200"


def test_nobody_sees_half_a_transaction(client, connect):
    done = threading.Event()
    seen_torn = []

    def read():
        own = connect()
        while not done.is_set():
            left, right = own.mget("left", "right")
            if left != right:
                seen_torn.append((left, right))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(500):
        client.pipeline().set("left", number).set("right", number).execute()
    done.set()
    reader.join()
    assert seen_torn == []
