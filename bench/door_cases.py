"""The cases of users and of TLS, and their targets: one load by users with different rights, and over TLS."""

from dataclasses import dataclass

from driver import Load
from figures import CLIENT_SHARE, CPU, LONGEST_MS, OPS_S, P50_MS, P99_MS, Metric, Target, at_most
from servers import Persistence

HANDSHAKES_S = Metric("handshakes_s", "handshakes/s", "{:,.0f}")
HANDSHAKE_CPU_US = Metric("handshake_cpu_us", "CPU us each", "{:,.0f}")

CONTENDERS = ("sheaf", "redis")


@dataclass(frozen=True)
class Door:
    """How clients come in: over TLS or not, and as a user with so many patterns of keys; 0: the default user."""

    words: str
    patterns: int = 0
    is_tls: bool = False

    def of(self, kind: str) -> str:
        """The name of the operation that sends commands of this kind."""
        return f"{kind} {self.words}".strip()


PLAIN = Door("")
ONE_PATTERN, MANY_PATTERNS = Door("1 pattern", patterns=1), Door("50 patterns", patterns=50)
TLS = Door("TLS", is_tls=True)
KINDS = ("SET", "GET")


@dataclass(frozen=True)
class DoorCase:
    """redis-benchmark through different doors of the same servers, in turns."""

    name: str
    title: str
    doors: tuple[Door, ...]
    load: Load
    ops: int
    targets: tuple[Target, ...]
    contenders = CONTENDERS
    persistence = Persistence.OFF
    metrics = (OPS_S, P50_MS, P99_MS, CPU, CLIENT_SHARE)
    ratios = (OPS_S, CPU)

    @property
    def operations(self) -> tuple[str, ...]:
        """Each kind of command through each door."""
        return tuple(door.of(kind) for kind in KINDS for door in self.doors)

    def sent(self, op: str) -> tuple[str, Door]:
        """The kind of the commands of this operation, and their door."""
        return next((kind, door) for kind in KINDS for door in self.doors if door.of(kind) == op)


ALONE, BESIDE = "GET", "GET beside handshakes"


@dataclass(frozen=True)
class HandshakeCase:
    """One client without TLS, alone and while others connect over TLS, `rate` times a second."""

    name: str
    title: str
    rate: int
    requests: int
    targets: tuple[Target, ...]
    contenders = CONTENDERS
    persistence = Persistence.OFF
    operations = (ALONE, BESIDE)
    metrics = (P50_MS, P99_MS, LONGEST_MS, HANDSHAKES_S, HANDSHAKE_CPU_US)
    ratios = (P99_MS, HANDSHAKE_CPU_US)


def _against_plain(bound: float, door: Door) -> tuple[Target, ...]:
    return tuple(target for kind in KINDS for target in at_most(CPU, bound, PLAIN.of(kind), door.of(kind)))


def _tls(pipeline: int, ops: int, bound: float) -> DoorCase:
    return DoorCase(
        name=f"tls-p{pipeline}",
        title=f"GET and SET, 32 B values, c=50 P={pipeline}, over TLS 1.3 and without, nothing synced",
        doors=(PLAIN, TLS),
        load=Load(connections=50, pipeline=pipeline, value_bytes=32),
        ops=ops,
        targets=_against_plain(bound, TLS) + at_most(CPU, 1.0, "redis", *(TLS.of(kind) for kind in KINDS)),
    )


DOOR_CASES: tuple[DoorCase | HandshakeCase, ...] = (
    DoorCase(
        name="users",
        title="GET and SET, 32 B values, c=50 P=64, by users whose keys match the last one of their patterns",
        doors=(PLAIN, ONE_PATTERN, MANY_PATTERNS),
        load=Load(connections=50, pipeline=64, value_bytes=32),
        ops=4_000_000,
        targets=_against_plain(1.1, MANY_PATTERNS) + _against_plain(1.1, ONE_PATTERN),
    ),
    _tls(64, 2_000_000, 1.6),
    _tls(1, 200_000, 1.3),
    HandshakeCase(
        name="tls-handshakes",
        title="One client without TLS beside 500 new connections a second over TLS",
        rate=500,
        requests=20_000,
        targets=at_most(P99_MS, 2.0, ALONE, BESIDE),
    ),
)
