"""A queue with acknowledgements and a queue of delayed jobs, on a server that is killed while they work.

No answered call may be lost, and no job may be done again beyond the guarantees of the algorithms in jobs.py.
"""

import random
import threading
from collections import Counter

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from clients.python.jobs import DelayedQueue, ReliableQueue
from harness.server import Server

PRODUCERS, WORKERS, MOVERS = 2, 3, 2
KILLS = 5


class Crew:
    """Threads with a connection each, that work until they are stopped or the server stops answering."""

    def __init__(self, server: Server, protocol: int):
        self._server, self._protocol = server, protocol
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def connect(self) -> redis.Redis:
        """A client without retries."""
        return redis.Redis(
            port=self._server.port, protocol=self._protocol, retry=Retry(NoBackoff(), 0), socket_timeout=60
        )

    def start(self, work) -> None:
        """Runs `work(client)` repeatedly."""
        thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, work) -> None:
        try:
            with self.connect() as client:
                while not self.stopping.is_set():
                    work(client)
        except (redis.ConnectionError, redis.TimeoutError):
            pass
        except BaseException as failure:
            self.failures.append(failure)
            self.stopping.set()

    def join(self) -> None:
        """Waits for all of them."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.failures, self.failures


class Journal:
    """The application's knowledge: which of its calls were answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self.enough = threading.Event()
        self._wanted = 0
        self._noted = 0
        # Jobs whose push was sent, and jobs whose push was answered.
        self.sent: set[bytes] = set()
        self.pushed: set[bytes] = set()
        self.taken: Counter[bytes] = Counter()
        self.acknowledged: set[bytes] = set()
        # Jobs delivered since the last start of the server whose acknowledgement was not answered.
        self.open: set[bytes] = set()

    def expect(self, events: int) -> None:
        """Sets `enough` after this many more notes."""
        with self._lock:
            self._noted, self._wanted = 0, events
            self.enough.clear()

    def new_job(self) -> bytes:
        """Records a job that is about to be pushed."""
        with self._lock:
            self._next += 1
            job = b"job:%d" % self._next
            self.sent.add(job)
            return job

    def note(self, change) -> None:
        """Changes the journal."""
        with self._lock:
            change()
            self._noted += 1
            if self._noted >= self._wanted:
                self.enough.set()


@pytest.mark.oracle
def test_a_reliable_queue_survives_kills(server, protocol, request):
    journal, chance = Journal(), random.Random(request.config.getoption("seed"))
    retried = 0

    def produce(client):
        job = journal.new_job()
        ReliableQueue(client, "producer").push(job)
        journal.note(lambda: journal.pushed.add(job))

    def work_as(name):
        def work(client):
            queue = ReliableQueue(client, name)
            job = queue.take(0.05)
            if job is None:
                return
            assert job not in journal.acknowledged, f"{job} was acknowledged and came again"
            journal.note(lambda: (journal.taken.update([job]), journal.open.add(job)))
            assert queue.acknowledge(job), f"{job} was not there to be acknowledged"
            journal.note(lambda: (journal.acknowledged.add(job), journal.open.discard(job)))

        return work

    for number in range(KILLS + 1):
        crew = Crew(server, protocol)
        before = journal.taken.copy()
        may_come_again = retry_stale(crew, journal) if number else set()
        retried += len(may_come_again)
        journal.expect(chance.randrange(50, 800))
        last = number == KILLS
        for _ in range(0 if last else PRODUCERS):
            crew.start(produce)
        for worker in range(WORKERS):
            crew.start(work_as(f"worker-{worker}"))
        if last:
            drain(crew, server, lambda client: client.llen(ReliableQueue.PENDING) == 0)
        else:
            assert journal.enough.wait(60)
            server.kill()
        crew.join()
        again = {job for job, count in before.items() if journal.taken[job] > count}
        assert again <= may_come_again, f"delivered again although acknowledged: {again - may_come_again}"
        if not last:
            server.start()
    # A job may have been acknowledged without an answer, but not without having been delivered.
    assert journal.pushed <= set(journal.taken), f"lost: {sorted(journal.pushed - set(journal.taken))[:5]}"
    assert set(journal.taken) <= journal.sent
    print(f"{len(journal.pushed)} jobs, {KILLS} kills, {retried} jobs given back")


def retry_stale(crew: Crew, journal: Journal) -> set[bytes]:
    """Requeues the jobs of dead workers, at most the unacknowledged ones. Returns these jobs."""
    with crew.connect() as client:
        held = {job for key in client.keys("taken:*") for job in client.lrange(key, 0, -1)}
        taken_without_reply = {job for job in held if journal.taken[job] == 0}
        assert held <= journal.open | taken_without_reply, "an acknowledged job is still held"
        assert len(taken_without_reply) <= WORKERS
        assert ReliableQueue(client, "janitor").retry_stale() == len(held)
    journal.open.clear()
    return held


def drain(crew: Crew, server: Server, empty) -> None:
    """Lets the crew work until no job is left."""
    with crew.connect() as client:
        while not empty(client):
            assert not crew.stopping.wait(0.01), crew.failures
    crew.stopping.set()


@pytest.mark.oracle
def test_a_delayed_queue_survives_kills(server, protocol, request):
    journal, chance = Journal(), random.Random(request.config.getoption("seed"))
    last = False

    def now() -> int:
        """The application's clock advances with every job; at the end all remaining jobs are due."""
        return len(journal.sent) + (1000 if last else 0)

    def schedule(client):
        job = journal.new_job()
        DelayedQueue(client).schedule(job, now() + 20)
        journal.note(lambda: journal.pushed.add(job))

    def move(client):
        DelayedQueue(client).move_due(now())

    def finish(client):
        job = DelayedQueue(client).finish_one()
        if job is not None:
            assert job not in journal.acknowledged, f"{job} was done twice"
            journal.note(lambda: journal.acknowledged.add(job))

    for number in range(KILLS + 1):
        crew = Crew(server, protocol)
        check_places(crew, journal)
        journal.expect(chance.randrange(20, 200))
        last = number == KILLS
        if not last:
            crew.start(schedule)
        for _ in range(MOVERS):
            crew.start(move)
        for _ in range(2):
            crew.start(finish)
        if last:
            drain(crew, server, lambda client: [len(part) for part in DelayedQueue(client).places()[:2]] == [0, 0])
        else:
            assert journal.enough.wait(60)
            server.kill()
        crew.join()
        if not last:
            server.start()
    places = check_places(Crew(server, protocol), journal)
    assert journal.pushed <= places[2]
    print(f"{len(journal.pushed)} jobs, {KILLS} kills")


def check_places(crew: Crew, journal: Journal) -> list[set[bytes]]:
    """Every scheduled job is in one place, and every job that was reported as done is done."""
    with crew.connect() as client:
        delayed, ready, done = DelayedQueue(client).places()
    assert not (delayed & ready or ready & done or delayed & done), "a job is in two places"
    everywhere = delayed | ready | done
    assert journal.pushed <= everywhere <= journal.sent
    assert journal.acknowledged <= done
    return [delayed, ready, done]
