"""Django's own Redis cache and its sessions, in separate processes: a process can set Django's settings only
once.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.server import Server

ROUND = Path(__file__).parent / "django_round.py"
ROUNDS_BEFORE_KILL = 200


def django(server: Server, protocol: int, what: str, **options) -> subprocess.Popen:
    """Starts django_round.py."""
    return subprocess.Popen(
        [sys.executable, str(ROUND), f"redis://127.0.0.1:{server.port}/2", str(protocol), what],
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_cache_and_sessions_of_django(server, protocol):
    running = django(server, protocol, "all")
    output, errors = running.communicate(timeout=120)
    assert running.returncode == 0, output + errors
    assert output == "cache ok\nsessions ok\n"
    with server.connect() as connection:
        assert connection.call("DBSIZE") == 0
        connection.call("SELECT", 2)
        assert connection.call("DBSIZE") > 0


@pytest.mark.oracle
def test_acknowledged_writes_of_django_survive_a_kill(server, protocol):
    writing = django(server, protocol, "write")
    told = [writing.stdout.readline() for _ in range(ROUNDS_BEFORE_KILL)]
    server.kill()
    rest, errors = writing.communicate(timeout=120)
    assert writing.returncode == 0, errors
    server.start()
    reading = django(server, protocol, "read", stdin=subprocess.PIPE)
    output, errors = reading.communicate("".join(told) + rest, timeout=120)
    assert reading.returncode == 0, output + errors
    assert output.endswith(" rounds are there\n")
