"""Durable channels: messages stay in the log; XSUBSCRIBE reads them again and continues live."""

import threading

import pytest

from harness.resp import Connection, ErrorReply, encode
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

MIB = 1 << 20
PATTERNS = ("--durable-channels", "log:*")


@pytest.fixture
def server(new_server):
    return new_server(extra=PATTERNS).start()


def listener(server, protocol: int) -> Connection:
    connection = server.connect()
    assert not isinstance(connection.call("HELLO", protocol), ErrorReply)
    return connection


def begin(connection: Connection, channel: str, start: bytes | str, count: int = 1) -> bytes:
    """Sends XSUBSCRIBE; returns the position from which it starts."""
    verb, name, position, total = connection.call("XSUBSCRIBE", channel, "FROM", start)
    assert (verb, name, total) == (b"xsubscribe", channel.encode(), count)
    return position


def messages(connection: Connection, channel: str, count: int) -> list[tuple[bytes, bytes]]:
    """This many (position, payload) pairs of a channel."""
    got = []
    for _ in range(count):
        verb, name, position, payload = connection.read()
        assert (verb, name) == (b"xmessage", channel.encode())
        got.append((position, payload))
    return got


def place(position: bytes) -> int:
    return int(position.split(b":")[1])


def test_messages_are_read_again_from_any_position(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as first:
        for number in range(100):
            assert publisher.call("PUBLISH", "log:a", number) == 0
            assert publisher.call("PUBLISH", "log:b", "other") == 0
            assert publisher.call("PUBLISH", "elsewhere", "not kept") == 0
        begin(first, "log:a", "-")
        told = messages(first, "log:a", 100)
        assert [payload for _, payload in told] == [b"%d" % number for number in range(100)]
        places = [place(position) for position, _ in told]
        assert places == sorted(set(places))
        for index in (0, 50, 98):
            with listener(server, protocol) as again:
                assert begin(again, "log:a", told[index][0]) == told[index][0]
                assert messages(again, "log:a", 99 - index) == told[index + 1 :]
        with listener(server, protocol) as late:
            begin(late, "log:a", "$")
            assert publisher.call("PUBLISH", "log:a", "new") == 2
            assert messages(late, "log:a", 1) == messages(first, "log:a", 1)
            assert publisher.call("PUBSUB", "NUMSUB", "log:a") == [b"log:a", 2]


def test_positions_survive_a_restart(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as first:
        begin(first, "log:a", "-")
        for number in range(10):
            publisher.call("PUBLISH", "log:a", number)
        told = messages(first, "log:a", 10)
    server.kill()
    server.start()
    with server.connect() as publisher, listener(server, protocol) as again:
        publisher.call("PUBLISH", "log:a", "after")
        begin(again, "log:a", told[3][0])
        assert messages(again, "log:a", 6) == told[4:]
        (position, payload) = messages(again, "log:a", 1)[0]
        assert payload == b"after"
        assert int(position.split(b":")[0]) > int(told[0][0].split(b":")[0]), "a later epoch"


def test_a_transaction_is_read_as_a_whole(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as reader:
        begin(reader, "log:a", "$")
        begin(reader, "log:b", "$", 2)
        commands = [("PUBLISH", "log:a", "1"), ("SET", "k", "v"), ("PUBLISH", "log:b", "2"), ("PUBLISH", "log:a", "3")]
        assert publisher.call("MULTI") == b"OK"
        for command in commands:
            assert publisher.call(*command) == b"QUEUED"
        assert publisher.call("EXEC") == [1, b"OK", 1, 1]
        told = [reader.read() for _ in range(3)]
        assert [(channel, payload) for _, channel, _, payload in told] == [
            (b"log:a", b"1"),
            (b"log:b", b"2"),
            (b"log:a", b"3"),
        ]
        first, second, third = (place(position) for _, _, position, _ in told)
        assert (second, third) == (first + 1, first + 2), "they are told apart within one record"
        with listener(server, protocol) as again:
            begin(again, "log:a", told[0][2])
            assert messages(again, "log:a", 1) == [(told[2][2], b"3")]


def test_large_messages(server, protocol):
    payloads = [bytes([65 + number]) * (3 * MIB) for number in range(5)]
    with server.connect() as publisher, listener(server, protocol) as reader:
        begin(reader, "log:a", "-")
        for payload in payloads:
            publisher.call("PUBLISH", "log:a", payload)
        told = messages(reader, "log:a", len(payloads))
        assert [payload for _, payload in told] == payloads
        with listener(server, protocol) as again:
            begin(again, "log:a", told[1][0])
            assert messages(again, "log:a", 3) == told[2:]


def test_plain_subscribers_get_messages_of_durable_channels(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as plain:
        assert plain.call("SUBSCRIBE", "log:a") == [b"subscribe", b"log:a", 1]
        assert publisher.call("PUBLISH", "log:a", "x") == 1
        assert plain.read() == [b"message", b"log:a", b"x"]
        begin(plain, "log:a", "-", 2)
        assert messages(plain, "log:a", 1)[0][1] == b"x"
        assert plain.call("UNSUBSCRIBE", "log:a") == [b"unsubscribe", b"log:a", 1]
        assert publisher.call("PUBLISH", "log:a", "y") == 1
        assert messages(plain, "log:a", 1)[0][1] == b"y"


def test_subscriptions_end(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as reader:
        begin(reader, "log:a", "$")
        begin(reader, "log:b", "$", 2)
        assert reader.call("XUNSUBSCRIBE", "log:a", "log:c") == [b"xunsubscribe", b"log:a", 1]
        assert reader.read() == [b"xunsubscribe", b"log:c", 1]
        assert publisher.call("PUBLISH", "log:a", "x") == 0
        assert publisher.call("PUBLISH", "log:b", "y") == 1
        assert messages(reader, "log:b", 1)[0][1] == b"y"
        assert reader.call("XUNSUBSCRIBE") == [b"xunsubscribe", b"log:b", 0]
        assert reader.call("XUNSUBSCRIBE") == [b"xunsubscribe", None, 0]
        assert reader.call("GET", "k") is None, "it is no subscriber any more"
        begin(reader, "log:a", "-")
        assert messages(reader, "log:a", 1)[0][1] == b"x"
        assert reader.call("RESET") == b"RESET"
        assert publisher.call("PUBLISH", "log:a", "z") == 0
        begin(reader, "log:a", "-")
        assert [payload for _, payload in messages(reader, "log:a", 2)] == [b"x", b"z"]


def test_mistakes_are_named(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as reader:
        for start in ("", "x", "1", "1:", ":1", "1:-1", "+", "1:2:", "1:2:x", "1:2:3:4"):
            error = reader.call("XSUBSCRIBE", "log:a", "FROM", start)
            assert isinstance(error, ErrorReply) and error.text.startswith("ERR invalid position"), start
        assert reader.call("XSUBSCRIBE", "log:a", "AFTER", "-") == ErrorReply("ERR syntax error")
        assert reader.call("XSUBSCRIBE", "other", "FROM", "-").text.startswith("ERR the channel is not durable")
        publisher.call("PUBLISH", "log:a", "x")
        for foreign in ("1:99999999999", "99:4096"):
            error = reader.call("XSUBSCRIBE", "log:a", "FROM", foreign)
            assert error == ErrorReply(
                f"LOST position {foreign} is not of this log: FROM - begins with the oldest message, FROM $ with the next one"
            )
        assert reader.call("MULTI") == b"OK"
        assert isinstance(reader.call("XSUBSCRIBE", "log:a", "FROM", "-"), ErrorReply)
        assert reader.call("DISCARD") == b"OK"
        assert reader.call("GET", "k") is None, "nothing was subscribed to"


def test_the_set_of_durable_channels_can_be_changed(server, protocol):
    with server.connect() as publisher, listener(server, protocol) as reader:
        publisher.call("PUBLISH", "news", "before")
        assert publisher.call("CONFIG", "SET", "durable-channels", "log:* news") == b"OK"
        publisher.call("PUBLISH", "news", "after")
        begin(reader, "news", "-")
        assert messages(reader, "news", 1)[0][1] == b"after"


def test_replay_goes_live_without_a_gap(server, protocol):
    """One publisher at full speed; many readers begin anywhere and reach the end."""
    stop, sent = threading.Event(), 0
    failures = []

    def publish() -> None:
        nonlocal sent
        with server.connect() as publisher:
            while not stop.is_set():
                publisher.send(b"".join(encode("PUBLISH", "log:a", sent + number) for number in range(50)))
                for _ in range(50):
                    publisher.read()
                sent += 50

    def read() -> None:
        with listener(server, protocol) as reader:
            begin(reader, "log:a", "-")
            for number in range(5_000):
                _, _, _, payload = reader.read()
                if payload != b"%d" % number:
                    failures.append((number, payload))
                    return

    publisher = threading.Thread(target=publish)
    publisher.start()
    readers = []
    for _ in range(6):
        readers.append(threading.Thread(target=read))
        readers[-1].start()
        wait_until("messages to be published", lambda before=sent: sent > before + 500)
    for thread in readers:
        thread.join()
    stop.set()
    publisher.join()
    assert not failures


def test_a_slow_reader_is_left_behind_and_gets_everything(server, protocol):
    payload, count = b"x" * (64 << 10), 1000
    with server.connect() as publisher, listener(server, protocol) as slow, listener(server, protocol) as quick:
        begin(slow, "log:a", "$")
        begin(quick, "log:a", "$")
        for number in range(count):
            publisher.call("PUBLISH", "log:a", b"%d " % number + payload)
            assert messages(quick, "log:a", 1)[0][1].startswith(b"%d " % number)
        info = publisher.call("INFO", "stats").decode()
        assert "durable_channels_followers:2\r\n" in info and "durable_channels_behind:1\r\n" in info
        for number, (_, told) in enumerate(messages(slow, "log:a", count)):
            assert told.startswith(b"%d " % number)
        publisher.call("PUBLISH", "log:a", "live")
        assert messages(slow, "log:a", 1) == messages(quick, "log:a", 1)
        assert "client_output_buffer_limit_disconnections:0" in publisher.call("INFO", "stats").decode()
