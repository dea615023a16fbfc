"""Durable channels when the server is killed, when the log is removed behind a reader, and when the disk is
full.

Every message carries its publisher and a number. The log of a channel always holds 0, 1, 2 and so on for each
publisher, with at least all acknowledged messages; a reader gets exactly these, and a message that was
shown never changes.
"""

import itertools
import random
import threading
from collections import defaultdict

import pytest

from harness.resp import Closed, Connection, ErrorReply, encode
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

PUBLISHERS = 4
READERS = 3
CHANNELS = [b"log:0", b"log:1"]
PIPELINE_MAX = 60
SETTINGS = ("--durable-channels", "log:*")
# Marks the last message.
ENDS = itertools.count()
EVERY_SECOND = ("--snapshot-interval-seconds", "1", "--snapshot-log-bytes", "64kb")


class Publisher:
    """Publishes numbered messages over one connection after another, alone and in transactions."""

    def __init__(self, number: int, seed: int):
        self.number = number
        self._random = random.Random(seed * 100 + number)
        self.next = dict.fromkeys(CHANNELS, 0)
        self.acknowledged = dict.fromkeys(CHANNELS, 0)

    def run(self, port: int) -> None:
        """Publishes until the server stops answering."""
        try:
            with Connection(port) as connection:
                while True:
                    self._round(connection)
        except (Closed, OSError):
            pass

    def _round(self, connection: Connection) -> None:
        sent, commands = [], []
        for _ in range(self._random.randrange(1, PIPELINE_MAX)):
            channel = self._random.choice(CHANNELS)
            padding = "x" * self._random.choice([0, 10, 100, 5000])
            commands.append(encode("PUBLISH", channel, f"{self.number} {self.next[channel]} {padding}"))
            self.next[channel] += 1
            sent.append(channel)
        is_transaction = self._random.random() < 0.3
        if is_transaction:
            connection.send(encode("MULTI") + b"".join(commands) + encode("SET", "k", "v") + encode("EXEC"))
            replies = [connection.read() for _ in range(len(commands) + 3)][-1]
        else:
            connection.send(b"".join(commands))
            replies = [connection.read() for _ in commands]
        assert not any(isinstance(reply, ErrorReply) for reply in replies), replies
        for channel in sent:
            self.acknowledged[channel] += 1

    def goes_on(self, numbers: dict[bytes, int], keeps_acknowledged: bool) -> None:
        """After a restart: the number of surviving messages of each channel."""
        for channel in CHANNELS:
            assert numbers[channel] <= self.next[channel]
            assert not keeps_acknowledged or self.acknowledged[channel] <= numbers[channel]
            self.next[channel] = self.acknowledged[channel] = numbers[channel]


class Reader:
    """Reads a channel over one connection after another, each time from the last position received."""

    def __init__(self, channel: bytes, protocol: int):
        self.channel, self._protocol = channel, protocol
        self.shown: list[tuple[bytes, bytes]] = []

    def connect(self, port: int) -> Connection:
        connection = Connection(port)
        connection.call("HELLO", self._protocol)
        position = self.shown[-1][0] if self.shown else b"-"
        confirmed = connection.call("XSUBSCRIBE", self.channel, "FROM", position)
        assert confirmed[:2] == [b"xsubscribe", self.channel], confirmed
        return connection

    def run(self, connection: Connection) -> None:
        """Reads until the server stops answering."""
        try:
            with connection:
                while True:
                    self.take(connection)
        except (Closed, OSError):
            pass

    def take(self, connection: Connection) -> None:
        verb, channel, position, payload = connection.read()
        assert (verb, channel) == (b"xmessage", self.channel)
        self.shown.append((position, payload))


def kept(port: int, channel: bytes) -> list[tuple[bytes, bytes]]:
    """All that is in the log of a channel, with a new message at the end."""
    reader, end = Reader(channel, 3), b"end %d" % next(ENDS)
    with reader.connect(port) as connection, Connection(port) as publisher:
        publisher.call("PUBLISH", channel, end)
        while not reader.shown or reader.shown[-1][1] != end:
            reader.take(connection)
    return reader.shown


def counted(messages: list[tuple[bytes, bytes]]) -> dict[int, int]:
    """The number of messages of each publisher, which must be numbered consecutively."""
    numbers: dict[int, int] = defaultdict(int)
    for _, payload in messages:
        if not payload.startswith(b"end"):
            publisher, number = map(int, payload.split()[:2])
            assert number == numbers[publisher], f"{number} of {publisher}, expected {numbers[publisher]}"
            numbers[publisher] += 1
    return numbers


def ordered(messages: list[tuple[bytes, bytes]]) -> bool:
    places = [tuple(map(int, position.split(b":"))) for position, _ in messages]
    return all(before < after for before, after in itertools.pairwise(places))


def storm(server, seed: int, kills: int) -> int:
    """Kills the server under load this many times; returns the number of received messages."""
    chosen = random.Random(seed)
    publishers = [Publisher(number, seed) for number in range(PUBLISHERS)]
    readers = [Reader(CHANNELS[number % len(CHANNELS)], 2 + number % 2) for number in range(READERS)]
    shown_before: dict[bytes, list[tuple[bytes, bytes]]] = {channel: [] for channel in CHANNELS}
    server.start()
    for _ in range(kills):
        connections = [reader.connect(server.port) for reader in readers]
        threads = [threading.Thread(target=publisher.run, args=(server.port,)) for publisher in publishers]
        threads += [
            threading.Thread(target=reader.run, args=(connection,))
            for reader, connection in zip(readers, connections, strict=True)
        ]
        for thread in threads:
            thread.start()
        wanted = sum(len(reader.shown) for reader in readers) + chosen.randrange(1, 4000)
        wait_until("readers to be shown messages", lambda: sum(len(it.shown) for it in readers) >= wanted)
        server.kill()
        for thread in threads:
            thread.join()
        server.start()
        numbers = {}
        for channel in CHANNELS:
            now = kept(server.port, channel)
            assert ordered(now)
            assert now[: len(shown_before[channel])] == shown_before[channel], "what was shown is shown again"
            for reader in readers:
                if reader.channel == channel:
                    assert now[: len(reader.shown)] == reader.shown, "what was shown stays"
            shown_before[channel], numbers[channel] = now, counted(now)
        for publisher in publishers:
            survived = {channel: numbers[channel][publisher.number] for channel in CHANNELS}
            publisher.goes_on(survived, server.options.durability == "strict")
    return sum(len(messages) for messages in shown_before.values())


@pytest.mark.slow
@pytest.mark.soak
# With `interval`, acknowledged messages may be lost, but never messages that were shown.
@pytest.mark.oracle
@pytest.mark.parametrize("durability", ["strict", "interval"])
def test_kill_storm(new_server, request, durability):
    kills = max(3, request.config.getoption("kills") // 4)
    server = new_server(durability=durability, log_segment_bytes="1mb", extra=SETTINGS + EVERY_SECOND)
    messages = storm(server, request.config.getoption("seed"), kills)
    print(f"{kills} kills, {messages} messages")


@pytest.mark.oracle
def test_a_few_kills(new_server, request):
    """A short version for every run."""
    server = new_server(log_segment_bytes="1mb", extra=SETTINGS + EVERY_SECOND)
    assert storm(server, request.config.getoption("seed"), 3) > 0


def snapshots(server, count: int) -> None:
    """Takes snapshots, so that only channels need the log before them."""
    with server.connect() as connection:
        for number in range(count):
            wait_until("room", lambda number=number: connection.call("SET", "k", number) == b"OK")
            before = server.log().count("took a snapshot")
            # The log names a snapshot a moment before the next one can begin.
            wait_until("a start", lambda: connection.call("BGSAVE") == b"Background saving started")
            wait_until("a snapshot", lambda before=before: server.log().count("took a snapshot") > before)


def refused(server, position: bytes | str) -> str | None:
    """The error of a reader that starts there."""
    with server.connect() as reader:
        reply = reader.call("XSUBSCRIBE", "log:0", "FROM", position)
    return reply.text if isinstance(reply, ErrorReply) else None


def test_a_lost_position_is_reported(new_server):
    limits = ("--durable-channels-retention-bytes", "2mb")
    server = new_server(log_segment_bytes="1mb", extra=SETTINGS + limits).start()
    with server.connect() as publisher, server.connect() as slow, server.connect() as early:
        assert slow.call("XSUBSCRIBE", "log:0", "FROM", "$")[3] == 1
        assert early.call("XSUBSCRIBE", "log:0", "FROM", "-")[3] == 1
        publisher.call("PUBLISH", "log:0", "first")
        first = early.read()[2]
        payload = b"x" * (64 << 10)
        # More than a socket, the window and the log together hold.
        for number in range(600):
            publisher.call("PUBLISH", "log:0", b"%d " % number + payload)
        snapshots(server, 3)
        with server.connect() as late:
            late.call("XSUBSCRIBE", "log:0", "FROM", "$")
            publisher.call("PUBLISH", "log:0", "last")
            end = place_of_last(late)
        wait_until("log to be removed", lambda: refused(server, f"1:{end - 6 * MIB}"))
        refusal = refused(server, first)
        oldest = refusal.rsplit(" ", 1)[1]
        assert refusal == f"LOST position {first.decode()} is no longer kept; the oldest is {oldest}"
        assert int(oldest.split(":")[1]) <= end - 2 * MIB
        with server.connect() as late:
            assert late.call("XSUBSCRIBE", "log:0", "FROM", oldest)[:3] == [b"xsubscribe", b"log:0", oldest.encode()]
            assert place_of_last(late) == end
        told = [slow.read() for _ in range(2)]
        while told[-1][0] == b"xmessage":
            told.append(slow.read())
        assert [payload.split()[0] for _, _, _, payload in told[1:-1]] == [b"%d" % it for it in range(len(told) - 2)]
        verb, channel, position, left = told[-1]
        assert (verb, channel, left) == (b"xlost", b"log:0", 0)
        assert slow.call("XSUBSCRIBE", "log:0", "FROM", position)[3] == 1
        while slow.read()[3] != b"last":
            pass


def place_of_last(reader: Connection) -> int:
    """The position of the last published message: `last`."""
    while (message := reader.read())[3] != b"last":
        pass
    return int(message[2].split(b":")[1])


def test_retention_by_time(new_server):
    limits = ("--durable-channels-retention-ms", "1")
    server = new_server(log_segment_bytes="1mb", extra=SETTINGS + limits).start()
    with server.connect() as publisher:
        for _ in range(100):
            publisher.call("PUBLISH", "log:0", b"x" * (64 << 10))
        snapshots(server, 3)
        wait_until("old log to be removed", lambda: refused(server, "1:100"))


@pytest.fixture
def volume(tmp_path):
    volume = Volume(tmp_path, 200 * MIB)
    yield volume
    volume.close()


def test_a_full_disk_comes_before_retention(new_server, volume):
    server = new_server(directory=volume.root / "data", log_segment_bytes="4mb", extra=SETTINGS).start()
    payload = b"x" * (1 * MIB)
    with server.connect() as publisher:
        for number in range(300):
            if number % 40 == 0:
                snapshots(server, 2)
            wait_until("room", lambda: publisher.call("PUBLISH", "log:0", payload) == 0)
        assert refused(server, "1:100").startswith("LOST position 1:100 is no longer kept")
    server.kill()
    server.start()
    with server.connect() as reader:
        reader.call("XSUBSCRIBE", "log:0", "FROM", "-")
        assert reader.read()[3] == payload
    server.close()


def test_replicas_tell_the_same(new_server):
    leader = new_server(extra=SETTINGS).start()
    replica = new_server(extra=(*SETTINGS, "--replica-of", f"127.0.0.1:{leader.port}")).start()

    def is_following() -> bool:
        try:
            with replica.connect() as connection:
                return b"master_link_status:up" in connection.call("INFO", "replication")
        except (Closed, OSError):
            return False

    wait_until("the replica to follow", is_following)
    with leader.connect() as publisher, leader.connect() as here, replica.connect() as there:
        for reader in (here, there):
            assert reader.call("XSUBSCRIBE", "log:0", "FROM", "$")[0] == b"xsubscribe"
        for number in range(200):
            publisher.call("PUBLISH", "log:0", number)
        told = [here.read() for _ in range(200)]
        assert [there.read() for _ in range(200)] == told
    with replica.connect() as other:
        refusal = other.call("PUBLISH", "log:0", "x")
        assert refusal == ErrorReply("READONLY You can't write against a read only replica.")
        assert other.call("PUBLISH", "elsewhere", "x") == 0
        assert other.call("REPLICAOF", "NO", "ONE") == b"OK"
        wait_until("it to lead", lambda: other.call("PUBLISH", "log:0", "after") == 0)
    with replica.connect() as there:
        assert there.call("XSUBSCRIBE", "log:0", "FROM", told[150][2])[0] == b"xsubscribe"
        assert [there.read() for _ in range(49)] == told[151:]
        assert there.read()[3] == b"after"


def test_a_cut_segment_costs_only_the_messages_behind_the_cut(new_server):
    server = new_server(log_segment_bytes="1mb", extra=SETTINGS).start()
    with server.connect() as publisher, server.connect() as reader:
        reader.call("XSUBSCRIBE", "log:0", "FROM", "$")
        places = []
        for number in range(12):
            # Each is a batch of its own.
            publisher.call("PUBLISH", "log:0", number)
            places.append(int(reader.read()[2].split(b":")[1]))
        for _ in range(40):
            publisher.call("PUBLISH", "log:1", b"x" * (64 << 10))
        # A start needs nothing of the first segments.
        snapshots(server, 3)
        publisher.call("PUBLISH", "log:0", "last")
    server.stop()
    first = min(server.directory.glob("log-*.seg"))
    with first.open("r+b") as segment:
        # The header takes a block; the batch of message 8 is cut in its first one.
        segment.truncate(4096 + (places[8] - 1) // 4096 * 4096 + 50)
    server.start()
    with server.connect() as reader:
        reader.call("XSUBSCRIBE", "log:0", "FROM", "-")
        assert [reader.read()[3] for _ in range(8)] == [b"%d" % number for number in range(8)]
        verb, channel, position, left = reader.read()
        assert (verb, channel, left) == (b"xlost", b"log:0", 0)
        assert reader.call("XSUBSCRIBE", "log:0", "FROM", position)[3] == 1
        assert reader.read()[3] == b"last"
