"""Starts with existing data: the time until all of it is served, and the cost.

Every server creates the data in its own way, which is not measured; the start is. This is not a test of
durability: servers are killed only after all their data is in their files.

Invariant: a start counts only if the server then holds every row, and some of them have been checked.
"""

import os
import time
from pathlib import Path

from cases import START, StartCase
from servers import Server

# Until the log is handed to the OS, where nothing is synced.
REST_S = 1.0
START_TIMEOUT_S = 600.0
# An empty server is ready within milliseconds.
EMPTY_POLL_S = 0.0005
READ_BYTES = 1 << 20


def make(case: StartCase, server: Server, rows: int) -> None:
    """Fills the server's empty directory with the data for the start."""
    server.start()
    if case.fill is not None:
        server.fill(case.fill, rows)
        server.check(case.fill, rows)
    if case.has_snapshot:
        # Sheaf keeps two generations: with the second, the log before the first is removed, as in production.
        for _ in range(2 if server.program.is_sheaf else 1):
            server.take_snapshot()
    time.sleep(REST_S)
    server.kill()


def measure(case: StartCase, server: Server, op: str, rows: int) -> dict[str, float | None]:
    """One start, on files that are in the page cache. The server is killed after it, which leaves the files
    unchanged.
    """
    if case.fill is None:
        # The data of the start depends on how the server ended.
        server.start()
        if op == START:
            server.stop()
        else:
            server.kill()
    os.sync()
    _warm(server.directory)
    ready_s = server.start(START_TIMEOUT_S, *((EMPTY_POLL_S,) if case.fill is None else ()))
    cpu_s, rss_bytes = server.cpu_s(), server.rss_bytes()
    server.check(case.fill, rows)
    server.kill()
    is_empty = case.fill is None
    return {
        "ready_s": None if is_empty else ready_s,
        "ready_ms": ready_s * 1e3 if is_empty else None,
        "rows_s": None if is_empty else rows / ready_s,
        "cpu_s": cpu_s,
        "rss_mb": rss_bytes / 1e6,
        "snapshot_mb": snapshot_bytes(server.directory) / 1e6 if case.has_snapshot else None,
        "disk_mb": sum(path.stat().st_size for path in _files(server.directory)) / 1e6,
    }


def snapshot_bytes(directory: Path) -> int:
    """The files of the newest snapshot: its number comes first in their names, except for Redis, which has
    one.
    """
    files = [path for path in _files(directory) if path.suffix in (".manifest", ".part", ".rdb", ".snap")]
    newest = max((_number(path) for path in files), default="")
    return sum(path.stat().st_size for path in files if _number(path) == newest)


def _number(path: Path) -> str:
    return path.name.partition(".")[0]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _warm(directory: Path) -> None:
    for path in _files(directory):
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
