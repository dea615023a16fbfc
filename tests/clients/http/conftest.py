"""Fixtures for tests that use HTTP on a server of their own."""

import pytest

from harness.couch import Couch
from harness.server import Server


@pytest.fixture
def couch(server: Server):
    """A connection to the HTTP port of a running server."""
    with Couch(server.http_port) as client:
        client.server = server
        yield client


@pytest.fixture
def db(couch: Couch) -> Couch:
    """A connection to a server that has an empty database `db`."""
    couch.ok("PUT", "/db")
    return couch
