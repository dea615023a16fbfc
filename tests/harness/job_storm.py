"""Jobs of a queue library, with its own producers and workers as processes, while the server and a worker are
killed.

An actor is a process that reports on its standard output, one line each:

    ready          the worker is running, and ends in order when it gets SIGTERM
    unsure N       the producer got no answer for job N, and adds it again
    accepted N     the library has told the producer that job N is in the queue
    ran N          the job's function has run to its end
    completed N    the library has told the worker that job N is done (only where a library reports it)

Invariants: every accepted job runs; a completed job does not run again unless it was added again; no job runs
that was not added. A job runs twice only if its producer, its worker or its server died, or got no answer,
before it was done with the job: each kill accounts for at most as many extra runs as the workers can run jobs
at a time.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.server import Server, die_with_parent
from harness.waiting import PATIENCE_S

# The kills, and the share of all events after which each happens. There are two events per job: it is accepted, and
# it runs.
KILLS = (("server", 0.2), ("server", 0.4), ("worker", 0.6), ("server", 0.8))
ERRORS_SHOWN_CHARS = 4000

Command = list[str]


class Journal:
    """The reports of all actors. Lines arrive on one thread per actor."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.unsure: set[int] = set()
        self.accepted: set[int] = set()
        self.completed: set[int] = set()
        self.runs: Counter[int] = Counter()
        self.failures: list[str] = []

    @property
    def progress(self) -> int:
        """The number of events: jobs accepted, and jobs that ran."""
        return len(self.accepted) + len(self.runs)

    @property
    def repeats(self) -> int:
        """The number of runs beyond one per job."""
        return self.runs.total() - len(self.runs)

    def note(self, line: str) -> None:
        """Records one line of an actor."""
        with self._changed:
            match line.split():
                case "unsure", number:
                    self.unsure.add(int(number))
                case "accepted", number:
                    self.accepted.add(int(number))
                case "ran", number:
                    if int(number) in self.completed - self.unsure:
                        self.failures.append(f"job {number} was completed and ran again")
                    self.runs[int(number)] += 1
                case "completed", number:
                    self.completed.add(int(number))
                case _:
                    self.failures.append(f"an actor said {line!r}")
            self._changed.notify_all()

    def fail(self, why: str) -> None:
        """Ends every wait."""
        with self._changed:
            self.failures.append(why)
            self._changed.notify_all()

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Waits for lines until `condition` holds; fails when no line arrives for a long time."""
        with self._changed:
            while not condition():
                assert not self.failures, "\n".join(self.failures)
                told = self._changed.wait(PATIENCE_S)
                assert told, f"nothing happened for {PATIENCE_S:.0f} s; waited for: {what}; {self}"

    def __str__(self) -> str:
        completed = f", {len(self.completed)} reported as completed" if self.completed else ""
        return f"{len(self.accepted)} accepted, {len(self.runs)} ran{completed}"


class Actor:
    """One process that produces or works."""

    def __init__(self, name: str, command: Command, journal: Journal, errors: Path):
        self.name = name
        self._journal = journal
        self._errors = errors
        self._ending = False
        self._ready = threading.Event()
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                # The process leads a process group with its own child processes, and the whole group is killed.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            # The last line of a killed actor may be incomplete.
            if line == "ready\n":
                self._ready.set()
            elif line.endswith("\n"):
                self._journal.note(line.rstrip())
        status = self._process.wait()
        if status != 0 and not self._ending:
            self._journal.fail(f"{self.name} ended with status {status}:\n{self.errors()}")

    def errors(self) -> str:
        """The end of its standard error."""
        return self._errors.read_text(errors="replace")[-ERRORS_SHOWN_CHARS:]

    def kill(self) -> None:
        """kill -9; returns when all its output has been read."""
        self._ending = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._join()

    def stop(self) -> None:
        """Sends SIGTERM, after which the process ends in the way of its library."""
        assert self._ready.wait(PATIENCE_S), f"{self.name} does not get ready:\n{self.errors()}"
        self._process.terminate()
        self._join()

    def wait(self) -> None:
        """Waits until the process has ended by itself, successfully."""
        self._join()

    def _join(self) -> None:
        self._listener.join(PATIENCE_S)
        assert not self._listener.is_alive(), f"{self.name} does not end:\n{self.errors()}"


@dataclass(frozen=True)
class Library:
    """The command lines and limits of a queue library."""

    # The command of a producer of the jobs from the first number up to, but not including, the last.
    produce: Callable[[range], Command]
    work: Command
    # The maximum number of jobs that one worker has in progress.
    places: int
    # The maximum number of jobs that one producer adds twice when its server is killed.
    sent_again: int = 0


class JobStorm:
    """All jobs of a test, its producers and workers, and the kills."""

    PRODUCERS = 2
    WORKERS = 2

    def __init__(self, server: Server, library: Library, jobs: int, directory: Path):
        self.server = server
        self.journal = Journal()
        self._library = library
        self._jobs = jobs
        self._directory = directory
        self._number = itertools.count(1)
        self._workers: list[Actor] = []
        self._producers: list[Actor] = []

    def __enter__(self) -> "JobStorm":
        return self

    def __exit__(self, *_) -> None:
        with contextlib.ExitStack() as all_of_them:
            for actor in self._workers + self._producers:
                all_of_them.callback(actor.kill)

    def run(self) -> None:
        """Produces all jobs and lets the workers run them, with all kills in between; returns when all are
        accepted.
        """
        self.start_workers()
        for first in range(self.PRODUCERS):
            self.produce(range(first, self._jobs, self.PRODUCERS))
        for victim, share in KILLS:
            wanted = share * 2 * self._jobs
            self.journal.wait_until(f"{share:.0%} of all", lambda wanted=wanted: self.journal.progress >= wanted)
            self._kill_server() if victim == "server" else self._kill_worker()
        for producer in self._producers:
            producer.wait()
        everything = set(range(self._jobs))
        assert self.journal.accepted == everything, f"not accepted: {everything - self.journal.accepted}"

    def wait_for_all(self) -> None:
        """Waits until each job has run."""
        self.journal.wait_until("all jobs to run", lambda: len(self.journal.runs) >= len(self.journal.accepted))

    def produce(self, numbers: range) -> None:
        """Starts a producer of these jobs."""
        self._producers.append(self._actor("producer", self._library.produce(numbers)))

    def start_workers(self) -> None:
        """Starts all workers."""
        self._workers = [self._worker() for _ in range(self.WORKERS)]

    def stop_workers(self) -> None:
        """Ends the workers in the way of their library."""
        for worker in self._workers:
            worker.stop()

    def check(self) -> None:
        """Checks the invariants at the end."""
        assert not self.journal.failures, "\n".join(self.journal.failures)
        assert set(self.journal.runs) == self.journal.accepted
        places = self._library.places * self.WORKERS + self._library.sent_again * self.PRODUCERS
        assert self.journal.repeats <= len(KILLS) * places, f"{self.journal.repeats} repeats: {self.repeated()}"

    def summary(self) -> str:
        """A summary in one line."""
        return f"{self.journal}, {len(self.repeated())} of them more than once; {len(KILLS)} kills"

    def repeated(self) -> dict[int, int]:
        """The jobs that ran more than once, with their numbers of runs."""
        return {job: runs for job, runs in self.journal.runs.items() if runs > 1}

    def _worker(self) -> Actor:
        return self._actor("worker", self._library.work)

    def _actor(self, name: str, command: Command) -> Actor:
        name = f"{name}-{next(self._number)}"
        return Actor(name, command, self.journal, self._directory / f"{name}.log")

    def _kill_server(self) -> None:
        assert self.server.is_running(), "the server ended by itself"
        self.server.kill()
        self.server.start()

    def _kill_worker(self) -> None:
        self._workers.pop(0).kill()
        self._workers.append(self._worker())
