"""A producer or a worker of Celery, as a process (its output: harness/job_storm.py).

    celery_actor.py PORT produce FIRST END STEP
    celery_actor.py PORT work PLACES

The broker is database 0, the results are in database 1. Acknowledged late, as Celery recommends if each job
must run: a message is kept until its job is done, and delivered again after the visibility timeout.
"""

import os
import sys

from celery import Celery
from celery.signals import worker_ready

# A message of a dead worker is delivered again after this time. A stall of this length would repeat jobs beyond
# their bound.
VISIBILITY_TIMEOUT_S = 20
RETRY = {"max_retries": None, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5}

port, role, *arguments = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
app = Celery(
    "jobs",
    broker=f"redis://127.0.0.1:{port}/0",
    backend=f"redis://127.0.0.1:{port}/1",
)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": VISIBILITY_TIMEOUT_S},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # Without it a job whose result could not be stored at once counts as failed, although it ran.
    result_backend_always_retry=True,
    result_backend_transport_options={"retry_policy": RETRY},
)


# Celery writes its own messages to standard output; they go to standard error instead.
reports = os.dup(1)
os.dup2(2, 1)


def say(line: str) -> None:
    """Lines must have left this process before it is killed, so they are not buffered."""
    os.write(reports, f"{line}\n".encode())


@worker_ready.connect
def ready(**_) -> None:
    """Celery has its own signal handlers."""
    say("ready")


@app.task
def run(number: int) -> int:
    """The job."""
    say(f"ran {number}")
    return number


def produce(first: int, end: int, step: int) -> None:
    """Sends jobs one after the other, retrying each until it was accepted."""
    for number in range(first, end, step):
        run.apply_async((number,), task_id=f"job-{number}", retry=True, retry_policy=RETRY)
        say(f"accepted {number}")


def work(places: int) -> None:
    """A worker with this many processes."""
    app.worker_main(["--quiet", "worker", f"--concurrency={places}", "--without-gossip", "--without-mingle", "--loglevel=WARNING"])


{"produce": produce, "work": work}[role](*arguments)
