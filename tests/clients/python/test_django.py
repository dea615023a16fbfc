"""Django's own Redis cache and its sessions.

Not here: `set_many` with a timeout and `incr_version`, which send MULTI.
"""

import os
import subprocess
import sys
from pathlib import Path

ROUND = Path(__file__).parent / "django_round.py"


def test_cache_and_sessions_of_django(server, protocol):
    """In a process of its own: Django's settings can be made only once in a process."""
    done = subprocess.run(
        [sys.executable, str(ROUND), f"redis://127.0.0.1:{server.port}/2", str(protocol)],
        env=os.environ | {"PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "cache ok\nsessions ok\n"
    with server.connect() as connection:
        assert connection.call("DBSIZE") == 0
        connection.call("SELECT", 2)
        assert connection.call("DBSIZE") > 0
