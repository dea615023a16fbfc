"""Publishers that could publish far more than subscribers read: they are slowed down to most subscribers, and
no subscriber is disconnected for it.
"""

import socket
import threading

import pytest

from harness.flood import CHANNEL, Flood, payload
from harness.resp import Closed, Connection, ErrorReply, encode
from harness.waiting import wait_until

PUBLISHERS = 50
READERS = 20
LENGTH = 2000
# Of each publisher: together more than the 32 MiB that a subscriber may leave unread, beyond the kernel's
# buffers.
MESSAGES = 640
# The bytes that a client must publish to itself before it is disconnected at 32 MiB: the kernel buffers a
# part.
SELF_MESSAGES_MAX = 60_000


def disconnections(connection: Connection) -> int:
    """The number of clients disconnected as too slow."""
    stats = connection.call("INFO", "stats").decode()
    return int(stats.split("client_output_buffer_limit_disconnections:")[1].split()[0])


def long_units(server) -> int:
    """The number of units that have run on a thread of their own."""
    with server.connect() as control:
        stats = control.call("INFO", "stats").decode()
    return int(stats.split("long_units:")[1].split()[0])


def subscribe(server, channel: str = CHANNEL) -> Connection:
    """Subscribes and reads nothing more."""
    connection = server.connect()
    assert connection.call("SUBSCRIBE", channel) == [b"subscribe", channel.encode(), 1]
    return connection


@pytest.mark.sheaf_only
def test_publishers_are_paced_to_their_subscribers(server):
    flood = Flood(server.port, PUBLISHERS, READERS, MESSAGES, LENGTH)
    flood.run()
    assert set(flood.confirmed) == {READERS}, "each reply counts who has subscribed"
    with server.connect() as control:
        assert disconnections(control) == 0
        assert control.call("PING") == b"PONG"


@pytest.mark.sheaf_only
def test_one_silent_subscriber_paces_nobody_and_is_disconnected(server):
    with server.connect() as control, subscribe(server):
        flood = Flood(server.port, PUBLISHERS, READERS, MESSAGES, LENGTH)
        flood.run()
        wait_until("the one to be cut", lambda: disconnections(control) == 1)
        wait_until("the others to have left by themselves", lambda: control.call("PUBLISH", CHANNEL, "x") == 0)
        assert disconnections(control) == 1


@pytest.mark.sheaf_only
def test_an_audience_that_never_reads_is_cut_and_holds_up_nobody_for_ever(server):
    with server.connect() as control, server.connect() as publisher:
        deaf = [subscribe(server) for _ in range(3)]
        message = encode("PUBLISH", CHANNEL, "x" * 100_000)
        while disconnections(control) < len(deaf):
            publisher.send(message * 16)
            assert all(isinstance(publisher.read(), int) for _ in range(16))
        for connection in deaf:
            connection.close()


@pytest.mark.sheaf_only
def test_others_go_on_while_publishers_are_paced(server):
    """A connection that does not publish to the flooded channel is answered during a flood."""
    flood = Flood(server.port, PUBLISHERS, READERS, MESSAGES, LENGTH)
    flooding = threading.Thread(target=flood.run)
    flooding.start()
    with server.connect() as other, subscribe(server, "other") as listener:
        number = 0
        while flooding.is_alive() or number == 0:
            assert other.call("PUBLISH", "other", number) == 1
            assert listener.read() == [b"message", b"other", b"%d" % number]
            assert other.call("SET", "key", number) == b"OK"
            number += 1
    flooding.join()
    assert not flood.failures


@pytest.mark.sheaf_only
def test_transactions_scripts_and_events_are_paced_as_well(server):
    """Three ways to publish without PUBLISH, each with more than its subscriber may leave unread."""
    with server.connect() as control:
        assert control.call("CONFIG", "SET", "notify-keyspace-events", "K$") == b"OK"
    text = "x" * LENGTH
    channel = "__keyspace@0__:" + text
    commands = [
        [("MULTI",), ("PUBLISH", channel, text), ("EXEC",)],
        [("EVAL", "return redis.call('PUBLISH', ARGV[1], ARGV[2])", 0, channel, text)],
        [("SET", text, "1")],
    ]
    for unit in commands:
        said = encode("message", channel, "set" if unit[0][0] == "SET" else text)
        publish_to_one(server, b"".join(encode(*command) for command in unit), len(unit), channel, said)


@pytest.mark.sheaf_only
def test_scripts_that_take_long_are_paced_as_well(server):
    """Each publishes after more milliseconds than a script may run on a worker, so it ends on a thread of its
    own.
    """
    script = "local n = 0 for i = 1, 1e6 do n = n + i end for _ = 1, 200 do redis.call('PUBLISH', ARGV[1], ARGV[2]) end return n"
    text = "x" * LENGTH
    unit = encode("EVAL", script, 0, CHANNEL, text)
    publish_to_one(server, unit, 1, CHANNEL, encode("message", CHANNEL, text), times=100, messages=200)
    assert long_units(server) > 0, "the scripts were to take long"


def publish_to_one(server, unit, replies, channel, frame, times=20_000, messages=1) -> None:
    """Publishes 40 MB in units of this many messages, deeply pipelined, to one reader."""
    refused = []
    with subscribe(server, channel) as listener, server.connect() as publisher, server.connect() as control:

        def read_replies() -> None:
            said = (publisher.read() for _ in range(times * replies))
            refused.extend(reply for reply in said if isinstance(reply, ErrorReply))

        reading = threading.Thread(target=read_replies)
        reading.start()
        sending = threading.Thread(target=publisher.send, args=(unit * times,))
        sending.start()
        missing = len(frame) * times * messages
        while missing > 0:
            received = listener.socket.recv(1 << 20)
            assert received, f"the subscriber was cut, {missing} bytes are missing"
            start = -missing % len(frame)
            assert received == (frame * (2 + len(received) // len(frame)))[start : start + len(received)]
            missing -= len(received)
        sending.join()
        reading.join()
        assert disconnections(control) == 0 and not refused


@pytest.mark.sheaf_only
def test_a_client_that_floods_itself_without_reading_is_disconnected_alone(server):
    with server.connect() as client, server.connect() as other:
        assert client.call("HELLO", 3)
        assert client.call("SUBSCRIBE", CHANNEL)
        message = encode("PUBLISH", CHANNEL, "x" * LENGTH)
        with pytest.raises(Closed):
            for _ in range(SELF_MESSAGES_MAX // 100):
                client.send(message * 100)
                assert other.call("PING") == b"PONG"
        wait_until("it to be cut", lambda: disconnections(other) == 1)


@pytest.mark.sheaf_only
def test_a_client_that_publishes_to_itself_and_reads_gets_everything(server):
    times = 20_000
    with server.connect() as client, server.connect() as other:
        assert client.call("HELLO", 3)
        assert client.call("SUBSCRIBE", CHANNEL)
        requests = b"".join(encode("PUBLISH", CHANNEL, payload(0, number, LENGTH)) for number in range(times))
        sending = threading.Thread(target=client.send, args=(requests,))
        sending.start()
        heard = replies = 0
        while heard < times or replies < times:
            said = client.read()
            if said == 1:
                replies += 1
            else:
                assert not isinstance(said, ErrorReply) and said[2] == payload(0, heard, LENGTH)
                heard += 1
        sending.join()
        assert disconnections(other) == 0


def come_and_go(server, stop: threading.Event) -> None:
    """Subscribers that read a message and leave: some by UNSUBSCRIBE, some by closing the connection."""
    while not stop.is_set():
        connections = [subscribe(server) for _ in range(5)]
        for number, connection in enumerate(connections):
            assert connection.read()[0] == b"message"
            if number % 2:
                connection.send(encode("UNSUBSCRIBE"))
                while connection.read()[0] != b"unsubscribe":
                    pass
            else:
                connection.socket.shutdown(socket.SHUT_RDWR)
            connection.close()


@pytest.mark.sheaf_only
def test_subscribers_come_and_go_while_publishers_are_paced(server):
    flood = Flood(server.port, PUBLISHERS, READERS, MESSAGES, LENGTH)
    stop = threading.Event()
    churning = threading.Thread(target=come_and_go, args=(server, stop))
    churning.start()
    flood.run()
    stop.set()
    with server.connect() as control:
        while churning.is_alive():
            # A new subscriber waits for a message.
            control.call("PUBLISH", CHANNEL, "x")
        assert disconnections(control) == 0
        wait_until("all to have left", lambda: control.call("PUBLISH", CHANNEL, "x") == 0)
