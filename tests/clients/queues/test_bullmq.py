"""BullMQ (npm). It guarantees that a job runs at least once: one whose worker is dead counts as stalled and
is recovered.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.job_storm import JobStorm, Library
from harness.server import ROOT, Server
from harness.waiting import wait_until

ACTOR = Path(__file__).parents[1] / "node/bullmq_actor.js"
PLACES = 10


def node(server: Server, *arguments: object) -> list[str]:
    """The command of an actor."""
    packages = os.environ.get("NODE_PATH", str(ROOT / "target/node-clients/node_modules"))
    return ["env", f"NODE_PATH={packages}", "node", str(ACTOR), str(server.port), *map(str, arguments)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bullmq(lasting_server, jobs, tmp_path):
    library = Library(
        produce=lambda numbers: node(lasting_server, "produce", numbers.start, numbers.stop, numbers.step),
        work=node(lasting_server, "work", PLACES),
        places=PLACES,
    )
    with JobStorm(lasting_server, library, jobs, tmp_path) as storm:
        storm.run()
        storm.wait_for_all()
        with lasting_server.connect() as connection:
            wait_until("all jobs to be done", lambda: connection.call("ZCARD", "bull:jobs:completed") == jobs)
        storm.stop_workers()
        storm.check()
        assert states(lasting_server) == {"completed": jobs}
        print(f"BullMQ: {storm.summary()}")


def states(server: Server) -> dict[str, int]:
    """The number of jobs in each state, as counted by BullMQ, without empty states."""
    counted = subprocess.run(node(server, "counts"), capture_output=True, text=True, timeout=60, check=True)
    return {state: count for state, count in json.loads(counted.stdout).items() if count}
