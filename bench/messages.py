"""Runs the traffic program, or that of BullMQ, once and reads its figures.

The program (bench/traffic, in Rust) publishes and subscribes over many connections on one thread, and checks
that every message arrives once and in order. A violation is an error here, not a figure; so is a wrong answer
about a document, or a job that is not done exactly once. The program of BullMQ (bench/bullmq) prints figures
in the same way.
"""

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

from driver import DriverFailed
from procfs import die_with_parent
from servers import Server

ROOT = Path(__file__).parent.parent
BUILD_TIMEOUT_S = 1800.0
# Far longer than any run.
RUN_TIMEOUT_S = 300.0
# Connections of the largest run, and some more.
OPEN_FILES = 8192


def find_traffic(path: str | None) -> str:
    """The program at `path`, or the release build of this checkout, which is built if it does not exist."""
    if path is not None:
        return path
    built = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/traffic"
    if not built.exists():
        command = ["cargo", "build", "--release", "--quiet", "--package", "traffic"]
        done = subprocess.run(command, cwd=ROOT, timeout=BUILD_TIMEOUT_S, check=False)
        if done.returncode != 0 or not built.exists():
            raise DriverFailed(f"{' '.join(command)} failed")
    return str(built)


def find_bullmq() -> list[str]:
    """Node and the program that uses BullMQ, in the directory in which bench/setup has installed its
    packages.
    """
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    program = target / "bullmq/jobs.js"
    node = shutil.which("node")
    if node is None or not program.exists():
        raise DriverFailed(f"node or {program} not found: run bench/setup")
    return [node, str(program)]


def allow_connections() -> None:
    """For this process and processes that it starts from now on, including the measured servers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))


def measure(
    program: list[str], server: Server, port: int | str, arguments: tuple[str, ...]
) -> dict[str, float | None]:
    """One run against a port of a running server. Raises DriverFailed, also for a lost, repeated or misplaced
    message.
    """
    command = [*program, *arguments, "--port", str(port), "--pid", str(server.pid)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            preexec_fn=die_with_parent,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"no end after {RUN_TIMEOUT_S:.0f} s: {' '.join(command)}") from error
    if done.returncode != 0:
        raise DriverFailed(f"{server.program.name}: {' '.join(command)}: {done.stderr.strip()[-500:]}")
    return parse_figures(done.stdout)


def parse_figures(output: str) -> dict[str, float | None]:
    """The one line that the program prints."""
    try:
        figures = json.loads(output)
    except json.JSONDecodeError as error:
        raise DriverFailed(f"no figures in the output: {output.strip()[-500:]!r}") from error
    if not isinstance(figures, dict) or not all(isinstance(it, int | float | None) for it in figures.values()):
        raise DriverFailed(f"no figures in the output: {output.strip()[-500:]!r}")
    return figures
