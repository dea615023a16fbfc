"""Three servers that hold the same data: what it costs that a write is on two disks before its OK.

The module runs the steps of one repetition of a `GroupCase` on one contender. It does not test the data; the
only check is that all three servers have the same number of keys at the end.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import procfs
import resp
import transactions
from group_cases import ACKS, GroupCase, GroupStep
from replication import await_applied, await_link
from servers import Program, Server, ServerFailed

MEMBERS = 3
REST_S = 1.0
IDLE_S = 5.0
JOIN_TIMEOUT_S = 60.0
POLL_S = 0.02
# Names of the threads that vote and exchange messages begin with this.
VOTING_THREADS = "group"

Sample = dict[str, float | None]


class Three:
    """The leader and two others. All end with the block."""

    def __init__(self, program: Program, directory: Path, case: GroupCase, scale: int):
        self._program = program.for_replication()
        self._directory = directory
        self._case = case
        self._scale = scale
        self._servers: list[Server] = []

    def __enter__(self) -> "Three":
        for number in range(MEMBERS):
            server = Server(self._program_of(number), self._directory / str(number), self._case.persistence)
            self._servers.append(server)
            server.start()
        leader, *others = self._servers
        if self._has_votes:
            self._await_voters()
        for other in others:
            await_link(other)
        if self._program.name == ACKS:
            # Not before: without replicas even the checks of a start would wait.
            with leader.client() as client:
                client.call("CONFIG", "SET", "ack-replicas", "1")
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.ExitStack() as stack:
            for server in self._servers:
                stack.callback(server.stop)

    @property
    def _has_votes(self) -> bool:
        return self._program.is_sheaf and self._program.name != ACKS

    def _program_of(self, number: int) -> Program:
        program, leader = self._program, self._servers[0] if number else None
        if self._has_votes:
            join = () if leader is None else ("--join", f"127.0.0.1:{leader.ports.resp}")
            return program.with_flags(("--group", "bench", *join))
        if leader is not None:
            return program.following(leader.ports)
        return program

    def _await_voters(self) -> None:
        until = time.monotonic() + JOIN_TIMEOUT_S
        with self._servers[0].client() as client:
            while time.monotonic() < until:
                if int(client.info("replication").get("group_voters", "0")) == MEMBERS:
                    return
                time.sleep(POLL_S)
        raise ServerFailed("the group has too few voters")

    def measure(self, step: GroupStep) -> Sample:
        """Does one step."""
        os.sync()
        time.sleep(REST_S)
        if not step.connections:
            return {"votes_percent": self._votes_percent(lambda: time.sleep(IDLE_S))}
        rows = max(step.rows // self._scale, step.connections * step.pipeline)
        before_s = self._cpu_s()
        shown: Sample = {}

        def write() -> None:
            port = int(self._servers[0].ports.resp)
            figures = transactions.drive(port, self._writes(step), rows)
            shown.update(asdict(figures))
            for other in self._servers[1:]:
                await_applied(self._servers[0], other)

        votes_percent = self._votes_percent(write)
        cpu_us = (self._cpu_s() - before_s) / rows * 1e6
        return {"rows_s": shown.pop("ops_s"), **shown, "cpu_us": cpu_us, "votes_percent": votes_percent}

    def _writes(self, step: GroupStep) -> transactions.Writes:
        writes = transactions.Writes(step.connections, step.pipeline, step.value_bytes, keys=1_000_000)
        return writes if self._program.is_sheaf else replace(writes, waits=True)

    def _cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self._servers)

    def _votes_percent(self, work: Callable[[], object]) -> float | None:
        """CPU of the leader's voting threads during the work, in percent of a core."""
        pid = self._servers[0].pid
        before_s, began = procfs.threads_cpu_s(pid, VOTING_THREADS), time.perf_counter()
        work()
        used_s = procfs.threads_cpu_s(pid, VOTING_THREADS) - before_s
        return used_s / (time.perf_counter() - began) * 100 if self._has_votes else None

    def check(self) -> None:
        """Raises ServerFailed unless all servers have the same number of keys."""
        counts = []
        for server in self._servers:
            with server.client() as client:
                counts.append(client.call("DBSIZE"))
        if len(set(counts)) != 1 or not counts[0]:
            raise ServerFailed(f"{self._program.name}: numbers of keys differ: {counts}")
