"""Load on a server that will be killed: writers whose every command an oracle follows, and readers that
remember the values that they read. All of it ends by itself when the server stops answering.
"""

import random
import threading
import traceback

from harness import resp
from harness.oracle import KEYS, PAIR, Oracle, State, Workload, newest_mark
from harness.server import Server
from harness.waiting import PATIENCE_S


class OutcomeUnknown(Exception):
    """The log failed while commands waited for it: they may have survived or not."""


class Writer:
    """The only writer of database `number`, over any number of connections one after another."""

    def __init__(self, number: int, seed: int, large_values: bool = True):
        self.number = number
        self.oracle = Oracle(f"writer {number}")
        self.workload = Workload(seed * 1000 + number, large_values)
        # Commands that the server refused because its disk is full.
        self.refusals = 0

    def connect(self, server: Server) -> resp.Connection:
        """A connection to the writer's database."""
        connection = server.connect()
        assert connection.call("SELECT", self.number) == b"OK"
        return connection

    def write(self, connection: resp.Connection) -> int:
        """Sends one pipeline and reads its replies. Returns the number of acknowledged commands."""
        batch = [self.workload.next() for _ in range(self.workload.depth())]
        for operation in batch:
            self.oracle.sent(operation)
        connection.send(b"".join(operation.raw for operation in batch))
        before = self.oracle.acknowledged
        for operation in batch:
            replies = [connection.read() for _ in range(operation.replies)]
            self._judge(replies)
        return self.oracle.acknowledged - before

    def _judge(self, replies: list[object]) -> None:
        for reply in replies:
            if isinstance(reply, resp.ErrorReply):
                if reply.text.startswith("MISCONF"):
                    self.refusals += 1
                    return self.oracle.refused()
                if reply.text.startswith("IOERR"):
                    raise OutcomeUnknown(reply.text)
        return self.oracle.answered(replies[-1])

    def check(self, server: Server) -> int:
        """Compares the writer's database with its oracle; see Oracle.recovered."""
        with self.connect(server) as connection:
            survivors = self.oracle.recovered(contents(connection))
        return survivors


class Reader:
    """Reads keys of all writers and remembers, for each, the newest command whose effect it has read."""

    def __init__(self, writers: list[Writer], seed: int):
        self._writers = writers
        self._random = random.Random(seed)
        self.seen = {writer.number: 0 for writer in writers}

    def read(self, connection: resp.Connection) -> None:
        """Reads many keys of one writer in one pipeline, and the pair that its transactions write."""
        number = self._random.choice(self._writers).number
        keys = self._random.sample(KEYS, 8)
        reads = [resp.encode("GET", key) for key in keys] + [resp.encode("MGET", *PAIR)]
        connection.send(resp.encode("SELECT", number) + b"".join(reads))
        assert connection.read() == b"OK"
        values = [_known(connection.read()) for _ in reads]
        left, right = values.pop()
        assert left == right, f"half a transaction of writer {number} was shown"
        for value in (*values, left):
            if value is not None:
                self.seen[number] = max(self.seen[number], newest_mark(value))

    def check(self) -> None:
        """After the writers' checks: no effect that was read may have disappeared."""
        for writer in self._writers:
            seen, kept = self.seen[writer.number], writer.oracle.number
            assert seen <= kept, f"operation {seen} of writer {writer.number} was shown, but only {kept} are there"


class Storm:
    """Writers and readers on threads. A storm lasts until the server stops answering or `stop` is called."""

    def __init__(self, server: Server, writers: list[Writer], readers: list[Reader]):
        self._server = server
        self._stopping = threading.Event()
        self._enough = threading.Event()
        self._wanted = 0
        self._acknowledged = 0
        self._counting = threading.Lock()
        self.failures: list[str] = []
        works = [(self._write, writer) for writer in writers] + [(self._read, reader) for reader in readers]
        self._threads = [threading.Thread(target=self._guarded, args=work, daemon=True) for work in works]

    def start(self, acknowledgements: int) -> "Storm":
        """Starts the load. `wait` returns when this many commands have been answered."""
        self._wanted = acknowledgements
        for thread in self._threads:
            thread.start()
        return self

    def wait(self) -> None:
        """Waits for the acknowledgements, or for a failure."""
        assert self._enough.wait(PATIENCE_S), "the server stopped answering"

    def stop(self) -> None:
        """Ends the load after the outstanding replies."""
        self._stopping.set()

    def join(self) -> None:
        """Waits until all threads have ended. Fails if one of them got a wrong answer."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a client still waits for a reply: the connection was not closed"
        assert not self.failures, "\n".join(self.failures)

    def _guarded(self, work, who) -> None:
        try:
            work(who)
        except (resp.Closed, OSError, OutcomeUnknown):
            self._enough.set()
        except Exception:
            self.failures.append(traceback.format_exc())
            self._enough.set()

    def _write(self, writer: Writer) -> None:
        with writer.connect(self._server) as connection:
            while not self._stopping.is_set():
                self._count(writer.write(connection))

    def _read(self, reader: Reader) -> None:
        with self._server.connect() as connection:
            while not self._stopping.is_set():
                reader.read(connection)

    def _count(self, acknowledged: int) -> None:
        with self._counting:
            self._acknowledged += acknowledged
            if self._acknowledged >= self._wanted:
                self._enough.set()


def _known(value):
    """The reply, unless it is the error of a failed log."""
    if isinstance(value, resp.ErrorReply):
        assert value.text.startswith("IOERR"), value
        raise OutcomeUnknown(value.text)
    return value


# How to read a value of each type, and its form in the oracle.
READS = {
    b"string": (("GET",), bytes),
    b"list": (("LRANGE", 0, -1), tuple),
    b"set": (("SMEMBERS",), frozenset),
    b"hash": (("HGETALL",), lambda flat: dict(zip(flat[::2], flat[1::2], strict=True))),
    b"stream": (("XRANGE", "-", "+"), lambda entries: {entry: tuple(fields) for entry, fields in entries}),
    b"zset": (("ZRANGE", 0, -1, "WITHSCORES"), lambda flat: dict(zip(flat[::2], map(int, flat[1::2]), strict=True))),
}


def contents(connection: resp.Connection) -> State:
    """All keys and values of the connection's database."""
    keys = connection.call("KEYS", "*")
    connection.send(b"".join(resp.encode("TYPE", key) for key in keys))
    reads = [READS[connection.read()] for _ in keys]
    connection.send(b"".join(resp.encode(read[0], key, *read[1:]) for (read, _), key in zip(reads, keys, strict=True)))
    return {key: held(connection.read()) for (_, held), key in zip(reads, keys, strict=True)}
