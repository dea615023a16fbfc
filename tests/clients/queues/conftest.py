"""What the storms of all queue libraries share."""

import pytest

from harness.server import Server, lasting_port

# A CI run has time for so many per library; `--jobs 10000` is the full size.
JOBS = 2000


@pytest.fixture
def lasting_server(new_server) -> Server:
    """A running server that comes back on the same port."""
    return new_server(durability="strict", port=lasting_port()).start()


@pytest.fixture
def jobs(request: pytest.FixtureRequest) -> int:
    """How many jobs there are."""
    return request.config.getoption("jobs") or JOBS
