"""Waiting for conditions to become true. Nothing here measures time: a slow machine only waits longer."""

import time
from collections.abc import Callable
from typing import TypeVar

# Far more than any machine needs; it only bounds a test that would otherwise hang.
PATIENCE_S = 60.0
POLL_S = 0.005

Found = TypeVar("Found")


def wait_until(what: str, condition: Callable[[], Found], patience_s: float = PATIENCE_S) -> Found:
    """Polls until `condition` returns something true, and returns that. Fails with a message that names
    `what`.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"waited {patience_s:.0f} s for: {what}")
