"""Clients of a group that record what they do. Each is a thread on the line of the clients.

Values are unique, so each reply tells which operation it has seen. Reads count as reads of the leader only if
the same connection proves that its server leads: ROLE in the same pipeline, or an accepted write over HTTP. All
other reads are recorded as weak.
"""

import contextlib
import itertools
import queue
import random
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from harness import resp
from harness.history import History, now
from harness.network import Namespace
from harness.server import Server
from harness.transports import Http, Raw, Refused, Stock, Unknown
from harness.waiting import PATIENCE_S, wait_until

HOUR_MS = 3_600_000
LEASE_MS = 800
# Histories of single keys stay short enough to be searched quickly.
OPERATIONS_PER_KEY = 600
THINK_S_MAX = 0.05
OPEN_READ_PERIOD_S = 0.04
OPEN_READS_OUTSTANDING_MAX = 200
# The maximum number of attempts of each last read: an attempt takes a moment if no server leads.
LAST_READ_TRIES = 1000
DATABASE = "notes"


class Shared:
    """What the clients of one history share."""

    def __init__(self, servers: list[Server], history: History, line: Namespace | None, name: str):
        self.servers, self.history, self.line, self.name = servers, history, line, name
        self.stops = threading.Event()
        self.round = 0
        self.failures: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self._count: Counter[str] = Counter()
        self._serials = itertools.count(1)
        self._lock = threading.Lock()

    def key(self, kind: str, which: str = "a") -> str:
        """The key that is in use now."""
        with self._lock:
            self._count[kind] += 1
        return self.same_key(kind, which)

    def same_key(self, kind: str, which: str = "a") -> str:
        """As `key`, but does not count as an operation on the key."""
        with self._lock:
            key = f"{kind}:{self.name}:{self._count[kind] // OPERATIONS_PER_KEY}:{which}"
            self.keys.setdefault(kind, set()).add(key)
            return key

    def value(self) -> str:
        """A value that nobody has used."""
        return f"v{next(self._serials)}"

    def enter(self) -> None:
        """Puts the connections of this thread on the line of the clients."""
        if self.line is not None:
            self.line.enter()


class Client:
    """Repeats `step` until `shared` stops. The title of a client names its class and its transport."""

    transport: Raw | Stock | Http

    def __init__(self, shared: Shared, number: int, transport: Callable[..., Raw | Stock | Http]):
        self.shared = shared
        self.title = f"{number} ({type(self).__name__}, {transport.__name__})"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.random = random.Random(f"{shared.name} {number}")
        self._new_transport = lambda: transport(shared.servers, self.title + shared.name, shared.stops)

    def start(self) -> None:
        """Starts working."""
        self._thread.start()

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join()

    def _run(self) -> None:
        self.shared.enter()
        self.transport = self._new_transport()
        try:
            while not self.shared.stops.is_set():
                with contextlib.suppress(Refused, Unknown):
                    self.step()
                self.shared.stops.wait(self.random.random() * THINK_S_MAX)
        except Exception:
            self.shared.failures.append(f"client {self.title}: {traceback.format_exc()}")
        finally:
            self.transport.close()

    def step(self) -> None:
        """One operation, or a few."""
        raise NotImplementedError

    def recorded(self, kind: str, op: str, key: str, ask: Callable[[], dict[str, object]], **fields: object) -> None:
        """Asks, and records call and return; `ask` returns the fields of the reply. A read without a reply
        says nothing and is left out.
        """
        common = {"client": self.title, "round": self.shared.round, "kind": kind, "op": op, "key": key}
        call = now()
        try:
            told = ask()
        except Unknown:
            if op != "read" and not _only_reads(fields):
                self.shared.history.record(**common, server=self.transport.server, call=call, **fields)
            raise
        told = {"return": now()} | told
        self.shared.history.record(**common, server=self.transport.server, call=call, **(fields | told))


def _only_reads(fields: dict[str, object]) -> bool:
    steps = fields.get("steps")
    return isinstance(steps, list) and all("append" not in step for step in steps)


def text(raw: bytes | None) -> str | None:
    """A value as it is recorded."""
    return None if raw is None else raw.decode()


def is_leader(role: object) -> bool:
    """Whether this reply to ROLE is that of a leader."""
    return isinstance(role, list) and role[0] == b"master"


class Registers(Client):
    """Reads, writes, swaps and compares single keys."""

    def step(self) -> None:
        key = self.shared.key("register", self.random.choice("ab"))
        steps = {self.read: 8, self._write: 4, self._swap: 3, self._create: 1, self._once: 2}
        if key.endswith(":b"):
            # Only the keys `:b` are deleted: with deletions, many reads that wait at the same time are hard to judge.
            steps[self._delete] = 2
        if isinstance(self.transport, Raw):
            steps[self._compare] = 4
        [chosen] = self.random.choices(list(steps), list(steps.values()))
        chosen(key)

    def read(self, key: str) -> None:
        """GET at a leader."""

        def ask() -> dict[str, object]:
            role, value = self.transport.ask(("ROLE",), ("GET", key))
            return {"out": text(value), "weak": not is_leader(role)}

        self.recorded("register", "read", key, ask)

    def _write(self, key: str) -> None:
        value = self.shared.value()
        self.recorded("register", "write", key, lambda: self._told(("SET", key, value)), value=value)

    def _delete(self, key: str) -> None:
        self.recorded("register", "write", key, lambda: self._told(("DEL", key)), value=None)

    def _told(self, words: tuple) -> dict[str, object]:
        self.transport.ask(words)
        return {}

    def _swap(self, key: str) -> None:
        value = self.shared.value()

        def ask() -> dict[str, object]:
            [old] = self.transport.ask(("SET", key, value, "GET"))
            return {"out": text(old)}

        self.recorded("register", "swap", key, ask, value=value)

    def _create(self, key: str) -> None:
        value = self.shared.value()

        def ask() -> dict[str, object]:
            [done] = self.transport.ask(("SET", key, value, "NX"))
            return {"ok": done is not None}

        self.recorded("register", "cas", key, ask, value=value)

    def _once(self, key: str) -> None:
        """Sent until it is answered; all attempts are one operation."""
        value, name = self.shared.value(), f"once:{self.shared.name}:{next(ONCE)}"

        def ask() -> dict[str, object]:
            [old] = insist(self, ("IDEMP", name, HOUR_MS, "SET", key, value, "GET"))
            return {"out": text(old)}

        self.recorded("register", "swap", key, ask, value=value)

    def _compare(self, key: str) -> None:
        """WATCH and EXEC. If the key has changed, EXEC has no effect, and nothing is recorded."""
        _, old = self.transport.ask(("WATCH", key), ("GET", key))
        value = self.shared.value()

        def ask() -> dict[str, object]:
            *_, done = self.transport.ask(("MULTI",), ("SET", key, value), ("EXEC",))
            if done is None:
                raise Refused
            return {"ok": True}

        self.recorded("register", "cas", key, ask, value=value, **{"from": text(old)})


ONCE = itertools.count()


def insist(client: Client, words: tuple) -> list:
    """Sends a command until it is answered. Raises Unknown at the end of the history if it was ever sent
    without an answer, else Refused.
    """
    unknown = False
    while not client.shared.stops.is_set():
        try:
            return client.transport.ask(words)
        except Unknown:
            unknown = True
        except Refused:
            pass
        client.shared.stops.wait(client.random.random() * THINK_S_MAX)
    raise Unknown if unknown else Refused


class Lists(Client):
    """Appends to lists and reads them; transactions use two at once."""

    def step(self) -> None:
        keys = [self.shared.key("list", which) for which in self.random.choice(("a", "b", "ab"))]
        if self.random.random() < 0.6:
            self._append(keys)
        else:
            self.read(keys)

    def _append(self, keys: list[str]) -> None:
        steps = [{"key": key, "append": self.shared.value()} for key in keys]

        def ask() -> dict[str, object]:
            replies = self._transaction([("RPUSH", step["key"], step["append"]) for step in steps])
            return {"steps": [step | {"length": reply} for step, reply in zip(steps, replies, strict=True)]}

        self.recorded("list", "steps", keys[0], ask, steps=steps)

    def read(self, keys: list[str]) -> None:
        """All elements, of all lists at once."""

        def ask() -> dict[str, object]:
            role, *replies = self._transaction([("ROLE",), *(("LRANGE", key, 0, -1) for key in keys)])
            read = [[text(one) for one in reply] for reply in replies]
            steps = [{"key": key, "read": elements} for key, elements in zip(keys, read, strict=True)]
            return {"weak": not is_leader(role), "steps": steps}

        self.recorded("list", "steps", keys[0], ask, steps=[])

    def _transaction(self, commands: list[tuple]) -> list:
        if len(commands) == 1:
            return self.transport.ask(*commands)
        *_, replies = self.transport.ask(("MULTI",), *commands, ("EXEC",))
        assert not any(isinstance(reply, Exception | resp.ErrorReply) for reply in replies), replies
        return replies


class Counters(Client):
    """Increments that are sent until they are answered, and reads."""

    def step(self) -> None:
        key = self.shared.key("counter")
        if self.random.random() < 0.7:
            name = f"once:{self.shared.name}:{next(ONCE)}"
            self.recorded("counter", "increment", key, lambda: self._number(insist(self, self._words(name, key))))
        else:
            self.read(key)

    def read(self, key: str) -> None:
        """GET at a leader."""
        self.recorded("counter", "read", key, lambda: self._count(key))

    def _words(self, name: str, key: str) -> tuple:
        return ("IDEMP", name, HOUR_MS, "INCR", key)

    def _number(self, replies: list) -> dict[str, object]:
        return {"number": replies[-1]}

    def _count(self, key: str) -> dict[str, object]:
        role, value = self.transport.ask(("ROLE",), ("GET", key))
        return {"number": int(value or 0), "weak": not is_leader(role)}


class Leases(Client):
    """Takes a lease again and again, keeps it for a moment, and leaves in one of several ways."""

    def step(self) -> None:
        key, owner = self.shared.key("lease"), self.shared.value()

        def ask() -> dict[str, object]:
            [token] = self.transport.ask(("LEASE", key, LEASE_MS, owner))
            if token is None:
                raise Refused
            return {"number": token}

        self.recorded("lease", "grant", key, ask)
        if self.random.random() < 0.4:
            self.recorded("lease", "grant", key, ask)
        if self.random.random() < 0.8:
            self.transport.ask(("UNLEASE", key, owner))
        else:
            self.transport.close()


class Documents(Client):
    """Edits documents with the revision that it has read, over HTTP. A revision stands for its content."""

    def step(self) -> None:
        key = self.shared.key("document", self.random.choice("ab")).replace(":", "-")
        self.shared.keys["document"].add(key)
        read: dict[str, str | None] = {}

        def ask_read() -> dict[str, object]:
            status, document = self.transport.ask("GET", f"/{DATABASE}/{key}")
            assert status in (200, 404), (status, document)
            if status == 404 and document["reason"] != "missing":
                raise Refused(document["reason"])
            read.update(value=document.get("v"), rev=document.get("_rev"))
            return {"out": read["value"], "weak": not self.transport.leads}

        self.recorded("document", "read", key, ask_read)
        if self.random.random() < 0.3:
            return
        value = self.shared.value()
        body = {"v": value} | ({"_rev": read["rev"]} if read["rev"] else {})

        def ask_write() -> dict[str, object]:
            status, told = self.transport.ask("PUT", f"/{DATABASE}/{key}", body)
            assert status in (201, 409), (status, told)
            return {"ok": status == 201}

        self.recorded("document", "cas", key, ask_write, value=value, **{"from": read["value"]})


class OpenReader:
    """Reads at one server at a fixed rate, whether or not earlier reads were answered. So when a leader returns
    from a pause or a partition, requests wait that were sent after the others had elected another leader.
    """

    def __init__(self, shared: Shared, number: int):
        self.shared, self.number = shared, number
        self.threads = [threading.Thread(target=self._guarded, daemon=True)]

    def start(self) -> None:
        """Starts reading."""
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        """Waits for its end."""
        for thread in self.threads:
            thread.join()

    def _guarded(self) -> None:
        self.shared.enter()
        try:
            while not self.shared.stops.is_set():
                with contextlib.suppress(OSError, resp.Closed, Refused):
                    self._read()
                self.shared.stops.wait(OPEN_READ_PERIOD_S)
        except Exception:
            self.shared.failures.append(f"open reader {self.number}: {traceback.format_exc()}")

    def _read(self) -> None:
        server = self.shared.servers[self.number]
        sent: queue.SimpleQueue = queue.SimpleQueue()
        with resp.Connection(server.port, server.host) as connection:
            receiver = threading.Thread(target=self._receive, args=(connection, sent), daemon=True)
            receiver.start()
            try:
                while (
                    not self.shared.stops.is_set()
                    and receiver.is_alive()
                    and sent.qsize() < OPEN_READS_OUTSTANDING_MAX
                ):
                    register, one_list = self.shared.same_key("register"), self.shared.same_key("list")
                    sent.put((now(), self.shared.round, register, one_list))
                    reads = resp.encode("GET", register) + resp.encode("LRANGE", one_list, 0, -1)
                    connection.send(resp.encode("ROLE") + reads)
                    self.shared.stops.wait(OPEN_READ_PERIOD_S)
                sent.put(None)
                receiver.join()
            finally:
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def _receive(self, connection: resp.Connection, sent: queue.SimpleQueue) -> None:
        title = f"open reader {self.number + 1}"
        try:
            with contextlib.suppress(OSError, resp.Closed):
                while asked := sent.get():
                    call, round_, register, one_list = asked
                    role, value, elements = connection.read(), connection.read(), connection.read()
                    fields = {"client": title, "server": str(self.number + 1), "round": round_, "call": call}
                    fields |= {"return": now(), "weak": not is_leader(role)}
                    if not isinstance(value, resp.ErrorReply):
                        self.shared.history.record(kind="register", op="read", key=register, out=text(value), **fields)
                    if not isinstance(elements, resp.ErrorReply):
                        steps = [{"key": one_list, "read": [text(one) for one in elements]}]
                        self.shared.history.record(kind="list", op="steps", key=one_list, steps=steps, **fields)
        except Exception:
            self.shared.failures.append(f"{title}: {traceback.format_exc()}")
        finally:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)


class Probe(threading.Thread):
    """A stock client that writes as fast as it is answered; it knows when writes were acknowledged."""

    def __init__(self, shared: Shared, timeout_s: float = 0.3):
        super().__init__(daemon=True)
        self.shared, self.timeout_s = shared, timeout_s
        self.acknowledged_at = [time.monotonic()]

    def run(self) -> None:
        self.shared.enter()
        client = Stock(self.shared.servers, "probe", self.shared.stops, self.timeout_s)
        while not self.shared.stops.is_set():
            with contextlib.suppress(Refused, Unknown):
                client.ask(("SET", "probe", len(self.acknowledged_at)))
                self.acknowledged_at.append(time.monotonic())
            self.shared.stops.wait(0.005)
        client.close()

    def gap_s(self, since: float) -> float:
        """The longest time without an acknowledgement that ended after this moment."""
        times = self.acknowledged_at[:]
        gaps = [later - max(earlier, since) for earlier, later in itertools.pairwise(times) if later > since]
        return max(gaps, default=0.0)


class Load:
    """One client or more of each kind, and the probe, within the block. At its end everything is read once more
    at the leader, so that a lost write shows, and the history is complete.
    """

    def __init__(self, servers: list[Server], line: Namespace | None, path: Path, name: str):
        self.history = History(path)
        self.shared = Shared(servers, self.history, line, name)
        self.probe = Probe(self.shared)
        self._clients: list[Client | OpenReader | Probe] = [
            kind(self.shared, number + 1, transport) for number, (kind, transport) in enumerate(KINDS)
        ]
        self._clients += [OpenReader(self.shared, number) for number in range(len(servers))]
        self._clients.append(self.probe)

    def __enter__(self) -> Self:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shared.stops.set()
        for client in self._clients:
            client.join()
        if kind is None:
            read_all(self.shared)
        self.history.close()
        if kind is None:
            self.check_clients()

    def check_clients(self) -> None:
        """Fails if a client got a reply that it does not understand."""
        assert not self.shared.failures, "\n".join(self.shared.failures)

    def wait_acknowledged(self, more: int) -> None:
        """Waits until the probe has written more."""
        goal = len(self.probe.acknowledged_at) + more
        wait_until("writes to go on", lambda: len(self.probe.acknowledged_at) >= goal, 2 * PATIENCE_S)


KINDS: list[tuple[type[Client], type]] = [
    *(((Registers, Raw),) * 2),
    (Registers, Stock),
    *(((Lists, Raw),) * 2),
    (Lists, Stock),
    (Counters, Raw),
    (Counters, Stock),
    *(((Leases, Raw),) * 2),
    *(((Documents, Http),) * 2),
]


def read_all(shared: Shared) -> None:
    """Reads every key at the leader."""

    def read() -> None:
        shared.enter()
        transport = Raw(shared.servers, "last", threading.Event())
        registers, lists, counters = Registers(shared, 0, Raw), Lists(shared, 0, Raw), Counters(shared, 0, Raw)
        registers.transport = lists.transport = counters.transport = transport
        reads = [(registers.read, key) for key in shared.keys.get("register", ())]
        reads += [(lambda key: lists.read([key]), key) for key in shared.keys.get("list", ())]
        reads += [(counters.read, key) for key in shared.keys.get("counter", ())]
        for ask, key in reads:
            for _ in range(LAST_READ_TRIES):
                with contextlib.suppress(Refused, Unknown):
                    ask(key)
                    break
            else:
                shared.failures.append(f"{key} cannot be read at the end")
        transport.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join()
