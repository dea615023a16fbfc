"""Queues and locks as frameworks build them from lists, sorted sets and Lua, with our own actors in Python.

redis-py's locks, queues like Laravel's and Sidekiq's, and a stream with a consumer group. All of them
guarantee that a job runs at least once.
"""

import sys
from pathlib import Path

import pytest

from harness.job_storm import JobStorm, Library
from harness.server import Server
from harness.waiting import wait_until

PLACES = 4


def library(server: Server, actor: str) -> Library:
    """The actor of this name."""

    def command(*arguments: object) -> list[str]:
        return [sys.executable, str(Path(__file__).parent / f"{actor}_actor.py"), str(server.port), *map(str, arguments)]

    return Library(
        produce=lambda numbers: command("produce", numbers.start, numbers.stop, numbers.step),
        work=command("work", PLACES),
        places=PLACES,
        # An unanswered push is repeated.
        sent_again=1,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("actor", "left"),
    [
        ("locks", ["EXISTS", *(f"todo:{place}" for place in range(PLACES))]),
        ("laravel", ["EXISTS", "queues:default", "queues:default:delayed", "queues:default:reserved"]),
        ("sidekiq", ["EXISTS", "queue:default", "schedule"]),
        ("streams", ["XLEN", "jobs"]),
    ],
    ids=["locks", "laravel", "sidekiq", "streams"],
)
def test_shape(lasting_server, jobs, tmp_path, actor, left):
    with JobStorm(lasting_server, library(lasting_server, actor), jobs, tmp_path) as storm:
        storm.run()
        storm.wait_for_all()
        with lasting_server.connect() as connection:
            wait_until("all jobs to be done", lambda: connection.call(*left) == 0)
            storm.stop_workers()
            assert connection.call("KEYS", "private:*") == connection.call("KEYS", "unique:*") == []
        storm.check()
        print(f"{actor}: {storm.summary()}")
