"""Waiting for conditions to become true. Nothing here measures time: a slow machine only waits longer."""

import time
from collections.abc import Callable
from typing import TypeVar

from harness.resp import UNREACHABLE

# Far more than any machine needs; it only bounds a test that would otherwise hang.
PATIENCE_S = 60.0
POLL_S = 0.005

Found = TypeVar("Found")


def wait_until(what: str, condition: Callable[[], Found], patience_s: float = PATIENCE_S) -> Found:
    """Polls until `condition` returns a true value, and returns the value. An unreachable server, which may be
    restarting, is asked again. Fails with a message that names `what`, and the last error of the server.
    """
    deadline = time.monotonic() + patience_s
    failure = None
    while time.monotonic() < deadline:
        try:
            failure = None
            found = condition()
        except UNREACHABLE as error:
            failure, found = error, None
        if found:
            return found
        time.sleep(POLL_S)
    last = f"; the last time: {failure!r}" if failure else ""
    raise AssertionError(f"waited {patience_s:.0f} s for: {what}{last}") from failure
