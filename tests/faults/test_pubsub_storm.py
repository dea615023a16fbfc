"""Channels under load: publishers at full speed while subscriptions come and go and readers do not read.

Every message carries its publisher and a number. Who is subscribed all the time gets every one of them, once and in its
publisher's order; who comes and goes gets what was published between the confirmations, without a gap.
"""

import threading
import time

import pytest

from harness import procfs
from harness.resp import Closed, Connection, encode
from harness.waiting import wait_until

MIB = 1 << 20
SLOW_LISTENERS = 50
PAYLOAD_BYTES = 256 << 10
MESSAGES = 100
# What the slow ones may hold by their limit, shared among them, and what the kernel has not taken at the same time.
SLOW_GROWTH_MAX = 64 * MIB

PUBLISHERS = 4
CHURNERS = 6
PIPELINE = 50
CHANNELS = [f"ch:{number}" for number in range(3)]


class Publisher(threading.Thread):
    """Publishes numbered messages to all channels in turn until it is told to stop."""

    def __init__(self, port: int, number: int, stop: threading.Event):
        super().__init__()
        self.connection, self.number, self.stop = Connection(port), number, stop
        self.sent = dict.fromkeys(CHANNELS, 0)

    def run(self) -> None:
        while not self.stop.is_set():
            commands = []
            for _ in range(PIPELINE):
                for channel in CHANNELS:
                    commands.append(encode("PUBLISH", channel, f"{self.number} {self.sent[channel]}"))
                    self.sent[channel] += 1
            self.connection.send(b"".join(commands))
            for _ in commands:
                self.connection.read()
        # Behind all others of this publisher, whatever those of other workers do.
        self.connection.call("PUBLISH", CHANNELS[0], "-1 0")


def churn(port: int, number: int, stop: threading.Event, failures: list[str]) -> None:
    """Subscribes, takes some messages, unsubscribes: what comes in between has no gap."""
    connection = Connection(port)
    by_pattern = number % 3 == 0
    verbs = (b"psubscribe", b"punsubscribe") if by_pattern else (b"subscribe", b"unsubscribe")
    names = ["ch:?"] if by_pattern else CHANNELS[: 1 + number % 3]
    while not stop.is_set():
        connection.send(encode(verbs[0], *names))
        last: dict[tuple, int] = {}
        left, taken = len(names), 0
        while left:
            kind, *rest = connection.read()
            if kind == verbs[1]:
                left -= 1
            elif kind == verbs[0]:
                continue
            else:
                channel, data = rest[-2:]
                publisher, count = map(int, data.split())
                expected = last.get((channel, publisher), count - 1) + 1
                if count != expected:
                    failures.append(f"churner {number}: {count} of {publisher} on {channel}, expected {expected}")
                last[channel, publisher] = count
            taken += 1
            if taken == 20:
                connection.send(encode(verbs[1], *names))
    connection.close()


def test_nothing_is_lost_while_subscriptions_come_and_go(server, pytestconfig):
    stop, stop_churning = threading.Event(), threading.Event()
    failures: list[str] = []
    listeners = [server.connect() for _ in range(3)]
    for listener in listeners:
        listener.send(encode("SUBSCRIBE", *CHANNELS))
        assert [listener.read()[2] for _ in CHANNELS] == [1, 2, 3]
    publishers = [Publisher(server.port, number, stop) for number in range(PUBLISHERS)]
    churners = [
        threading.Thread(target=churn, args=(server.port, number, stop_churning, failures))
        for number in range(CHURNERS)
    ]
    got: list[dict] = [{} for _ in listeners]

    def listen(listener: Connection, counts: dict) -> None:
        ended = 0
        while ended < PUBLISHERS:
            _, channel, data = listener.read()
            publisher, count = map(int, data.split())
            if publisher < 0:
                ended += 1
                continue
            if count != counts.get((channel, publisher), 0):
                failures.append(f"{count} of {publisher} on {channel}, expected {counts.get((channel, publisher), 0)}")
            counts[channel, publisher] = count + 1

    readers = [threading.Thread(target=listen, args=it) for it in zip(listeners, got, strict=True)]
    for thread in [*readers, *churners, *publishers]:
        thread.start()
    time.sleep(pytestconfig.getoption("--churn-seconds"))
    # Churners first: they end their round only while messages come.
    stop_churning.set()
    for thread in churners:
        thread.join()
    stop.set()
    for thread in publishers:
        thread.join()
    for thread in readers:
        thread.join()
    assert not failures, failures[:5]
    sent = {(channel.encode(), it.number): it.sent[channel] for it in publishers for channel in CHANNELS}
    assert all(counts == sent for counts in got)
    print(f"{sum(sent.values())} messages")
    for listener in listeners:
        listener.close()


def slow_listener(server, name: str) -> Connection:
    """Subscribes and reads no further."""
    connection = server.connect()
    assert connection.call("CLIENT", "SETNAME", name) == b"OK"
    assert connection.call("SUBSCRIBE", "ch") == [b"subscribe", b"ch", 1]
    return connection


def disconnections(connection: Connection) -> int:
    """How many clients were too slow."""
    stats = connection.call("INFO", "stats").decode()
    return int(stats.split("client_output_buffer_limit_disconnections:")[1].split()[0])


@pytest.mark.sheaf_only
def test_slow_listeners_are_cut_and_cost_nobody_else_anything(server):
    with server.connect() as publisher, server.connect() as healthy:
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0") == b"OK"
        assert healthy.call("SUBSCRIBE", "ch") == [b"subscribe", b"ch", 1]
        slow = [slow_listener(server, f"slow-{number}") for number in range(SLOW_LISTENERS)]
        procfs.reset_peak(server.pid)
        before = procfs.resident_bytes(server.pid)
        payload = b"x" * PAYLOAD_BYTES
        for _ in range(MESSAGES):
            assert publisher.call("PUBLISH", "ch", payload) >= 1
            assert healthy.read() == [b"message", b"ch", payload]
        wait_until("the slow ones to be cut", lambda: disconnections(publisher) == SLOW_LISTENERS)
        assert publisher.call("PUBSUB", "NUMSUB", "ch") == [b"ch", 1]
        grown = procfs.resident_bytes_peak(server.pid) - before
        assert grown < SLOW_GROWTH_MAX, f"grew by {grown / MIB:.1f} MiB"
        server.wait_for_log("slow-0")
        assert "hard limit" in server.log()
        for connection in slow:
            connection.close()


@pytest.mark.sheaf_only
def test_a_listener_above_the_soft_limit_has_some_time(server):
    with server.connect() as publisher, slow_listener(server, "slow") as slow:
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 1mb 1") == b"OK"
        for _ in range(MESSAGES):
            publisher.call("PUBLISH", "ch", b"x" * PAYLOAD_BYTES)
        shown = publisher.call("CLIENT", "LIST", "TYPE", "pubsub").decode()
        assert "name=slow" in shown and int(shown.split("omem=")[1].split()[0]) > MIB, shown
        wait_until("it to be cut", lambda: disconnections(publisher) == 1)
        server.wait_for_log("soft limit")
        with pytest.raises(Closed):
            while True:
                slow.read()


@pytest.mark.sheaf_only
def test_a_listener_that_takes_nothing_at_all_is_given_up(server):
    with server.connect() as publisher, slow_listener(server, "gone"):
        for _ in range(MESSAGES):
            publisher.call("PUBLISH", "ch", b"x" * PAYLOAD_BYTES)
        wait_until("it to be given up", lambda: disconnections(publisher) == 1)
        server.wait_for_log("no progress")


@pytest.mark.sheaf_only
def test_a_reader_that_is_slow_but_reads_gets_everything(server):
    with server.connect() as publisher, slow_listener(server, "slow") as slow:
        count = 40
        for number in range(count):
            assert publisher.call("PUBLISH", "ch", b"%d " % number + b"x" * PAYLOAD_BYTES) == 1
        for number in range(count):
            assert slow.read()[2].startswith(b"%d " % number)
        assert disconnections(publisher) == 0


@pytest.mark.sheaf_only
def test_a_listener_that_is_behind_can_leave(server):
    with server.connect() as publisher, slow_listener(server, "slow") as slow:
        for _ in range(60):
            assert publisher.call("PUBLISH", "ch", b"x" * PAYLOAD_BYTES) == 1
        slow.send(encode("UNSUBSCRIBE"))
        wait_until("it to leave", lambda: publisher.call("PUBLISH", "ch", "x") == 0)
        while (message := slow.read())[0] == b"message":
            pass
        assert message == [b"unsubscribe", b"ch", 0]
