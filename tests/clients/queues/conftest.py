"""Fixtures that the storms of all queue libraries share."""

import pytest

from harness.server import Server, free_port

# The number of jobs per library in CI; `--jobs 10000` is the full size.
JOBS = 2000


@pytest.fixture
def lasting_server(new_server) -> Server:
    """A running server that keeps its port after a restart."""
    return new_server(durability="strict", port=free_port()).start()


@pytest.fixture
def jobs(request: pytest.FixtureRequest) -> int:
    """The number of jobs."""
    return request.config.getoption("jobs") or JOBS
