"""Runs redis-benchmark once and reads its figures.

The client is one thread, as redis-benchmark is by default. With deep pipelines it can be the slower side:
then operations per second say little and the server's CPU per operation is the figure to look at, which is
why the client's own CPU share is reported too.
"""

import csv
import io
import resource
import subprocess
import time
from dataclasses import dataclass

from procfs import die_with_parent


class DriverFailed(Exception):
    """redis-benchmark failed, or printed something other than its CSV table."""


@dataclass(frozen=True)
class Load:
    """What the client does. `keys` is the size of the random key space."""

    connections: int
    pipeline: int
    value_bytes: int
    keys: int = 1_000_000

    def arguments(self, port: int | str, op: str, ops: int | str) -> list[str]:
        """The command line after the program's name; `port` and `ops` may be placeholders for display."""
        return [
            *("-p", str(port), "-c", str(self.connections), "-P", str(self.pipeline)),
            *("-n", str(ops), "-r", str(self.keys), "-d", str(self.value_bytes)),
            *("-t", op.lower(), "--csv"),
        ]


@dataclass(frozen=True)
class Figures:
    """One run as its client saw it."""

    ops_s: float
    p50_ms: float
    p99_ms: float
    client_share: float  # CPU of the client / elapsed time; 1.0 = one core, all that it can use


def drive(program: str, load: Load, port: int, op: str, ops: int, timeout_s: float = 900.0) -> Figures:
    """Sends `ops` operations of the kind `op` ("GET" or "SET"). Raises DriverFailed."""
    arguments = [program, *load.arguments(port, op, ops)]
    cpu_before, started = _children_cpu_s(), time.monotonic()
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=die_with_parent,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"no end after {timeout_s:.0f} s: {' '.join(arguments)}") from error
    elapsed_s = time.monotonic() - started
    if done.returncode != 0:
        raise DriverFailed(f"{' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
    ops_s, p50_ms, p99_ms = parse_csv(done.stdout, op)
    return Figures(ops_s, p50_ms, p99_ms, (_children_cpu_s() - cpu_before) / elapsed_s)


def parse_csv(output: str, op: str) -> tuple[float, float, float]:
    """(operations per second, p50 ms, p99 ms) of the row named `op`."""
    for row in csv.DictReader(io.StringIO(output)):
        if row.get("test") == op:
            try:
                return float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"])
            except (KeyError, TypeError, ValueError) as error:
                raise DriverFailed(f"a row without figures: {row}") from error
    raise DriverFailed(f"no row {op} in the output: {output.strip()[-500:]!r}")


def _children_cpu_s() -> float:
    """CPU of children that have ended. Servers live until their case is over, so within one it is the client's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
