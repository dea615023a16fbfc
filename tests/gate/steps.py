"""Runs steps in lanes that run at the same time. Invariants:

- a step ends: at its limit, at the limit of the whole run, or when another step fails;
- whatever a step has started ends with it;
- the last lines of a failed run name the step, the test, its seed and the command that repeats it;
- a test that failed and is let pass is named too, as unsteady, with what it printed: it is a fault, of the product
  or of the test, that someone must mend. Tests with an oracle (the marker `oracle`) and crashes are never let pass.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from . import outputs, processes

# Lines of a failed step that are printed.
TAIL_LINES = 60
SLOWEST_TESTS = 10
# How often a test that failed must pass alone to be called unsteady, and how many of them a run may have.
REPEATS = 3
UNSTEADY_MAX = 2
REPEAT_LIMIT_S = 400
# The option that leaves out the tests whose failure is never chance: pytest fails if no test is left.
WITHOUT_ORACLES = {"PYTEST_ADDOPTS": "-m 'not oracle'"}
PROGRESS_OF_NODE = Path(__file__).with_name("progress.mjs")


@dataclass
class Step:
    """A command of bash, and the seconds that it may take: at least three times those on two quiet cores."""

    name: str
    limit_s: int
    command: str
    env: dict[str, str] = field(default_factory=dict)
    # Whether tests that fail are repeated, because they depend on when other processes run.
    repeated: bool = False


def node_tests(directory: str, files: int, timeout_ms: int) -> str:
    """The command that runs all Node tests of a directory, this many files at a time. A file that is not done in
    time is ended, also one with open sockets.
    """
    reporters = f"--test-reporter=tap --test-reporter-destination=stdout --test-reporter={PROGRESS_OF_NODE}"
    return (
        f"node --test --test-force-exit --test-concurrency={files} --test-timeout={timeout_ms} {reporters}"
        f" --test-reporter-destination=stderr {directory}"
    )


def reaped(process: subprocess.Popen, flags: int) -> float | None:
    """The seconds of CPU time that a process and the children it waited for have used; None while it runs."""
    pid, status, usage = os.wait4(process.pid, flags)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


class Failed(Exception):
    """A step has failed, and the run ends."""


class Run:
    """One run of the gate."""

    def __init__(self, logs: Path, env: dict[str, str], limit_s: int) -> None:
        self.logs, self.env, self.limit_s = logs, env, limit_s
        self.started = time.monotonic()
        self.passed = 0
        self.times: list[tuple[float, str]] = []
        self.ending = threading.Event()
        self.failures: list[tuple[Step, str, Path]] = []
        self.unsteady: list[tuple[str, Path]] = []
        self.lock = threading.Lock()
        logs.mkdir(parents=True, exist_ok=True)
        processes.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.interrupted)

    def interrupted(self, number: int, _frame) -> None:
        print(f"\nended by {signal.Signals(number).name}", flush=True)
        self.ending.set()

    def elapsed_s(self) -> int:
        return int(time.monotonic() - self.started)

    def say(self, text: str) -> None:
        with self.lock:
            print(text, flush=True)

    def lanes(self, *lanes: list[Step], shared: Sequence[Step] = ()) -> None:
        """Runs the lanes at the same time, each in order; then each of the shared steps on the first lane that is
        free. Returns when all have ended; raises if one has failed.
        """
        left = iter(shared)
        taking = threading.Lock()

        def take() -> Step | None:
            with taking:
                return next(left, None)

        threads = [threading.Thread(target=self.lane, args=(chain(lane, iter(take, None)),)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
        if self.failures or self.ending.is_set():
            raise Failed

    def lane(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if self.ending.is_set():
                return
            self.step(step)

    def step(self, step: Step) -> None:
        log = self.logs / f"{step.name.replace(' ', '-')}.log"
        begun = time.monotonic()
        self.say(f"{self.elapsed_s():5} s  {step.name} begins")
        why, left, cpu_s = self.command(step, step.command, log, step.limit_s)
        if why.startswith("status") and step.repeated and self.failed_by_chance(step, log):
            why = ""
        self.ended(step, log, why, left, begun, cpu_s)

    def command(
        self, step: Step, command: str, log: Path, limit_s: int, env: dict[str, str] | None = None
    ) -> tuple[str, list[str], float]:
        """Runs a command of a step until it ends or must end. Returns why it failed, or nothing; the processes that
        were ended with it; and the seconds of CPU time that it used.
        """
        progress = outputs.progress_file(log)
        progress.unlink(missing_ok=True)
        mark = f"{os.getpid()}-{step.name}"
        begun = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env | step.env | (env or {}) | {processes.MARK: mark, "SHEAF_TEST_PROGRESS": str(progress)},
                start_new_session=True,
            )
        processes.OWN_CHILDREN.add(process.pid)
        why, cpu_s = "", None
        while (cpu_s := reaped(process, os.WNOHANG)) is None:
            if self.ending.wait(0.2):
                why = "ended, because another step has failed or the run was interrupted"
            elif time.monotonic() - begun > limit_s:
                why = f"not done after its limit of {limit_s} s"
            elif self.elapsed_s() > self.limit_s:
                why = f"the run is at its limit of {self.limit_s} s"
            if why:
                break
        # A hanging test is asked for its stack before it is ended: Python prints all of them.
        left = processes.end(mark)
        if cpu_s is None:
            cpu_s = reaped(process, 0)
        processes.OWN_CHILDREN.discard(process.pid)
        return why or ("" if process.returncode == 0 else f"status {process.returncode}"), left, cpu_s

    def failed_by_chance(self, step: Step, log: Path) -> bool:
        """Repeats the failed tests alone. Returns whether each passed every time; they are unsteady then."""
        output = outputs.read(log)
        repeats = dict(output.failed)
        with self.lock:
            too_many = len(self.unsteady) + len(repeats) > UNSTEADY_MAX
        if not repeats or too_many or output.crashed or self.ending.is_set():
            return False
        for test, repeat in repeats.items():
            for number in range(1, REPEATS + 1):
                self.say(f"{self.elapsed_s():5} s  {test} failed: repeat {number} of {REPEATS}")
                repeated = log.with_suffix(f".repeat-{number}.log")
                why, _, _ = self.command(step, repeat, repeated, REPEAT_LIMIT_S, WITHOUT_ORACLES)
                # A command that selects no test succeeds, too.
                if why or outputs.read(repeated).passed == 0:
                    return False
        with self.lock:
            self.unsteady += [(test, log) for test in repeats]
            self.passed += len(repeats)
        return True

    def ended(self, step: Step, log: Path, why: str, left: list[str], begun: float, cpu_s: float) -> None:
        output = outputs.read(log)
        took_s = int(time.monotonic() - begun)
        with self.lock:
            self.passed += output.passed
            self.times += output.times
        if not why:
            rest = f"  {output.skipped}" if output.skipped else ""
            passed = f"ok {output.passed:5} tests {took_s:5} s {cpu_s:5.0f} CPU s"
            self.say(f"{self.elapsed_s():5} s  {step.name:28} {passed}{rest}")
            return
        if self.ending.is_set():
            self.say(f"{self.elapsed_s():5} s  {step.name:28} ended after {took_s} s")
            return
        self.ending.set()
        with self.lock:
            self.failures.append((step, why, log))
            print(f"{self.elapsed_s():5} s  {step.name:28} FAILED after {took_s} s: {why}", flush=True)
            if left and why.startswith(("not done", "the run")):
                print("processes that were still running (number, parent, state, age, command):")
                print("\n".join(left[:40]))

    def report(self) -> int:
        """Prints the end of the run. Returns the exit status."""
        for log in dict.fromkeys(log for _, log in self.unsteady):
            print(f"\nthe last lines of {log}, with unsteady tests:")
            print("\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:]))
        for step, why, log in self.failures:
            lines = log.read_text(errors="replace").splitlines()
            print(f"\nthe last lines of {log}:")
            print("\n".join(lines[-TAIL_LINES:]))
            output = outputs.read(log)
            print(f"\n{step.name}: {why}")
            for test in output.unfinished[:SLOWEST_TESTS]:
                print(f"  had begun and not ended: {test}")
            for test, repeat in output.failed[:SLOWEST_TESTS]:
                print(f"  failed: {test}\n    alone: {repeat}")
            if output.failed and output.seeds:
                print(f"  seeds: {', '.join(output.seeds[-3:])}")
            print(f"  whole output: {log}")
        if self.times:
            print("the slowest tests:")
            for seconds, test in sorted(self.times, reverse=True)[:SLOWEST_TESTS]:
                print(f"  {seconds:7.1f} s  {test}")
        failed = sum(max(1, len(outputs.read(log).failed)) for _, _, log in self.failures)
        for test, log in self.unsteady:
            print(f"UNSTEADY, to be mended: {test} failed once and passed {REPEATS} times alone ({log})")
        print(f"all steps in {self.elapsed_s()} s")
        print(f"{self.passed} passed, {failed} failed", flush=True)
        return 1 if self.failures or self.ending.is_set() else 0


def warn_if_small(directory: Path, gib_min: int) -> None:
    """Says so if the disk has little room left."""
    stat = os.statvfs(directory)
    free_gib = stat.f_bavail * stat.f_frsize >> 30
    if free_gib < gib_min:
        print(f"warning: only {free_gib} GiB of disk are free, {gib_min} are better", file=sys.stderr)
