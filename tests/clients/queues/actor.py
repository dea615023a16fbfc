"""The common part of the actors written in Python (their output: harness/job_storm.py).

    NAME PORT produce FIRST END STEP
    NAME PORT work PLACES

A producer adds jobs one after the other, retrying each until it was accepted. A worker has a thread per
place, with a connection of its own, until SIGTERM. The client library retries no command by itself: each
actor handles lost connections in its own way.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# Between attempts to reach an unavailable server.
AGAIN_AFTER_S = 0.02

stopping = threading.Event()


def say(what: str, number: int) -> None:
    """Lines must have left this process before it is killed, so they are not buffered."""
    os.write(1, f"{what} {number}\n".encode())


def connect(port: int) -> redis.Redis:
    """A client without retries."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=60, decode_responses=True)


def until_answered(work: Callable[[], object]) -> object:
    """Retries `work` until the server answers it; `work` must be repeatable."""
    while True:
        try:
            return work()
        except redis.ConnectionError:
            stopping.wait(AGAIN_AFTER_S)
            if stopping.is_set():
                raise


def add(number: int, push: Callable[[], object]) -> None:
    """Adds a job by `push`, retrying until it is answered."""
    while True:
        try:
            push()
        except redis.ConnectionError:
            say("unsure", number)
            stopping.wait(AGAIN_AFTER_S)
        else:
            say("accepted", number)
            return


def main(produce: Callable[[redis.Redis, range], None], work: Callable[[int, int], None]) -> None:
    """Runs a producer, or a worker with a thread per place: `work(port, place)` until `stopping` is set."""
    port, role, *numbers = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    if role == "produce":
        with connect(port) as client:
            produce(client, range(*numbers))
        return
    failed = threading.Event()
    threads = [
        threading.Thread(target=_guarded, args=(work, port, place, failed), daemon=True) for place in range(numbers[0])
    ]
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    os.write(1, b"ready\n")
    for thread in threads:
        thread.start()
    stopping.wait()
    for thread in threads:
        thread.join()
    sys.exit(1 if failed.is_set() else 0)


def _guarded(work: Callable[[int, int], None], port: int, place: int, failed: threading.Event) -> None:
    try:
        work(port, place)
    except redis.ConnectionError:
        # It was stopped while the server was unavailable.
        assert stopping.is_set()
    except BaseException:
        failed.set()
        raise
    finally:
        stopping.set()
