"""asynq (Go). It guarantees that a job runs at least once: one whose lease has expired is recovered."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from harness import resp
from harness.job_storm import JobStorm, Library
from harness.server import Server
from harness.waiting import wait_until

SOURCE = Path(__file__).parents[1] / "go/asynq_actor"
DATABASE = 14
QUEUE = "asynq:{default}"
PLACES = 10
# A starting worker recovers jobs whose lease expired half a minute ago.
LEASE_RAN_OUT_S = 60
DRAINED_IN_S = 400


@pytest.fixture(scope="session")
def asynq_actor(tmp_path_factory) -> str:
    """The actor's binary."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: asynq is not tested")
    binary = tmp_path_factory.mktemp("go") / "asynq_actor"
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=SOURCE, check=True, timeout=600)
    return str(binary)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_asynq(asynq_actor, lasting_server, jobs, tmp_path):
    def actor(*arguments: object) -> list[str]:
        return [asynq_actor, str(lasting_server.port), *map(str, arguments)]

    library = Library(
        produce=lambda numbers: actor("produce", numbers.start, numbers.stop, numbers.step),
        work=actor("work", PLACES),
        places=PLACES,
    )
    with JobStorm(lasting_server, library, jobs, tmp_path) as storm:
        storm.run()
        with connect(lasting_server) as connection:
            drain(storm, connection)
            assert connection.call("ZCARD", f"{QUEUE}:completed") == jobs
            assert connection.call("EXISTS", f"{QUEUE}:archived", f"{QUEUE}:active", f"{QUEUE}:lease") == 0
        storm.check()
        print(f"asynq: {storm.summary()}")


def connect(server: Server) -> resp.Connection:
    """A connection to asynq's database."""
    connection = server.connect()
    assert connection.call("SELECT", DATABASE) == b"OK"
    return connection


def drain(storm: JobStorm, connection: resp.Connection) -> None:
    """Lets workers run all jobs, also those of a dead worker, and ends them."""

    def nothing_waits() -> bool:
        lists = connection.call("EXISTS", *(f"{QUEUE}:{state}" for state in ("pending", "scheduled", "retry")))
        return lists == 0

    while True:
        wait_until("nothing to wait", nothing_waits, DRAINED_IN_S)
        storm.stop_workers()
        if nothing_waits() and connection.call("EXISTS", f"{QUEUE}:active") == 0:
            return
        # Their worker is dead. A minute passes for their leases, so that the test need not wait for it.
        for job in connection.call("ZRANGE", f"{QUEUE}:lease", 0, -1):
            connection.call("ZADD", f"{QUEUE}:lease", "XX", int(time.time()) - LEASE_RAN_OUT_S, job)
        storm.start_workers()
        wait_until("leases to be taken over", lambda: connection.call("EXISTS", f"{QUEUE}:active") == 0)
