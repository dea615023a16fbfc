"""Server processes under test.

SHEAF_TEST_SERVER=redis runs Debian's redis-server instead of Sheaf, to prove that a test's expectations agree
with Redis. SHEAF_BINARY names another binary than target/debug/sheaf.

Invariants: a port is free when it is chosen, and a server that answers on it is ours (its process id is
checked); every server ends with the test, and with the test run itself, however that ends.
"""

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import procfs, resp
from harness.network import Namespace
from harness.waiting import PATIENCE_S, POLL_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
UNDER_TEST = os.environ.get("SHEAF_TEST_SERVER", "sheaf")
# The flags of a start whose ports no client needs.
ANY_PORTS = ("--port", "0", "--http-port", "0")
BIND_TRIES = 5
# Several test processes may together have claimed nearly half of all ports.
PORT_TRIES = 200
# Replaces itself by the command that follows. Not `preexec_fn`: with it, Python copies the tables of all memory of the
# test process.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def sheaf_binary() -> str:
    """The binary under test."""
    binary = os.environ.get("SHEAF_BINARY", str(ROOT / "target/debug/sheaf"))
    assert shutil.which(binary), f"{binary} not found: cargo build --release, or set SHEAF_BINARY"
    return binary


# The claims of the ports that were handed out last, each a socket that no other test process can bind meanwhile. More
# than all the servers of a test need.
_claims: deque[socket.socket] = deque(maxlen=1000)


def _claimed(port: int) -> bool:
    """Whether the port is now ours, among all test processes of this machine, though no server may listen yet."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0port {port} of a test of Sheaf")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def free_port() -> int:
    """A port on which no process listens now, outside the range from which the system assigns ports.

    In that range, a connection of another test may take the port before our server does, and a client that
    connects while no process listens may connect to itself, which blocks the port. No other test gets the port, so a
    server may be killed and start again on it.
    """
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    candidates = range(int(lowest) // 2, int(lowest))
    for port in random.SystemRandom().sample(candidates, PORT_TRIES):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            if _claimed(port):
                return port
    raise AssertionError(f"no free port in {candidates} in {PORT_TRIES} tries")


def environment() -> dict[str, str]:
    """The environment of the test, without the variables that are settings of the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")}


def run_sheaf(*arguments: str, extra_environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `sheaf` to its end: an offline command, or a start that is expected to fail."""
    return subprocess.run(
        [sheaf_binary(), *arguments],
        env=environment() | (extra_environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


@dataclass
class Options:
    """The options of a server, in Sheaf's terms."""

    durability: str = "strict"
    bind: str = "127.0.0.1"
    # A fixed port, for clients that must find the server again after a restart; a free one by default. Beside a
    # port for TLS, 0 means no plain port.
    port: int | None = None
    http_port: int | None = None
    maxclients: int | None = None
    requirepass: str | None = None
    # None: the server's default.
    workers: int | None = 2
    # Small, because every start creates two segments and fills them with zeros.
    log_segment_bytes: str = "16mb"
    extra: tuple[str, ...] = ()
    # Another version than the one under test.
    binary: str | None = None
    # Runs the server: the prefix of its command line.
    wrapper: tuple[str, ...] = ()
    extra_environment: dict[str, str] = field(default_factory=dict)
    # The network namespace of the server and its clients, if not that of the test.
    namespace: Namespace | None = None

    def command_line(self, directory: Path, port: int, http_port: int) -> list[str]:
        """The whole command line, for the server under test."""
        limits, wrapper = [], self.wrapper
        if self.namespace is not None:
            wrapper = (*self.namespace.wrapper(), *wrapper)
        if self.maxclients is not None:
            limits += ["--maxclients", str(self.maxclients)]
        if self.requirepass is not None:
            limits += ["--requirepass", self.requirepass]
        place = ["--dir", str(directory), "--bind", self.bind, "--port", str(port)]
        if UNDER_TEST == "redis":
            fsync = {"strict": "always", "commit": "always", "interval": "everysec", "none": "no"}[self.durability]
            log = ["--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--enable-debug-command", "local"]
            return [*wrapper, "redis-server", *place, *log, *limits]
        log = ["--http-port", str(http_port), "--durability", self.durability]
        log += [] if self.workers is None else ["--workers", str(self.workers)]
        log += ["--log-segment-bytes", self.log_segment_bytes, "--enable-debug-command", "local"]
        return [*wrapper, self.binary or sheaf_binary(), "serve", *place, *log, *limits, *self.extra]


class Server:
    """One process on one directory; it may be started again on the same directory after it has ended. Its log is
    the file `log_path`, by default beside the directory.
    """

    def __init__(self, directory: Path, options: Options | None = None, log_path: Path | None = None):
        self.directory = directory
        self.options = options or Options()
        self.port = 0
        self.http_port = 0
        self._log_path = log_path or directory.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    # -- starting --------------------------------------------------------------------------------------------

    def start(self) -> "Server":
        """Starts the process and waits until it answers."""
        for _ in range(BIND_TRIES):
            self.spawn()
            if self._await_answer():
                return self
        raise AssertionError(f"no free port in {BIND_TRIES} tries")

    def spawn(self) -> None:
        """Starts the process without waiting for readiness."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port() if self.options.port is None else self.options.port
        self.http_port = free_port() if self.options.http_port is None else self.options.http_port
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_PARENT, *self.options.command_line(self.directory, self.port, self.http_port)],
                env=environment() | self.options.extra_environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_answer(self) -> bool:
        """Returns True when the server is ready, False when another process has taken its port."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status = self.process.poll()
            if status is not None:
                if "ddress already in use" in self.log()[-2000:]:
                    return False
                raise AssertionError(f"the server ended with status {status} instead of starting")
            if self.answers():
                return True
            time.sleep(POLL_S)
        raise AssertionError(f"the server did not answer within {PATIENCE_S:.0f} s")

    def answers(self) -> bool:
        """Whether our process answers PING on its port, that is, has finished recovery."""
        try:
            with self._connection() as connection:
                if self.options.requirepass is not None:
                    connection.call("AUTH", self.options.requirepass)
                if connection.call("PING") != b"PONG":
                    return False
                info = connection.call("INFO", "server")
        except (OSError, resp.Closed, resp.NotAReply):
            return False
        return isinstance(info, bytes) and f"process_id:{self.pid}\r\n".encode() in info

    # -- while it runs ---------------------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, running or ended."""
        assert self._process is not None, "the server was never started"
        return self._process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def host(self) -> str:
        """Its address on its line, or the loopback one."""
        return self.options.namespace.address if self.options.namespace else "127.0.0.1"

    def connect(self) -> resp.Connection:
        """A new raw connection, authenticated if necessary."""
        connection = self._connection()
        if self.options.requirepass is not None:
            connection.call("AUTH", self.options.requirepass)
        return connection

    def _connection(self) -> resp.Connection:
        with self.options.namespace.entered() if self.options.namespace else contextlib.nullcontext():
            return resp.Connection(self.port)

    def log(self) -> str:
        """Its standard output and standard error, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def wait_for_log(self, text: str) -> None:
        """Waits until the log contains `text`."""
        wait_until(f"{text!r} in the server's log", lambda: text in self.log())

    def wait_until_idle(self) -> None:
        """Waits until the server is idle: it uses no CPU for a while."""
        seen: list[int] = []

        def quiet() -> bool:
            seen.append(procfs.cpu_ticks(self.pid))
            return len(seen) > 20 and seen[-20] == seen[-1]

        wait_until("the server to be idle", quiet)

    # -- ending ----------------------------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspends the process within the block: no thread of it runs, and input waits for it."""
        self.signal(signal.SIGSTOP)
        try:
            # the signal was sent, but may not have taken effect yet
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            yield
        finally:
            self.signal(signal.SIGCONT)

    def wait_exit(self) -> int:
        """Waits for the process to end; its status, negative for a signal."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """kill -9; returns when the process is gone. Whatever runs the server, like strace, is killed with it.

        Limited, because pytest-timeout has no timer left when a fixture ends after a timeout.
        """
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM and the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_exit()

    def close(self) -> None:
        """Ends the process by force, if it still runs. A server built to measure coverage is first stopped in order,
        because it writes its counts only then.
        """
        if self._process is not None:
            if "LLVM_PROFILE_FILE" in os.environ and self.is_running():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.stop()
            self.kill()


def die_with_parent() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
