"""The kernel's figures of a process and of this machine. Linux only."""

import ctypes
import os
import platform
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded once: the child between fork and exec must not import or allocate more than needed.
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """For preexec_fn: the kernel kills this child when the harness dies, even by SIGKILL, even if stopped."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_s(pid: int) -> float:
    """User and system time of all threads of the process, ended ones included, in seconds.

    The process' CPU clock: the sum that /proc/PID/stat shows, in nanoseconds instead of ticks of 10 ms, which
    short runs need.
    """
    clock = ctypes.c_int()
    error = _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise OSError(error, f"no CPU clock of process {pid}")
    return time.clock_gettime(clock.value)


def threads_cpu_s(pid: int, prefix: str) -> float:
    """CPU time of the live threads whose names begin with the prefix, in seconds."""
    used_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(prefix):
                used_ns += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # The thread has ended.
    return used_ns / 1e9


def rss_bytes(pid: int) -> int:
    """Resident memory of the process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} shows no VmRSS")


def has_mapped(pid: int, library: str) -> bool:
    """Whether the library is loaded into the process; a failed LD_PRELOAD is otherwise only a warning."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def load_average() -> float:
    """Runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]


def machine(data_dir: Path) -> dict[str, str]:
    """The machine in words, for readers of the figures."""
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": _cpu_model(),
        "memory": f"{memory_kb / 1024 / 1024:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(data_dir),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _filesystem(directory: Path) -> str:
    """Type and mount options of the file system that holds the directory."""
    return parse_filesystem(Path("/proc/self/mountinfo").read_text(), directory.resolve())


def parse_filesystem(mountinfo: str, directory: Path) -> str:
    """The entry of the deepest mount point above `directory`; of several on one point, the visible one."""
    best_depth, best = -1, "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount_point, options = Path(before.split()[4]), before.split()[5]
        depth = len(mount_point.parts)
        if directory.is_relative_to(mount_point) and depth >= best_depth:
            best_depth, best = depth, f"{after.split()[0]} ({options})"
    return best
