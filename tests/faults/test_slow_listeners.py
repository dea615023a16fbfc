"""Subscribers that read too slowly: they are disconnected in time, and without harm to other clients."""

import contextlib
import json
import socket
import subprocess
import threading
import time
from itertools import cycle
from pathlib import Path

import pytest

from harness import procfs
from harness.messages import Listener, Publisher
from harness.resp import Closed, Connection, encode
from harness.waiting import wait_until

MIB = 1 << 20
SLOW_LISTENERS = 50
PAYLOAD_BYTES = 256 << 10
MESSAGES = 100
# The memory that slow subscribers may hold by their limit, shared among them, and the bytes that the kernel
# has not accepted at the same time.
SLOW_GROWTH_MAX = 64 * MIB

READERS = 200
READERS_RECEIVE_BYTES = 16 << 10
PUBLISHERS = 4
CHANNELS = ["ch:0", "ch:1"]
# Large enough to be shared, so that the unread messages of 200 readers are one block in memory.
PADDING = "x" * 4096
# Less than the limit below, so that fast subscribers never reach it.
WINDOW = 50

# The most that the kernel buffers of what a server sends to one client.
SEND_BUFFER_BYTES_MAX = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
# The receive buffer of a subscriber that reads slowly, but steadily.
STEADY_RECEIVE_BYTES = 128 << 10
# Of several such subscribers one may be this much further behind than the others, because the kernel enlarges
# the buffers of each as it likes. A single subscriber that is behind is not waited for.
STEADY_UNSENT_BYTES_MAX = SEND_BUFFER_BYTES_MAX + MIB
# Sent to such subscribers: more than the kernel and this limit take together.
STEADY_BYTES = SEND_BUFFER_BYTES_MAX + STEADY_UNSENT_BYTES_MAX + 2 * MIB

# The unsent bytes allowed for all subscribers of a worker together.
UNTAKEN_BYTES_MAX = 256 * MIB
# Beyond that: messages being published, and memory kept by the allocator.
UNTAKEN_GROWTH_MAX = UNTAKEN_BYTES_MAX + 128 * MIB


def slow_listener(server, name: str) -> Connection:
    """Subscribes and reads nothing more."""
    connection = server.connect()
    assert connection.call("CLIENT", "SETNAME", name) == b"OK"
    assert connection.call("SUBSCRIBE", "ch") == [b"subscribe", b"ch", 1]
    return connection


def disconnections(connection: Connection) -> int:
    """The number of clients disconnected as too slow."""
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
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 1mb 3600") == b"OK"
        for _ in range(MESSAGES):
            publisher.call("PUBLISH", "ch", b"x" * PAYLOAD_BYTES)
        shown = publisher.call("CLIENT", "LIST", "TYPE", "pubsub").decode()
        assert "name=slow" in shown and int(shown.split("omem=")[1].split()[0]) > MIB, shown
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 1mb 1") == b"OK"
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


class SlowReaders(threading.Thread):
    """Readers of one channel each, who read a KiB a second; a disconnected one reconnects, if `come_back` is
    set.
    """

    def __init__(self, port: int, channels: list[str], stop: threading.Event, come_back: bool):
        super().__init__()
        self._port, self._channels, self._stop_now, self._come_back = port, cycle(channels), stop, come_back
        self._readers = [self._reader() for _ in range(READERS)]
        self.cut = 0

    def _reader(self) -> Connection:
        reader = Connection(self._port)
        # The kernel's buffer would hide the slowness.
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READERS_RECEIVE_BYTES)
        reader.call("SUBSCRIBE", next(self._channels))
        reader.socket.setblocking(False)
        return reader

    def run(self) -> None:
        while not self._stop_now.wait(1.0):
            for reader in [reader for reader in self._readers if self._is_gone(reader)]:
                self.cut += 1
                reader.close()
                self._readers.remove(reader)
                if self._come_back:
                    self._readers.append(self._reader())
        for reader in self._readers:
            reader.close()

    @staticmethod
    def _is_gone(reader: Connection) -> bool:
        with contextlib.suppress(BlockingIOError):
            try:
                return not reader.socket.recv(1024)
            except ConnectionResetError:
                return True
        return False


@pytest.mark.sheaf_only
@pytest.mark.soak
def test_two_hundred_slow_readers_are_cut_and_all_others_get_everything(server, pytestconfig):
    stop = threading.Event()
    with server.connect() as control:
        assert control.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 4mb 0 0") == b"OK"
        listeners = [Listener(server.port, CHANNELS, PUBLISHERS) for _ in range(3)]
        slow = SlowReaders(server.port, CHANNELS, stop, come_back=False)
        publishers = [
            Publisher(server.port, number, CHANNELS, stop, listeners, PADDING, WINDOW) for number in range(PUBLISHERS)
        ]
        procfs.reset_peak(server.pid)
        before = procfs.resident_bytes(server.pid)
        for thread in [*listeners, slow, *publishers]:
            thread.start()
        time.sleep(pytestconfig.getoption("--churn-seconds"))
        wait_until("all slow readers to be cut", lambda: disconnections(control) == READERS)
        stop.set()
        for thread in [*publishers, *listeners, slow]:
            thread.join()
        grown = procfs.resident_bytes_peak(server.pid) - before
        assert grown < SLOW_GROWTH_MAX, f"grew by {grown / MIB:.1f} MiB"
        sent = {(channel.encode(), it.number): it.sent[channel] for it in publishers for channel in CHANNELS}
        for listener in listeners:
            assert not listener.failures, listener.failures[:5]
            assert listener.counts == sent
        assert server.log().count("hard limit") == READERS
        print(f"{sum(sent.values())} messages, grew by {grown / MIB:.1f} MiB")


@pytest.mark.sheaf_only
@pytest.mark.soak
def test_others_hardly_notice_slow_readers(server, pytestconfig):
    """A measurement for soaks: the bench's program publishes and subscribes, without slow readers and beside
    them.
    """
    traffic = pytestconfig.getoption("--traffic")
    if traffic is None:
        pytest.skip("needs --traffic, the program of the bench")
    seconds = str(pytestconfig.getoption("--churn-seconds"))
    command = [traffic, "publish", "--port", str(server.port), "--pid", str(server.pid), "--seconds", seconds]
    command += ["--channels", "100", "--listened", "100", "--subscribers", "2", "--span", "10", "--pipeline", "1"]

    def p99_ms() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["p99_ms"]

    without = p99_ms()
    stop = threading.Event()
    slow = SlowReaders(server.port, [f"channel:{number:07}" for number in range(100)], stop, come_back=True)
    slow.start()
    beside = p99_ms()
    stop.set()
    slow.join()
    print(f"p99 {without} ms without, {beside} ms beside {READERS} slow readers, of whom {slow.cut} were cut")
    assert beside < 2 * without


class SteadyReader(threading.Thread):
    """A subscriber that reads at a steady rate until the last message."""

    def __init__(self, port: int, bytes_per_s: int):
        super().__init__()
        self._connection, self._bytes_per_s = Connection(port), bytes_per_s
        # The kernel's own choice could be larger than all that is sent.
        self._connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STEADY_RECEIVE_BYTES)
        assert self._connection.call("SUBSCRIBE", "ch") == [b"subscribe", b"ch", 1]
        self.received = bytearray()

    def run(self) -> None:
        never, begun = threading.Event(), time.monotonic()
        with self._connection as connection, contextlib.suppress(ConnectionResetError):
            while not self.received.endswith(b"end\r\n") and (piece := connection.socket.recv(16 << 10)):
                self.received += piece
                never.wait(max(0, begun + len(self.received) / self._bytes_per_s - time.monotonic()))


@pytest.mark.sheaf_only
@pytest.mark.parametrize(("bytes_per_s", "payload_bytes"), [(400_000, 1000), (1_000_000, 100)])
def test_a_publisher_waits_for_steady_readers_however_slow(server, bytes_per_s, payload_bytes):
    with server.connect() as publisher:
        # So that the test is short.
        limit = f"pubsub {STEADY_UNSENT_BYTES_MAX} 0 0"
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", limit) == b"OK"
        readers = [SteadyReader(server.port, bytes_per_s) for _ in range(3)]
        for reader in readers:
            reader.start()
        message = encode("PUBLISH", "ch", b"x" * payload_bytes)
        block = 200
        blocks = STEADY_BYTES // payload_bytes // block
        count = blocks * block
        for _ in range(blocks):
            publisher.send(message * block)
            assert all(publisher.read() == 3 for _ in range(block)), "one was disconnected"
        assert publisher.call("PUBLISH", "ch", "end") == 3
        for reader in readers:
            reader.join()
            assert reader.received.count(b"x" * payload_bytes) == count
        assert disconnections(publisher) == 0


@pytest.mark.sheaf_only
def test_subscribers_of_a_worker_have_a_limit_together(new_server):
    server = new_server(workers=1).start()
    with server.connect() as publisher:
        assert publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0") == b"OK"
        channels = [f"ch:{number}" for number in range(12)]
        slow = [server.connect() for _ in channels]
        for number, (connection, channel) in enumerate(zip(slow, channels, strict=True)):
            assert connection.call("CLIENT", "SETNAME", f"slow-{number}") == b"OK"
            assert connection.call("SUBSCRIBE", channel) == [b"subscribe", channel.encode(), 1]
        procfs.reset_peak(server.pid)
        before = procfs.resident_bytes(server.pid)
        payload = b"x" * (4 * MIB)
        # One of them is sent twice as much as the others.
        furthest_behind = channels[7]
        while disconnections(publisher) == 0:
            for channel in [*channels, furthest_behind]:
                publisher.call("PUBLISH", channel, payload)
        server.wait_for_log("furthest behind of too many")
        first = next(line for line in server.log().splitlines() if "furthest behind of too many" in line)
        assert 'name="slow-7"' in first, first
        grown = procfs.resident_bytes_peak(server.pid) - before
        assert UNTAKEN_BYTES_MAX / 2 < grown < UNTAKEN_GROWTH_MAX, f"grew by {grown / MIB:.1f} MiB"
        assert publisher.call("PUBLISH", channels[0], "x") == 1, "the others are still there"
        for connection in slow:
            connection.close()
