"""Figures of a running process, from /proc."""

import contextlib
import os
from pathlib import Path


def _status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {field}")


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM now."""
    return _status_bytes(pid, "VmRSS")


def resident_bytes_peak(pid: int) -> int:
    """The maximum since its start, or since `reset_peak`."""
    return _status_bytes(pid, "VmHWM")


def reset_peak(pid: int) -> None:
    """Resets `resident_bytes_peak` to the memory that is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def open_files(pid: int) -> int:
    """The number of descriptors that the process has open, sockets included."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """The number of its threads."""
    return len(os.listdir(f"/proc/{pid}/task"))


def thread_names(pid: int) -> set[str]:
    """The names of its threads."""
    names = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.add((task / "comm").read_text().strip())
    return names


def cpu_ticks(pid: int) -> int:
    """User and system time of all its threads, in clock ticks."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])


def has_connection_to(pid: int, port: int) -> bool:
    """Whether it is connected to this port, by IPv4."""
    sockets = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            sockets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in sockets for row in rows)
