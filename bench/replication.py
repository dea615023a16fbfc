"""A leader and its replica: the cost of following on both sides, and the lag.

The module runs the steps of one repetition of a `ReplicaCase` on one server. It does not test a replica's
data; the only check is that the replica has as many keys as its leader at the end.

Positions are those of INFO: `master_repl_offset` of the leader, `slave_repl_offset` of the replica, the
position that it has applied.

Invariant: a step ends when the replica has applied everything; CPU time is counted until then.
"""

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path

import driver
import resp
import transactions
from replica_cases import ReplicaCase, Step, Work
from servers import Program, Server, ServerFailed
from tarantool import TarantoolServer

POLL_S = 0.001
# The interval at which the lag is sampled; also the maximum error of `behind_ms`.
LOOK_S = 0.02
JOIN_TIMEOUT_S = 300.0
REST_S = 1.0

Sample = dict[str, float | None]


class Pair:
    """A leader, and a replica once it was requested. Both end with the block."""

    def __init__(self, program: Program, directory: Path, case: ReplicaCase, scale: int, benchmark: str):
        self._program = program.for_replication()
        self._directory = directory
        self._case = case
        self._rows = max(case.rows // scale, 1)
        self._load = replace(case.load, keys=max(case.load.keys // scale, 1))
        self._benchmark = benchmark
        self._leader = self._server("leader", self._program)
        self._replica: Server | None = None
        self._alone_cpu_us: float | None = None
        self._calm_bytes = 0

    def _server(self, name: str, program: Program) -> Server:
        kind = TarantoolServer if program.is_tarantool else Server
        return kind(program, self._directory / name, self._case.persistence)

    def __enter__(self) -> "Pair":
        self._leader.start()
        if not isinstance(self._leader, TarantoolServer):
            resp.load(int(self._leader.ports.resp), b"key:%012d", self._load.keys, self._load.value_bytes)
        self._write(max(self._rows // 10, 1), self._case.steps[0].work)
        time.sleep(REST_S)
        self._calm_bytes = self._leader.rss_bytes()
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._leader.stop)
            if self._replica is not None:
                stack.callback(self._replica.stop)

    def measure(self, step: Step) -> Sample:
        """Does one step."""
        if self._program.is_sheaf:
            with self._leader.client() as client:
                for name, value in step.settings:
                    client.call("CONFIG", "SET", name, value)
        if step.work is Work.FULL_SYNC:
            return self._measure_full_sync()
        if step.has_replica:
            self._have_replica()
        self._come_to_rest()
        return self._measure_catch_up() if step.work is Work.CATCH_UP else self._measure_writes(step)

    def _have_replica(self) -> Server:
        if self._replica is None:
            program = self._program.following(self._leader.ports)
            self._replica = self._server("replica", program)
            self._replica.start()
        await_applied(self._leader, self._replica)
        return self._replica

    def _come_to_rest(self) -> None:
        os.sync()
        time.sleep(REST_S)

    def _write(self, rows: int, work: Work = Work.LOAD) -> Sample:
        leader, port, load = self._leader, int(self._leader.ports.resp), self._load
        if isinstance(leader, TarantoolServer):
            began = time.perf_counter()
            leader.write(rows, load.keys, load.pipeline, load.value_bytes)
            return {"rows_s": rows / (time.perf_counter() - began)}
        if work is Work.TRANSACTIONS:
            writes = transactions.Writes(load.connections, load.pipeline, load.value_bytes, load.keys, are_atomic=True)
            figures = transactions.drive(port, writes, rows)
        else:
            figures = driver.drive(self._benchmark, load, port, "SET", rows)
        shown = asdict(figures)
        return {"rows_s": shown.pop("ops_s"), **shown}

    def _measure_writes(self, step: Step) -> Sample:
        with Costs(self._leader, self._replica) as costs, Watched(self._leader, self._replica) as watched:
            written = self._write(self._rows, step.work)
            applied_ms = self._await_applied_ms()
        cpu_us = costs.leader_s / self._rows * 1e6
        if not step.has_replica:
            self._alone_cpu_us = cpu_us
        added = None if self._alone_cpu_us is None or not step.has_replica else cpu_us - self._alone_cpu_us
        return {
            **written,
            "leader_cpu_us": cpu_us,
            "added_cpu_us": added,
            "replica_cpu_us": None if self._replica is None else costs.replica_s / self._rows * 1e6,
            "applied_ms": applied_ms,
            "behind_ms": watched.behind_ms_max,
            "growth_mb": (watched.rss_bytes_max - self._calm_bytes) / 1e6,
        }

    def _await_applied_ms(self) -> float | None:
        """The time from this call until the replica has applied all writes made before it."""
        if self._replica is None:
            return None
        return await_applied(self._leader, self._replica) * 1e3

    def _measure_catch_up(self) -> Sample:
        replica = self._have_replica()
        replica.pause()
        with self._leader.client() as client:
            client.call("CLIENT", "KILL", "TYPE", "replica")
            before = leader_position(client)
            self._write(self._rows)
            written = leader_position(client)
        self._come_to_rest()
        with Costs(self._leader, replica) as costs, self._leader.client() as client, replica.client() as asked:
            longest_s, began = 0.0, time.perf_counter()
            replica.resume()
            position = 0
            while position < written:
                sent = time.perf_counter()
                client.call("SET", "beside", "x")
                longest_s = max(longest_s, time.perf_counter() - sent)
                position = replica_position(asked) or 0
                if time.perf_counter() - began > JOIN_TIMEOUT_S:
                    raise ServerFailed(f"{self._program.name}: the replica is at {position} of {before}..{written}")
                time.sleep(POLL_S)
            elapsed_s = time.perf_counter() - began
        return {
            "rows_s": self._rows / elapsed_s,
            "catch_up_s": elapsed_s,
            "leader_cpu_us": costs.leader_s / self._rows * 1e6,
            "replica_cpu_us": costs.replica_s / self._rows * 1e6,
            "write_ms": longest_s * 1e3,
        }

    def _measure_full_sync(self) -> Sample:
        """Writes continue until the replica has copied everything; the figures are of the first load."""
        program = self._program.following(self._leader.ports)
        self._replica = replica = self._server("replica", program)
        self._come_to_rest()
        joined = Joining(replica)
        with Watched(self._leader, None) as watched, joined:
            written = self._write(self._rows)
            while not joined.is_over:
                self._write(self._rows)
        copied_bytes = 0
        if not self._program.is_sheaf:
            with self._leader.client() as client:
                copied_bytes = int(client.info().get("rdb_last_cow_size", "0"))
        return {
            **written,
            "growth_mb": (watched.rss_bytes_max - self._calm_bytes + copied_bytes) / 1e6,
            "sync_s": joined.sync_s,
            "applied_ms": self._await_applied_ms(),
        }


class Costs:
    """CPU seconds of both from the beginning of the block to its end."""

    def __init__(self, leader: Server, replica: Server | None):
        self._servers = (leader, replica)
        self.leader_s = self.replica_s = 0.0

    def _read(self) -> tuple[float, float]:
        leader, replica = self._servers
        assert leader is not None
        return leader.cpu_s(), 0.0 if replica is None else replica.cpu_s()

    def __enter__(self) -> "Costs":
        self._before = self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        if kind is None:
            self.leader_s, self.replica_s = (after - it for after, it in zip(self._read(), self._before, strict=True))


class InBackground:
    """A thread for the length of a block; its exception is raised at the end."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except (ServerFailed, OSError, resp.ServerReply) as failure:
            self._failure = failure

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return not self._thread.is_alive()

    def _work(self) -> None:
        raise NotImplementedError


class Watched(InBackground):
    """The maximum lag of the replica, and the maximum memory of the leader."""

    def __init__(self, leader: Server, replica: Server | None):
        super().__init__()
        self.rss_bytes_max = 0
        self.behind_ms_max: float | None = None
        self._leader = leader
        self._replica = replica

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def _work(self) -> None:
        with contextlib.ExitStack() as stack:
            leader = stack.enter_context(self._leader.client())
            replica = None if self._replica is None else stack.enter_context(self._replica.client())
            age = Age()
            while not self._ended.wait(LOOK_S):
                self.rss_bytes_max = max(self.rss_bytes_max, self._leader.rss_bytes())
                if replica is not None:
                    age.note(time.perf_counter(), leader_position(leader))
                    position = replica_position(replica)
                    if position is not None:
                        behind_s = age.of(position, time.perf_counter())
                        self.behind_ms_max = max(self.behind_ms_max or 0.0, behind_s * 1e3)


class Age:
    """The age of the state at a position, from the times at which the leader was seen at positions."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, position: int) -> None:
        """Records that the leader is at this position now."""
        self._seen.append((now_s, position))

    def of(self, position: int, now_s: float) -> float:
        """0 at the newest position seen; else the time since the leader was last seen at or before it."""
        if not self._seen or position >= self._seen[-1][1]:
            return 0.0
        # Of the positions that the replica has reached, only the last is needed from now on.
        while len(self._seen) > 1 and self._seen[1][1] <= position:
            self._seen.popleft()
        return now_s - self._seen[0][0]


class Joining(InBackground):
    """A new replica that starts with the block; `sync_s` is the time until it followed, None until then.

    It answers before it follows. This thread starts it: the kernel ends it together with the thread that
    started it.
    """

    def __init__(self, replica: Server):
        super().__init__()
        self.sync_s: float | None = None
        self._replica = replica

    def __enter__(self) -> "Joining":
        self._began = time.perf_counter()
        self._replica.start()
        self._thread.start()
        return self

    def _work(self) -> None:
        await_link(self._replica)
        self.sync_s = time.perf_counter() - self._began


def leader_position(client: resp.Client) -> int:
    """The end of the leader's stream."""
    return int(client.info("replication")["master_repl_offset"])


def replica_position(client: resp.Client) -> int | None:
    """The position up to which a replica has applied the stream; None while it follows no leader."""
    info = client.info("replication")
    return int(info["slave_repl_offset"]) if info.get("master_link_status") == "up" else None


def await_link(replica: Server) -> None:
    """Waits until the replica follows its leader."""
    until = time.monotonic() + JOIN_TIMEOUT_S
    while time.monotonic() < until:
        replica.check_alive()
        # A replica restarts in its process after a full copy.
        with contextlib.suppress(OSError, resp.ServerReply), replica.client() as client:
            if replica_position(client) is not None:
                return
        time.sleep(LOOK_S)
    raise ServerFailed(f"{replica.program.name}: the replica does not follow")


def await_applied(leader: Server, replica: Server) -> float:
    """Waits; seconds from now until the replica has applied the leader's current state."""
    began = time.perf_counter()
    with leader.client() as client:
        end = leader_position(client)
    await_link(replica)
    with replica.client() as client:
        while (replica_position(client) or 0) < end:
            if time.perf_counter() - began > JOIN_TIMEOUT_S:
                raise ServerFailed(f"{replica.program.name}: the replica does not catch up")
            time.sleep(POLL_S)
    return time.perf_counter() - began
