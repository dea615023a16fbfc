"""Histories: what clients asked, when, and what they were told; and the checker that judges them.

A history is a file of JSON lines, in the form of `linearizability/history.go`. An operation whose outcome is
unknown has no return; one that was refused before it was executed is not in it.
"""

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

CHECKER_SOURCE = Path(__file__).resolve().parents[1] / "linearizability"


def now() -> int:
    """The time that all clients share, in nanoseconds."""
    return time.monotonic_ns()


class History:
    """The operations of all clients of one run."""

    def __init__(self, path: Path):
        self.path = path
        self._file = path.open("w")
        self._lock = threading.Lock()
        self.recorded: Counter[str] = Counter()

    def record(self, **fields: object) -> None:
        """Records one operation."""
        line = json.dumps(fields) + "\n"
        with self._lock:
            self._file.write(line)
            self.recorded["weak" if fields.get("weak") else "known" if "return" in fields else "unknown"] += 1

    def close(self) -> None:
        """Closes the file; called after the last operation."""
        self._file.close()


def run_go(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Go where the checker's source is. Skips the test where Go is missing."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: histories cannot be checked")
    return subprocess.run(
        ["go", *arguments], cwd=CHECKER_SOURCE, capture_output=True, text=True, timeout=600, check=False
    )


def build_checker(place: Path) -> Path:
    """The binary of the checker."""
    binary = place / "linearizability"
    built = run_go("build", "-buildvcs=false", "-o", str(binary), ".")
    assert built.returncode == 0, built.stderr
    return binary


def verdict(checker: Path, history: History) -> str:
    """What the checker says; fails if it found a violation."""
    done = subprocess.run([str(checker), str(history.path)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
