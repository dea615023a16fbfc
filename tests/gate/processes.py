"""Processes of a step: all that it has started, also those that left its group or lost their parent.

Every process of a step inherits a variable with the name of the step, by which it is found in /proc.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "SHEAF_TEST_STEP"
PR_SET_CHILD_SUBREAPER = 36
# After SIGTERM, before SIGKILL.
GRACE_S = 5


def adopt_orphans() -> None:
    """Makes this process the parent of orphans below it, so that none of them outlives the run unnoticed."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def of_step(step: str) -> Iterator[int]:
    """The living processes that the step has started."""
    mark = f"{MARK}={step}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue  # Gone, or a process of somebody else.


def describe(pids: Iterator[int]) -> list[str]:
    """A line for each process: number, parent, state, age in seconds, command."""
    lines = []
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    ticks = os.sysconf("SC_CLK_TCK")
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        age_s = uptime_s - int(fields[19]) / ticks
        lines.append(f"{pid:>8} {fields[1]:>8} {fields[0]} {age_s:6.0f} s  {command[:150]}")
    return lines


def end(step: str) -> list[str]:
    """Ends all processes of the step. Returns a line for each that was still there."""
    left = describe(of_step(step))
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        deadline = time.monotonic() + wait_s
        told: set[int] = set()
        while pids := set(of_step(step)):
            for pid in pids - told:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            told |= pids
            reap()
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return left


def reap() -> None:
    """Collects adopted processes that have ended. The children of `subprocess` are left to it."""
    for entry in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(entry) not in OWN_CHILDREN:
                os.waitpid(int(entry), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


# The processes that the run itself waits for.
OWN_CHILDREN: set[int] = set()
