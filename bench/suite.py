"""Runs cases: fresh servers, warm-up, interleaved repetitions, one sample per measurement.

Order of a case with servers A, B, C: prepare A, B, C; then repetition 1 of A, B, C; repetition 2 of A, B, C;
and so on. Drift of the machine (heat, neighbours) thus falls on all of them alike.

Invariant: at most one server runs at any time; the others are stopped or not started.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import doors
import driver
import messages
import resp
import stall
import starts
from cases import BesideCase, Case, LoadCase, MemoryCase, SnapshotCase, StallCase, StartCase
from document_cases import DocumentCase, DocumentRun
from door_cases import DoorCase, HandshakeCase
from fill import Fill
from group_cases import GroupCase
from groups import IDLE_S, Three
from message_cases import MessageCase, Run
from pouchdb import PouchServer
from replica_cases import ReplicaCase
from replication import Pair
from servers import Fleet, Persistence, Program, Running, Server
from snapshots import Watched
from tarantool import TarantoolServer

# Time for a server to become idle (buffers written out, query buffers freed) after a bulk load.
REST_S = 1.0
# Rough loading speed of resp.load; used only to forecast the remaining time.
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
    """One line on stderr: the current step, the progress, the expected end."""

    def __init__(self, total_s: float):
        self._total_s = total_s
        self._done_s = 0.0
        self._started = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def step(self, words: str, forecast_s: float, work: Callable[[], None]) -> None:
        """Shows the step, runs it, and counts its forecast as done."""
        self._show(words)
        work()
        self._done_s += forecast_s

    def _show(self, words: str) -> None:
        elapsed_s = time.monotonic() - self._started
        # The forecast gives the proportions, and the clock the scale as soon as a step has been timed.
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
    """The common state of all cases. `scale` divides operation and key counts (1 = full size).

    The data of starts is created in `kept` if that is given, and found again there later.
    """

    programs: dict[str, Program]
    benchmark: str
    traffic: str | None
    directory: Path
    reps: int
    scale: int
    kept: Path | None = None

    def contenders(self, case: Case) -> list[Program]:
        """The chosen programs of the case, in the case's order."""
        chosen = [self.programs[name] for name in case.contenders if name in self.programs]
        if isinstance(case, MessageCase):
            return [program.with_flags(case.flags) for program in chosen]
        if isinstance(case, BesideCase):
            return [program.with_flags(("--workers", str(case.workers))) for program in chosen]
        return [program.with_one_worker() for program in chosen] if isinstance(case, StallCase) else chosen

    def forecast_s(self, case: Case) -> float:
        """The sum of the steps' forecasts; the same formulas as in the steps."""
        servers = len(self.contenders(case))
        if isinstance(case, LoadCase):
            measured_s = self._run_s(case) * len(case.operations)
            return servers * (self._prepare_s(case) + measured_s * self.reps)
        if isinstance(case, DoorCase):
            return servers * (4 + self.reps * self._run_s(case) * len(case.operations))
        if isinstance(case, HandshakeCase):
            return servers * self.reps * self._handshake_s(case)
        if isinstance(case, StallCase):
            return servers * self.reps * self._stall_s(case)
        if isinstance(case, BesideCase):
            return servers * self.reps * self._beside_s(case)
        if isinstance(case, StartCase):
            return servers * (self._make_s(case) + self.reps * self._start_s(case) * len(case.operations))
        if isinstance(case, SnapshotCase):
            return servers * (self._fill_s(case) + self.reps * self._run_s(case) * len(case.operations))
        if isinstance(case, MessageCase):
            return servers * self.reps * sum(run.forecast_s(self.scale) for run in case.runs)
        if isinstance(case, DocumentCase):
            names = [program.name for program in self.contenders(case)]
            return self.reps * sum(run.forecast_s(self.scale, name) for name in names for run in case.runs_of(name))
        if isinstance(case, ReplicaCase):
            return servers * self.reps * self._replica_s(case)
        if isinstance(case, GroupCase):
            return servers * self.reps * self._group_s(case)
        return servers * self._weigh_s(case) * self.reps

    def run(self, case: Case, progress: Progress) -> Result:
        """Measures one case and leaves no files behind."""
        result = Result(case)
        try:
            if isinstance(case, LoadCase):
                self._run_load(case, result, progress)
            elif isinstance(case, DoorCase):
                self._run_doors(case, result, progress)
            elif isinstance(case, HandshakeCase):
                self._run_handshakes(case, result, progress)
            elif isinstance(case, MemoryCase):
                self._run_memory(case, result, progress)
            elif isinstance(case, BesideCase):
                self._run_beside(case, result, progress)
            elif isinstance(case, StallCase):
                self._run_stall(case, result, progress)
            elif isinstance(case, StartCase):
                self._run_starts(case, result, progress)
            elif isinstance(case, MessageCase):
                self._run_messages(case, result, progress)
            elif isinstance(case, DocumentCase):
                self._run_documents(case, result, progress)
            elif isinstance(case, ReplicaCase):
                self._run_replicas(case, result, progress)
            elif isinstance(case, GroupCase):
                self._run_groups(case, result, progress)
            else:
                self._run_snapshots(case, result, progress)
        finally:
            progress.clear()
            shutil.rmtree(self.directory / case.name, ignore_errors=True)
        return result

    def _fleet(self, case: Case) -> Fleet:
        base = self.directory / case.name
        return Fleet([_server(program, base / program.name, case.persistence) for program in self.contenders(case)])

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

    def _run_s(self, case: LoadCase | SnapshotCase | DoorCase) -> float:
        """Full-size runs take about four seconds each (cases.py)."""
        return 4 / self.scale + 0.3

    def _prepare(self, case: LoadCase, server: Server) -> None:
        server.start()
        with Running(server):
            if "GET" in case.operations:
                # Every key exists, so that each GET of the measurement finds its value.
                _fill(server, b"key:%012d", case.load.keys, case.load.value_bytes)
            if "EVALSHA" in case.operations:
                with server.client() as client:
                    client.call("SCRIPT", "LOAD", driver.LIMITER)
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
            **asdict(figures),
            "cpu_s_per_1m": cpu_s / ops * 1e6,
            "writes_per_sync": writes_per_sync(log_before, log_after),
        }
        result.add(server.program.name, op, sample)

    def _log_counters(self, case: LoadCase, server: Server) -> tuple[float, float] | None:
        """Only if writes are synced: otherwise the ratio says nothing."""
        return server.log_counters() if case.persistence is Persistence.SYNCED else None

    # Users and TLS

    def _certified_fleet(self, case: DoorCase | HandshakeCase) -> Fleet:
        base = self.directory / case.name
        doors.make_certificates(self.programs["sheaf"].path, base / "certificates")
        programs = [program.with_certificates((base / "certificates").resolve()) for program in self.contenders(case)]
        return Fleet([_server(program, base / program.name, case.persistence) for program in programs])

    def _run_doors(self, case: DoorCase, result: Result, progress: Progress) -> None:
        with self._certified_fleet(case) as fleet:
            for server in fleet.servers:
                words = f"{case.name}: {server.program.name}: fill and warm up"
                progress.step(words, 4, partial(self._open_doors, case, server))
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    for op in case.operations:
                        words = f"{case.name}: {server.program.name}: {op}, repetition {rep} of {self.reps}"
                        progress.step(words, self._run_s(case), partial(self._enter, case, server, op, result))

    def _open_doors(self, case: DoorCase, server: Server) -> None:
        server.start()
        with Running(server):
            _fill(server, b"key:%012d", case.load.keys, case.load.value_bytes)
            with server.client() as client:
                doors.add_users(client, case.doors)
            for op in case.operations:
                self._send(case, server, op, self._count(case.ops // 10))

    def _send(self, case: DoorCase, server: Server, op: str, ops: int) -> driver.Figures:
        kind, door = case.sent(op)
        port, through = doors.through(door, server.program, server.ports)
        return driver.drive(self.benchmark, case.load, int(port), kind, ops, through)

    def _enter(self, case: DoorCase, server: Server, op: str, result: Result) -> None:
        ops = self._count(case.ops)
        with Running(server):
            cpu_before = server.cpu_s()
            figures = self._send(case, server, op, ops)
            cpu_s = server.cpu_s() - cpu_before
        result.add(server.program.name, op, {**asdict(figures), "cpu_s_per_1m": cpu_s / ops * 1e6})

    def _run_handshakes(self, case: HandshakeCase, result: Result, progress: Progress) -> None:
        with self._certified_fleet(case) as fleet:
            for server in fleet.servers:
                server.start()
                server.pause()
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: repetition {rep} of {self.reps}"
                    progress.step(words, self._handshake_s(case), partial(self._shake_hands, case, server, result))

    def _handshake_s(self, case: HandshakeCase) -> float:
        return 2 + 2 * self._count(case.requests) / 1_000

    def _shake_hands(self, case: HandshakeCase, server: Server, result: Result) -> None:
        with Running(server):
            measured = doors.measure_handshakes(server, case.rate, self._count(case.requests))
        for op, sample in measured.items():
            result.add(server.program.name, op, sample)

    # Memory

    def _run_memory(self, case: MemoryCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: load, repetition {rep} of {self.reps}"
                    progress.step(words, self._weigh_s(case), partial(self._weigh, case, server, result))
            shutil.rmtree(self.directory / case.name)

    def _weigh_s(self, case: MemoryCase) -> float:
        return self._count(case.keys) / LOAD_KEYS_S + 2

    def _weigh(self, case: MemoryCase, server: Server, result: Result) -> None:
        keys = self._count(case.keys)
        server.start()
        time.sleep(REST_S)
        empty_bytes = server.rss_bytes()
        server.fill(case.fill, keys)
        server.check(None, 1 if case.fill.is_one_key else keys)
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
        server.check(None, len(stall.KEYS))
        os.sync()
        time.sleep(REST_S)
        stall.measure(int(server.ports.resp), server.pid, things, partial(result.add, server.program.name))
        server.stop()

    # Clients beside other clients

    def _run_beside(self, case: BesideCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    words = f"{case.name}: {server.program.name}: repetition {rep} of {self.reps}"
                    progress.step(words, self._beside_s(case), partial(self._disturb, case, server, result))
            shutil.rmtree(self.directory / case.name)

    def _beside_s(self, case: BesideCase) -> float:
        return 2.0 + 20.0 / self.scale + self._count(case.things) / LOAD_KEYS_S

    def _disturb(self, case: BesideCase, server: Server, result: Result) -> None:
        server.start()
        if case.fill is not None:
            resp.load_blocks(int(server.ports.resp), case.fill.blocks(self._count(case.things)))
            time.sleep(REST_S)
        os.sync()
        for op, sample in case.measure(int(server.ports.resp), self._count(case.size)).items():
            result.add(server.program.name, op, sample)
        server.stop()

    # Messages

    def _run_messages(self, case: MessageCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    for run in case.runs:
                        words = f"{case.name}: {server.program.name}: {run.op}, repetition {rep} of {self.reps}"
                        work = partial(self._exchange, server, False, run, result)
                        progress.step(words, run.forecast_s(self.scale), work)
            shutil.rmtree(self.directory / case.name)

    def _exchange(self, server: Server, over_http: bool, run: Run | DocumentRun, result: Result) -> None:
        assert self.traffic is not None
        server.start()
        os.sync()
        port = server.ports.http if over_http else server.ports.resp
        is_bullmq = isinstance(run, Run) and run.is_bullmq
        program = messages.find_bullmq() if is_bullmq else [self.traffic]
        result.add(server.program.name, run.op, messages.measure(program, server, port, run.words(self.scale)))
        server.stop()
        # The messages of durable channels, or the documents, are still there.
        shutil.rmtree(server.directory)

    # Documents

    def _run_documents(self, case: DocumentCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            with self._fleet(case) as fleet:
                for server in fleet.servers:
                    name = server.program.name
                    for run in case.runs_of(name):
                        words = f"{case.name}: {name}: {run.op}, repetition {rep} of {self.reps}"
                        work = partial(self._exchange, server, True, run, result)
                        progress.step(words, run.forecast_s(self.scale, name), work)
            shutil.rmtree(self.directory / case.name)

    # Replicas

    def _run_replicas(self, case: ReplicaCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            for program in self.contenders(case):
                words = f"{case.name}: {program.name}: repetition {rep} of {self.reps}"
                progress.step(words, self._replica_s(case), partial(self._replicate, case, program, result))

    def _replica_s(self, case: ReplicaCase) -> float:
        return self._count(case.load.keys) / LOAD_KEYS_S + len(case.steps) * (5 / self.scale + 2)

    def _replicate(self, case: ReplicaCase, program: Program, result: Result) -> None:
        directory = self.directory / case.name / program.name
        with Pair(program, directory, case, self.scale, self.benchmark) as pair:
            for step in case.steps:
                result.add(program.name, step.op, pair.measure(step))
        shutil.rmtree(directory)

    # Groups

    def _run_groups(self, case: GroupCase, result: Result, progress: Progress) -> None:
        for rep in range(1, self.reps + 1):
            for program in self.contenders(case):
                words = f"{case.name}: {program.name}: repetition {rep} of {self.reps}"
                progress.step(words, self._group_s(case), partial(self._write_to_three, case, program, result))

    def _group_s(self, case: GroupCase) -> float:
        return IDLE_S + len(case.steps) * (6 / self.scale + 2)

    def _write_to_three(self, case: GroupCase, program: Program, result: Result) -> None:
        directory = self.directory / case.name / program.name
        with Three(program, directory, case, self.scale) as three:
            for step in case.steps:
                result.add(program.name, step.op, three.measure(step))
            three.check()
        shutil.rmtree(directory)

    # Starts

    def _run_starts(self, case: StartCase, result: Result, progress: Progress) -> None:
        rows = self._count(case.rows) if case.rows else 0
        made = [(program, self._data_directory(case, program, rows)) for program in self.contenders(case)]
        for program, directory in made:
            words = f"{case.name}: {program.name}: make the data"
            progress.step(words, self._make_s(case), partial(_make_data, case, program, directory, rows))
        with Fleet([_server(program, directory, case.persistence) for program, directory in made]) as fleet:
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    for op in case.operations:
                        words = f"{case.name}: {server.program.name}: {op}, repetition {rep} of {self.reps}"
                        progress.step(words, self._start_s(case), partial(self._start, case, server, op, rows, result))

    def _data_directory(self, case: StartCase, program: Program, rows: int) -> Path:
        """Kept data can be reused by the same version of the server only."""
        version = re.sub(r"\W+", "-", program.version()).strip("-").lower()
        return (self.kept or self.directory) / case.name / f"{rows}-{program.name}-{version}"

    def _make_s(self, case: StartCase) -> float:
        return self._count(case.rows) / LOAD_KEYS_S * 2 + 2

    def _start_s(self, case: StartCase) -> float:
        return self._count(case.rows) / LOAD_KEYS_S / 2 + 1

    def _start(self, case: StartCase, server: Server, op: str, rows: int, result: Result) -> None:
        result.add(server.program.name, op, starts.measure(case, server, op, rows))

    # Snapshots

    def _run_snapshots(self, case: SnapshotCase, result: Result, progress: Progress) -> None:
        with self._fleet(case) as fleet:
            for server in fleet.servers:
                words = f"{case.name}: {server.program.name}: fill and warm up"
                progress.step(words, self._fill_s(case), partial(self._prepare_snapshots, case, server))
            calm_bytes = {server: server.rss_bytes() for server in fleet.servers}
            for rep in range(1, self.reps + 1):
                for server in fleet.servers:
                    for op in case.operations:
                        words = f"{case.name}: {server.program.name}: {op}, repetition {rep} of {self.reps}"
                        work = partial(self._watch, case, server, op, calm_bytes[server], result)
                        progress.step(words, self._run_s(case), work)

    def _fill_s(self, case: SnapshotCase) -> float:
        return self._count(case.load.keys + case.members) / LOAD_KEYS_S + 5

    def _scaled_load(self, case: SnapshotCase) -> driver.Load:
        return replace(case.load, keys=self._count(case.load.keys))

    def _prepare_snapshots(self, case: SnapshotCase, server: Server) -> None:
        load = self._scaled_load(case)
        server.start()
        with Running(server):
            _fill(server, b"key:%012d", load.keys, load.value_bytes)
            if case.members:
                server.fill(Fill.LARGE_ZSET, self._count(case.members))
            driver.drive(self.benchmark, load, int(server.ports.resp), case.op, self._count(case.ops // 2))
            time.sleep(REST_S)

    def _watch(self, case: SnapshotCase, server: Server, op: str, calm_bytes: int, result: Result) -> None:
        is_disturbed = op != case.op
        with Running(server), Watched(server, is_disturbed) as watched:
            load, ops = self._scaled_load(case), self._count(case.ops)
            figures = driver.drive(self.benchmark, load, int(server.ports.resp), case.op, ops)
        grown_bytes = watched.rss_bytes_max - calm_bytes + watched.copied_bytes_max
        taken = watched.snapshots_s
        sample: Sample = {
            **asdict(figures),
            "growth_mb": grown_bytes / 1e6,
            "snapshots": len(taken) if is_disturbed else None,
            "snapshot_s": sum(taken) / len(taken) if taken else None,
        }
        result.add(server.program.name, op, sample)


def writes_per_sync(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    """Log records per sync between two readings; None if a server does not report them or did not sync."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _server(program: Program, directory: Path, persistence: Persistence) -> Server:
    kind = TarantoolServer if program.is_tarantool else PouchServer if program.is_pouchdb else Server
    return kind(program, directory, persistence)


def _make_data(case: StartCase, program: Program, directory: Path, rows: int) -> None:
    """The data in `directory` is always complete: it is created elsewhere and renamed."""
    if directory.exists():
        return
    draft = directory.with_name(f"{directory.name}-draft")
    shutil.rmtree(draft, ignore_errors=True)
    with Fleet([_server(program, draft, case.persistence)]) as fleet:
        starts.make(case, fleet.servers[0], rows)
    draft.rename(directory)


def _fill(server: Server, key_format: bytes, keys: int, value_bytes: int) -> None:
    resp.load(int(server.ports.resp), key_format, keys, value_bytes)
    server.check(None, keys)
