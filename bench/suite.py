"""Runs cases: fresh servers, warm-up, interleaved repetitions, one sample per measurement.

Order of a case with servers A, B, C: prepare A, B, C; then repetition 1 of A, B, C; repetition 2 of A, B, C;
and so on. Drift of the machine (heat, neighbours) thus falls on all of them alike.

Invariant: at most one server runs at any time; the others are stopped or not started.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import driver
import resp
import stall
from cases import Case, LoadCase, MemoryCase, ReplayCase, StallCase
from servers import Fleet, Persistence, Program, Running, Server, ServerFailed

# Time for a server to return to rest (buffers written out, query buffers freed) after a bulk load.
REST_S = 1.0
REPLAY_TIMEOUT_S = 600.0
# Rough loading speed of resp.load; only the forecast of the remaining time depends on it.
LOAD_KEYS_S = 400_000

Sample = dict[str, float | None]


@dataclass
class Result:
    """The samples of one case: (server, operation) -> one sample per repetition, in the order measured."""

    case: Case
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)

    def add(self, server: str, op: str, sample: Sample) -> None:
        """Appends a repetition."""
        self.samples.setdefault((server, op), []).append(sample)


class Progress:
    """One line on stderr: what runs now, how much is done, when the rest is expected to be done."""

    def __init__(self, total_s: float):
        self._total_s = total_s
        self._done_s = 0.0
        self._started = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def step(self, words: str, forecast_s: float, work: Callable[[], None]) -> None:
        """Shows the step, does it, and counts its forecast as done."""
        self._show(words)
        work()
        self._done_s += forecast_s

    def _show(self, words: str) -> None:
        elapsed_s = time.monotonic() - self._started
        # The forecast gives the proportions, the clock gives the scale once there is something to go by.
        scale = elapsed_s / self._done_s if self._done_s > 0 else 1.0
        left_s = max(self._total_s - self._done_s, 0.0) * scale
        line = f"[{self._done_s / self._total_s:4.0%}, {left_s / 60:.0f}:{left_s % 60:02.0f} left] {words}"
        print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    def clear(self) -> None:
        """Removes the line before other output."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@dataclass
class Suite:
    """What all cases share. `scale` divides operation and key counts (1 = full size)."""

    programs: dict[str, Program]
    benchmark: str
    directory: Path
    reps: int
    scale: int

    def contenders(self, case: Case) -> list[Program]:
        """The programs of the case that were chosen, in the case's order."""
        chosen = [self.programs[name] for name in case.contenders if name in self.programs]
        return [program.with_one_worker() for program in chosen] if isinstance(case, StallCase) else chosen

    def forecast_s(self, case: Case) -> float:
        """The sum of the steps' forecasts; the same formulas as in the steps."""
        servers = len(self.contenders(case))
        if isinstance(case, LoadCase):
            measured_s = self._run_s(case) * len(case.operations)
            return servers * (self._prepare_s(case) + measured_s * self.reps)
        if isinstance(case, StallCase):
            return servers * self.reps * self._stall_s(case)
        fill_s = self._count(case.keys) / LOAD_KEYS_S + 2
        fills = self.reps if isinstance(case, MemoryCase) else 1
        restarts = self.reps if isinstance(case, ReplayCase) else 0
        return servers * fill_s * (fills + restarts / 2)

    def run(self, case: Case, progress: Progress) -> Result:
        """Measures one case and leaves nothing behind."""
        result = Result(case)
        try:
            if isinstance(case, LoadCase):
                self._run_load(case, result, progress)
            elif isinstance(case, MemoryCase):
                self._run_memory(case, result, progress)
            elif isinstance(case, StallCase):
                self._run_stall(case, result, progress)
            else:
                self._run_replay(case, result, progress)
        finally:
            progress.clear()
            shutil.rmtree(self.directory / case.name, ignore_errors=True)
        return result

    def _fleet(self, case: Case) -> Fleet:
        base = self.directory / case.name
        return Fleet([Server(program, base / program.name, case.persistence) for program in self.contenders(case)])

    def _count(self, full: int) -> int:
        return max(full // self.scale, 1)

    # Load cases

    def _run_load(self, case: LoadCase, result: Result, progress: Progress) -> None:
        with self._fleet(case) as fleet:
            for server in fleet.servers:
                words = f"{case.name}: {server.program.name}: fill and warm up"
                progress.step(words, self._prepare_s(case), partial(self._prepare, case, server))
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    for op in case.operations:
                        words = f"{case.name}: {server.program.name}: {op}, repetition {rep} of {self.reps}"
                        progress.step(words, self._run_s(case), partial(self._measure, case, server, op, result))

    def _prepare_s(self, case: LoadCase) -> float:
        fill_s = case.load.keys / LOAD_KEYS_S if "GET" in case.operations else 0
        return fill_s + self._run_s(case) * len(case.operations) / 10 + 1

    def _run_s(self, case: LoadCase) -> float:
        """Full-size runs take about four seconds each (cases.py)."""
        return 4 / self.scale + 0.3

    def _prepare(self, case: LoadCase, server: Server) -> None:
        server.start()
        with Running(server):
            if "GET" in case.operations:
                # Every key exists, so that each GET of the measurement finds its value.
                _fill(server, b"key:%012d", case.load.keys, case.load.value_bytes)
            for op in case.operations:
                driver.drive(self.benchmark, case.load, int(server.ports.resp), op, self._count(case.ops // 10))

    def _measure(self, case: LoadCase, server: Server, op: str, result: Result) -> None:
        ops = self._count(case.ops)
        with Running(server):
            log_before = self._log_counters(case, server)
            cpu_before = server.cpu_s()
            figures = driver.drive(self.benchmark, case.load, int(server.ports.resp), op, ops)
            cpu_s = server.cpu_s() - cpu_before
            log_after = self._log_counters(case, server)
        sample: Sample = {
            "ops_s": figures.ops_s,
            "p50_ms": figures.p50_ms,
            "p99_ms": figures.p99_ms,
            "cpu_s_per_1m": cpu_s / ops * 1e6,
            "client_share": figures.client_share,
            "writes_per_sync": writes_per_sync(log_before, log_after),
        }
        result.add(server.program.name, op, sample)

    def _log_counters(self, case: LoadCase, server: Server) -> tuple[float, float] | None:
        """Only where writes are synced: otherwise the ratio says nothing."""
        return server.log_counters() if case.persistence is Persistence.SYNCED else None

    # Memory

    def _run_memory(self, case: MemoryCase, result: Result, progress: Progress) -> None:
        forecast_s = self.forecast_s(case) / max(self.reps * len(self.contenders(case)), 1)
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: load, repetition {rep} of {self.reps}"
                    progress.step(words, forecast_s, partial(self._weigh, case, server, result))
            shutil.rmtree(self.directory / case.name)

    def _weigh(self, case: MemoryCase, server: Server, result: Result) -> None:
        keys = self._count(case.keys)
        server.start()
        time.sleep(REST_S)
        empty_bytes = server.rss_bytes()
        resp.load_blocks(int(server.ports.resp), case.fill.blocks(keys))
        _check_keys(server, 1 if case.fill.is_one_key else keys)
        time.sleep(REST_S)
        loaded_bytes = server.rss_bytes()
        server.stop()
        sample: Sample = {
            "bytes_per_key": (loaded_bytes - empty_bytes) / keys,
            "rss_empty_mb": empty_bytes / 1e6,
            "rss_loaded_mb": loaded_bytes / 1e6,
        }
        result.add(server.program.name, "LOAD", sample)

    # Stalls

    def _run_stall(self, case: StallCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: repetition {rep} of {self.reps}"
                    progress.step(words, self._stall_s(case), partial(self._stall, case, server, result))
            shutil.rmtree(self.directory / case.name)

    def _stall_s(self, case: StallCase) -> float:
        return len(stall.KEYS) * self._count(case.things) / LOAD_KEYS_S + 10

    def _stall(self, case: StallCase, server: Server, result: Result) -> None:
        things = self._count(case.things)
        server.start()
        resp.load_blocks(int(server.ports.resp), stall.blocks(things))
        _check_keys(server, len(stall.KEYS))
        os.sync()
        time.sleep(REST_S)
        stall.measure(int(server.ports.resp), server.pid, things, partial(result.add, server.program.name))
        server.stop()

    # Replay

    def _run_replay(self, case: ReplayCase, result: Result, progress: Progress) -> None:
        forecast_s = self.forecast_s(case) / max((self.reps / 2 + 1) * len(self.contenders(case)), 1)
        with self._fleet(case) as fleet:
            for server in fleet.servers:
                words = f"{case.name}: {server.program.name}: write the log"
                progress.step(words, forecast_s, partial(self._write_log, case, server))
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: restart, repetition {rep} of {self.reps}"
                    progress.step(words, forecast_s / 2, partial(self._restart, case, server, result))

    def _write_log(self, case: ReplayCase, server: Server) -> None:
        server.start()
        _fill(server, b"k:%d", self._count(case.keys), case.value_bytes)
        # Nothing is synced here, so give the log thread time to hand everything to the OS.
        time.sleep(REST_S)
        server.kill()

    def _restart(self, case: ReplayCase, server: Server, result: Result) -> None:
        keys = self._count(case.keys)
        os.sync()
        ready_s = server.start(REPLAY_TIMEOUT_S)
        cpu_s = server.cpu_s()
        _check_keys(server, keys)
        server.kill()
        sample: Sample = {"ready_s": ready_s, "records_s": keys / ready_s, "cpu_s_per_1m": cpu_s / keys * 1e6}
        result.add(server.program.name, "REPLAY", sample)


def writes_per_sync(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    """Log records per sync between two readings; None where a server does not tell or did not sync."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _fill(server: Server, key_format: bytes, keys: int, value_bytes: int) -> None:
    resp.load(int(server.ports.resp), key_format, keys, value_bytes)
    _check_keys(server, keys)


def _check_keys(server: Server, expected: int) -> None:
    """A figure about fewer keys than intended would be wrong without anyone noticing."""
    with server.client() as client:
        found = client.call("DBSIZE")
    if found != expected:
        raise ServerFailed(f"{server.program.name} holds {found} keys instead of {expected}")
