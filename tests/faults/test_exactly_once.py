"""IDEMP and LEASE when connections are lost, and when the server is killed.

Counts made with IDEMP are exact; a lease has one holder, and its tokens rise.

Every client retries until it has an answer. It cannot know whether a command without an answer has run.
"""

import contextlib
import random
import threading

import pytest

from harness.replicas import call, error_of, follower_of, wait_same
from harness.resp import Closed, Connection, ErrorReply, encode
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

HOUR_MS = 3_600_000
WORKERS = 6
OPERATIONS = 250
TURNS = 25
SCRIPT = "return redis.call('INCR', KEYS[1])"


class Client:
    """One client; reconnects whenever its connection is lost."""

    def __init__(self, server: Server, number: int, seed: int):
        self.server, self.name = server, f"client-{number}"
        self.random = random.Random(seed * 100 + number)
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """The connection, once the server answers."""

        def connected() -> Connection | None:
            with contextlib.suppress(OSError, Closed):
                connection = Connection(self.server.port)
                if connection.call("PING") == b"PONG":
                    return connection
            return None

        if self._connection is None:
            self._connection = wait_until("the server to answer", connected)
        return self._connection

    def hang_up(self) -> None:
        """Closes the connection, even with a command in flight."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, *command):
        """The reply to one command; raises `Closed` if the connection is lost on the way."""
        return self.ask_raw(encode(*command), 1)

    def ask_raw(self, raw: bytes, replies: int):
        """The last of this many replies; raises `Closed` if the connection is lost before."""
        try:
            connection = self.connection()
            connection.send(raw)
            return [connection.read() for _ in range(replies)][-1]
        except (Closed, OSError) as lost:
            self.hang_up()
            raise Closed(b"") from lost


class Counter(Client):
    """Adds one to a counter this many times, and keeps the replies."""

    def __init__(self, server: Server, number: int, seed: int):
        super().__init__(server, number, seed)
        self.replies: list[int] = []

    def run(self) -> None:
        """All additions."""
        for number in range(OPERATIONS):
            self.replies.append(self._once(f"{self.name}:{number}"))

    def _once(self, key: str) -> int:
        kind = self.random.randrange(3)
        while True:
            if self.random.random() < 0.3:
                self._send_and_leave(key, kind)
            try:
                reply = self.ask_raw(*self._command(key, kind))
            except Closed:
                continue
            reply = reply[0] if isinstance(reply, list) else reply
            assert isinstance(reply, int), reply
            return reply

    def _send_and_leave(self, key: str, kind: int) -> None:
        """Sends the command without waiting for the reply."""
        with contextlib.suppress(Closed, OSError):
            self.connection().send(self._command(key, kind)[0])
        self.hang_up()

    def _command(self, key: str, kind: int) -> tuple[bytes, int]:
        if kind == 0:
            return encode("IDEMP", key, HOUR_MS, "EVAL", SCRIPT, 1, "counter"), 1
        increment = encode("IDEMP", key, HOUR_MS, "INCR", "counter")
        if kind == 1:
            return encode("MULTI") + increment + encode("EXEC"), 3
        return increment, 1


def run_under_kills(server: Server, workers: list, progress, total: int, kills: int, seed: int) -> None:
    """Runs all workers to their end, and kills the server this many times meanwhile."""
    failures: list[BaseException] = []

    def work(worker) -> None:
        try:
            worker.run()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    chosen = random.Random(seed)
    for at in sorted(chosen.randrange(total) for _ in range(kills)):
        wait_until("the workers to get on", lambda at=at: failures or progress() >= at)
        server.kill()
        server.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("durability", ["strict", "commit"])
def test_a_counter_under_kills_is_exact(new_server, request, durability):
    seed = request.config.getoption("seed")
    server = new_server(durability=durability).start()
    server.options.port = server.port
    counters = [Counter(server, number, seed) for number in range(WORKERS)]
    total = WORKERS * OPERATIONS
    run_under_kills(server, counters, lambda: sum(len(it.replies) for it in counters), total, 8, seed)
    replies = sorted(reply for counter in counters for reply in counter.replies)
    assert replies == list(range(1, total + 1)), "each operation has run once, and has its own reply"
    assert int(call(server, "GET", "counter")) == total


class Turns:
    """The state shared by all that want the lease: the holder, and the newest token. Python's own lock makes
    it exact.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self.holder: str | None = None
        self.newest = 0
        self.done = 0

    def token(self) -> int:
        with self._lock:
            return self.newest

    def granted(self, name: str, token: int, asked_after: int) -> None:
        with self._lock:
            assert self.holder in (None, name), f"{name} has it, and so has {self.holder}"
            assert token > asked_after, "a token is greater than all that were known before it was asked for"
            self.holder, self.newest = name, max(token, self.newest)

    def leaves(self, name: str) -> None:
        with self._lock:
            assert self.holder == name
            self.holder = None
            self.done += 1


class Holder(Client):
    """Takes the lease, makes a change that only the holder may make, and leaves in one of several ways."""

    def __init__(self, server: Server, number: int, seed: int, turns: Turns):
        super().__init__(server, number, seed)
        self._turns = turns

    def run(self) -> None:
        """All turns."""
        for _ in range(TURNS):
            wait_until("the lease", self._lease)
            self._add_one()
            self._turns.leaves(self.name)
            self._leave()
        # A connection may have been closed while no server was running to notice it.
        wait_until("the lease to be given back", self._gives_back)

    def _gives_back(self) -> bool:
        try:
            return self.ask("UNLEASE", "lease", self.name) in (0, 1)
        except Closed:
            return False

    def _lease(self) -> bool:
        known = self._turns.token()
        try:
            token = self.ask("LEASE", "lease", HOUR_MS, self.name)
        except Closed:
            return False
        if token is None:
            return False
        assert isinstance(token, int), token
        self._turns.granted(self.name, token, known)
        return True

    def _add_one(self) -> None:
        """Reads and writes, which is correct only with a single holder."""
        before = self._surely("GET", "balance")
        wanted = int(before or 0) + 1
        self._surely("SET", "balance", wanted)
        assert int(self._surely("GET", "balance")) == wanted

    def _surely(self, *command):
        """The reply; after a lost connection the same owner takes the lease again."""
        while True:
            try:
                reply = self.ask(*command)
                assert not isinstance(reply, ErrorReply), reply
                return reply
            except Closed:
                wait_until("the lease again", self._lease)

    def _leave(self) -> None:
        if self.random.random() < 0.5:
            self.hang_up()
        else:
            self._gives_back()


def test_a_lease_has_one_holder_and_its_tokens_rise(new_server, request):
    seed = request.config.getoption("seed")
    server = new_server().start()
    server.options.port = server.port
    turns = Turns()
    holders = [Holder(server, number, seed, turns) for number in range(WORKERS)]
    total = WORKERS * TURNS
    run_under_kills(server, holders, lambda: turns.done, total, 5, seed)
    assert int(call(server, "GET", "balance")) == total


def test_a_replica_that_leads_has_the_replies_and_the_leases(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    command = ("IDEMP", "once", HOUR_MS, "INCR", "counter")
    with leader.connect() as connection:
        assert connection.call(*command) == 1
        token = connection.call("LEASE", "lease", HOUR_MS, "owner")
        wait_same(leader, replica)
        assert call(replica, *command) == 1, "what is kept may be read"
        refused = error_of(call(replica, "IDEMP", "other", HOUR_MS, "INCR", "counter"))
        assert refused.startswith("READONLY"), refused
        leader.kill()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(replica, *command) == 1
    assert call(replica, "GET", "counter") == b"1"
    assert call(replica, "LEASE", "lease", HOUR_MS, "another") is None, "its deadline ends it"
    assert call(replica, "LEASE", "lease", HOUR_MS, "owner") > token
