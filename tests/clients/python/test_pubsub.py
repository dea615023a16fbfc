"""Channels as clients use them: redis-py in both protocols, and raw connections for details that it hides."""

import pytest

from harness.resp import ErrorReply, encode

MIB = 1 << 20
LARGE_NAME_BYTES = 8 * MIB
MANY_CHANNELS = 100_000
REFUSED = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"


def received(pubsub, count: int) -> list[tuple]:
    """The next messages of a redis-py subscription, this many, as (type, pattern, channel, data)."""
    got = []
    while len(got) < count:
        message = pubsub.get_message(timeout=60)
        assert message is not None, f"only {got}"
        got.append((message["type"], message["pattern"], message["channel"], message["data"]))
    return got


def test_messages_reach_channels_and_patterns(connect, client):
    with connect().pubsub() as listener:
        listener.subscribe("news", "other")
        listener.psubscribe("n*", "*s")
        assert received(listener, 4) == [
            ("subscribe", None, b"news", 1),
            ("subscribe", None, b"other", 2),
            ("psubscribe", None, b"n*", 3),
            ("psubscribe", None, b"*s", 4),
        ]
        assert client.publish("news", b"\x00\r\n\xff") == 3
        assert client.publish("nobody", "x") == 1
        assert client.publish("zzz", "x") == 0
        first, *matched, last = received(listener, 4)
        assert first == ("message", None, b"news", b"\x00\r\n\xff")
        assert {(kind, pattern) for kind, pattern, *_ in matched} == {("pmessage", b"n*"), ("pmessage", b"*s")}
        assert last == ("pmessage", b"n*", b"nobody", b"x")
        assert client.pubsub_numsub("news", "zzz") == [(b"news", 1), (b"zzz", 0)]
        assert sorted(client.pubsub_channels("*")) == [b"news", b"other"]
        assert client.pubsub_numpat() == 2
        info = client.info("stats")
        assert (info["pubsub_channels"], info["pubsub_patterns"]) == (2, 2)
        assert [it["psub"] for it in client.client_list(_type="pubsub")] == ["2"]
        listener.unsubscribe()
        listener.punsubscribe()
        received(listener, 4)
        assert client.publish("news", "x") == 0
        assert client.client_list(_type="pubsub") == []


def test_a_listener_that_leaves_is_forgotten(connect, client):
    listener = connect().pubsub()
    listener.subscribe(*(f"c:{number}" for number in range(1000)))
    received(listener, 1000)
    assert client.info("stats")["pubsub_channels"] == 1000
    listener.close()
    while client.info("stats")["pubsub_channels"] > 0:
        pass
    assert client.publish("c:7", "x") == 0


def test_shard_channels_have_names_of_their_own(server):
    with server.connect() as listener, server.connect() as publisher:
        assert listener.call("SSUBSCRIBE", "a") == [b"ssubscribe", b"a", 1]
        assert publisher.call("PUBLISH", "a", "x") == 0
        assert publisher.call("SPUBLISH", "a", "y") == 1
        assert listener.read() == [b"smessage", b"a", b"y"]
        assert publisher.call("PUBSUB", "SHARDNUMSUB", "a") == [b"a", 1]
        assert listener.call("SUNSUBSCRIBE") == [b"sunsubscribe", b"a", 0]


def test_a_subscriber_of_resp2_may_do_little_else(server):
    with server.connect() as listener:
        assert listener.call("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
        assert listener.call("GET", "k") == ErrorReply(f"ERR Can't execute 'get': {REFUSED}")
        assert listener.call("HELLO", "3") == ErrorReply(f"ERR Can't execute 'hello': {REFUSED}")
        assert listener.call("PING") == [b"pong", b""]
        assert listener.call("PING", "x") == [b"pong", b"x"]
        assert listener.call("RESET") == b"RESET"
        assert listener.call("GET", "k") is None
        listener.call("HELLO", "3")
        assert listener.call("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
        assert listener.call("GET", "k") is None
        assert listener.call("PING") == b"PONG"


def test_messages_of_transactions_keep_their_order(connect, client):
    with connect().pubsub() as listener:
        listener.subscribe("done")
        received(listener, 1)
        for number in range(200):
            with client.pipeline() as pipeline:
                pipeline.set("k", number)
                pipeline.publish("done", f"tx {number}")
                assert pipeline.execute() == [True, 1]
            client.publish("done", f"after {number}")
        data = [data.decode() for *_, data in received(listener, 400)]
        assert data == [f"{kind} {number}" for number in range(200) for kind in ("tx", "after")]


def test_changes_of_keys_are_notified(connect, client):
    client.config_set("notify-keyspace-events", "KEA")
    with connect().pubsub() as listener:
        listener.psubscribe("__key*__:*")
        received(listener, 1)
        client.set("k", "v", px=10)
        client.rpush("l", 1)
        while client.exists("k"):
            pass
        client.delete("l")
        told = [(channel.decode(), data.decode()) for _, _, channel, data in received(listener, 10)]
        of_keys = [(channel, data) for channel, data in told if channel.startswith("__keyspace@0__:")]
        assert sorted(of_keys) == [
            ("__keyspace@0__:k", "expire"),
            ("__keyspace@0__:k", "expired"),
            ("__keyspace@0__:k", "set"),
            ("__keyspace@0__:l", "del"),
            ("__keyspace@0__:l", "rpush"),
        ]
        assert ("__keyevent@0__:rpush", "l") in told


def test_resp2_clients_get_invalidations_through_a_channel(server):
    with server.connect() as listener, server.connect() as reader, server.connect() as writer:
        own_id = listener.call("CLIENT", "ID")
        assert listener.call("SUBSCRIBE", "__redis__:invalidate") == [b"subscribe", b"__redis__:invalidate", 1]
        assert reader.call("CLIENT", "TRACKING", "on", "REDIRECT", own_id) == b"OK"
        assert reader.call("GET", "k") is None
        assert writer.call("SET", "k", "v") == b"OK"
        assert listener.read() == [b"message", b"__redis__:invalidate", [b"k"]]
        assert writer.call("FLUSHALL") == b"OK"
        assert listener.read() == [b"message", b"__redis__:invalidate", None]


def test_names_may_be_empty_large_and_many(server):
    with server.connect() as listener, server.connect() as publisher:
        name = b"n" * LARGE_NAME_BYTES
        assert listener.call("SUBSCRIBE", "", name) == [b"subscribe", b"", 1]
        assert listener.read() == [b"subscribe", name, 2]
        assert publisher.call("PUBLISH", "", "") == 1
        assert publisher.call("PUBLISH", name, "x") == 1
        assert listener.read() == [b"message", b"", b""]
        assert listener.read() == [b"message", name, b"x"]
        names = [b"c:%d" % number for number in range(MANY_CHANNELS)]
        listener.send(encode("SUBSCRIBE", *names))
        assert [listener.read()[1] for _ in names] == names
        assert publisher.call("PUBLISH", names[-1], "x") == 1
        assert listener.read() == [b"message", names[-1], b"x"]
        listener.send(encode("UNSUBSCRIBE"))
        assert len({listener.read()[1] for _ in range(MANY_CHANNELS + 2)}) == MANY_CHANNELS + 2
        assert publisher.call("PUBSUB", "CHANNELS") == []


@pytest.mark.parametrize("pattern", ["[", "[^", "\\", "a\\", "[a-", "[]", "*" * 1000, "?" * 1000, ""])
def test_unusual_patterns_match_as_in_redis(server, pattern):
    with server.connect() as listener, server.connect() as publisher:
        assert listener.call("PSUBSCRIBE", pattern) == [b"psubscribe", pattern.encode(), 1]
        for channel in ["", "a", "[", "\\", "a\\", "x" * 1000]:
            for _ in range(publisher.call("PUBLISH", channel, "x")):
                assert listener.read() == [b"pmessage", pattern.encode(), channel.encode(), b"x"]
        assert listener.call("PUNSUBSCRIBE", pattern) == [b"punsubscribe", pattern.encode(), 0]


def test_a_pattern_cannot_take_for_ever(server):
    with server.connect() as listener, server.connect() as publisher:
        pattern = "a*" * 1000 + "b"
        assert listener.call("PSUBSCRIBE", pattern) == [b"psubscribe", pattern.encode(), 1]
        assert publisher.call("PUBLISH", "a" * 10_000, "x") == 0


def test_large_messages_arrive_whole(server):
    with server.connect() as publisher:
        listeners = [server.connect() for _ in range(4)]
        for number, listener in enumerate(listeners):
            if number % 2:
                listener.call("HELLO", "3")
            assert listener.call("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
        payload = bytes(range(256)) * (2 * MIB // 256)
        assert publisher.call("PUBLISH", "a", payload) == 4
        assert publisher.call("PUBLISH", "a", "end") == 4
        for listener in listeners:
            assert listener.read() == [b"message", b"a", payload]
            assert listener.read() == [b"message", b"a", b"end"]
            listener.close()


@pytest.mark.soak
def test_subscribe_then_get_never_misses_set_then_publish(server, pytestconfig):
    """Result back ends: the waiting client subscribes and reads, the worker stores and publishes. The client
    must see one of the two.
    """
    rounds = pytestconfig.getoption("--races")
    with server.connect() as worker, server.connect() as waiter, server.connect() as starter:
        waiter.call("HELLO", "3")
        for number in range(rounds):
            key = f"result:{number}"
            # Sent at the same time, on connections of two workers.
            done = encode("SET", key, "v") + encode("PUBLISH", key, "v")
            first, second = (waiter, worker) if number % 2 else (worker, waiter)
            look = encode("SUBSCRIBE", key) + encode("GET", key)
            for connection in (first, second):
                connection.send(look if connection is waiter else done)
            seen = [waiter.read(), waiter.read()]
            assert seen[0] == [b"subscribe", key.encode(), 1]
            if seen[1] is None:
                seen.append(waiter.read())
            assert b"v" in seen or [b"message", key.encode(), b"v"] in seen, seen
            assert worker.read() == b"OK"
            count = worker.read()
            waiter.send(encode("UNSUBSCRIBE", key))
            # The message may arrive as well, if the value was seen first.
            told = [message for message in seen if isinstance(message, list) and message[0] == b"message"]
            while (message := waiter.read()) != [b"unsubscribe", key.encode(), 0]:
                told.append(message)
            assert len(told) == count, (seen, told, count)
        assert starter.call("PUBSUB", "NUMPAT") == 0
