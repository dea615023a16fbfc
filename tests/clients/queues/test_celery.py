"""Celery with Redis as broker and for results, `task_acks_late`: a job runs at least once.

With one exception: Celery removes a job from its list with BRPOP, and records it as unacknowledged only
afterwards. If the worker or the server is killed in between, no server can recover the job. The test accepts
such a job as lost if the log proves it. Then it sends the job again, like an application that waits for the
result.
"""

import base64
import json
import re
import sys
import time
from collections import Counter, deque
from pathlib import Path

import pytest

from harness import resp
from harness.job_storm import KILLS, JobStorm, Library
from harness.server import UNDER_TEST, Server, free_port, run_sheaf
from harness.waiting import wait_until

ACTOR = Path(__file__).parent / "celery_actor.py"
PROCESSES = 4
# More than that of the actor.
VISIBLE_AGAIN_S = 21
# From the first jobs to the last of a full-size run, with other work on the machine.
DRAINED_IN_S = 400


def celery(server: Server, *arguments: object) -> list[str]:
    """The command of an actor."""
    return [sys.executable, str(ACTOR), str(server.port), *map(str, arguments)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_celery(new_server, jobs, tmp_path):
    # The test reads the whole log: its beginning must not be removed after a snapshot.
    server = new_server(port=free_port(), extra=("--snapshot-log-bytes", "0")).start()
    library = Library(
        produce=lambda numbers: celery(server, "produce", numbers.start, numbers.stop, numbers.step),
        work=celery(server, "work", PROCESSES),
        # A process runs one job, and one more waits for it.
        places=2 * PROCESSES,
        sent_again=1,
    )
    with JobStorm(server, library, jobs, tmp_path) as storm:
        storm.run()
        drain(storm)
        lost = storm.journal.accepted - set(storm.journal.runs)
        # A worker takes one job at a time.
        assert len(lost) <= len(KILLS) * storm.WORKERS
        if UNDER_TEST == "sheaf":
            server.stop()
            assert lost <= taken_and_not_noted(server), "lost, and not by a worker"
            server.start()
        for job in lost:
            storm.produce(range(job, job + 1))
        storm.start_workers()
        storm.wait_for_all()
        drain(storm)
        storm.check()
        with server.connect() as connection:
            assert results(connection, jobs) == {"SUCCESS": jobs}
        print(f"Celery: {storm.summary()}; {len(lost)} taken by BRPOP and not noted, sent again")


def drain(storm: JobStorm) -> None:
    """Lets workers run all jobs of the broker, and ends them."""
    with storm.server.connect() as connection:
        while True:
            wait_until("an empty list", lambda: connection.call("LLEN", "celery") == 0, DRAINED_IN_S)
            # A worker that starts requeues the jobs of a dead one after this time.
            wait_until("what is not acknowledged to be old", lambda: all_are_old(connection))
            storm.stop_workers()
            if connection.call("LLEN", "celery") == 0 and connection.call("HLEN", "unacked") == 0:
                return
            storm.start_workers()
            wait_until("what was given back to be done", lambda: connection.call("HLEN", "unacked") == 0)


def all_are_old(connection: resp.Connection) -> bool:
    """Whether all unacknowledged jobs were delivered long enough ago to be delivered again."""
    return connection.call("ZCOUNT", "unacked_index", time.time() - VISIBLE_AGAIN_S, "+inf") == 0


def results(connection: resp.Connection, jobs: int) -> Counter[str]:
    """The number of jobs in each state of the result backend."""
    assert connection.call("SELECT", 1) == b"OK"
    found = connection.call("MGET", *(f"celery-task-meta-job-{number}" for number in range(jobs)))
    return Counter(json.loads(result)["status"] if result else "none" for result in found)


def taken_and_not_noted(server: Server) -> set[int]:
    """The jobs that were popped more often than recorded as unacknowledged, according to the server's log."""
    printed = run_sheaf("log", str(server.directory))
    assert printed.returncode == 0, printed.stderr
    waiting: deque[int] = deque()
    taken: Counter[int] = Counter()
    for line in printed.stdout.splitlines():
        _, database, change = line.split(" ", 2)
        if database != "db0":
            continue
        if change.startswith('push at the head of "celery"'):
            waiting.appendleft(job_of(change))
        elif change.startswith('push at the tail of "celery"'):
            waiting.append(job_of(change))
        elif change.startswith('pop 1 at the tail of "celery"'):
            taken[waiting.pop()] += 1
        elif change.startswith('set in "unacked"'):
            taken[job_of(change)] -= 1
    return {job for job, count in taken.items() if count > 0}


def job_of(change: str) -> int:
    """The number in a message, which begins with the job's arguments."""
    found = re.search(r'body\\": \\"([A-Za-z0-9+/]{16})', change)
    assert found, change
    return int(base64.b64decode(found[1]).decode().strip("[").split("]")[0])
