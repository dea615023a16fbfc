"""The cases and their targets: the measurements, and the required figures. For messages, jobs, replicas and
documents, users and TLS, see message_cases.py, job_cases.py, replica_cases.py, document_cases.py and
door_cases.py.

Operation counts are chosen so that one run of Redis takes about four seconds on two cores; `--quick` divides
them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import endless
import ranges
import stall
from document_cases import DOCUMENT_CASES, DocumentCase
from door_cases import DOOR_CASES, DoorCase, HandshakeCase
from driver import Load
from figures import ALL, CLIENT_SHARE, CPU, LONGEST_MS, OPS_S, P50_MS, P99_MS, Metric, Target, at_least, at_most
from fill import Fill
from job_cases import JOB_CASES
from message_cases import MESSAGE_CASES, MessageCase
from group_cases import GROUP_CASES, GroupCase
from replica_cases import REPLICA_CASES, ReplicaCase
from servers import Persistence

WITH_TARANTOOL = (*ALL, "tarantool")
# How the server ended before the measured start: in order, or by kill -9.
START, START_KILLED = "START", "START killed"
# Sheaf syncing every write alone: the log without merging.
UNMERGED = "sheaf-unmerged"
# An older build, for measurements before and after a change.
BEFORE = "sheaf-before"

WRITES_PER_SYNC = Metric("writes_per_sync", "writes/sync", "{:.1f}")
BYTES_PER_KEY = Metric("bytes_per_key", "bytes/key", "{:.1f}")
RSS_EMPTY = Metric("rss_empty_mb", "RSS empty MB", "{:,.1f}")
RSS_LOADED = Metric("rss_loaded_mb", "RSS loaded MB", "{:,.1f}")
CALL_MS = Metric("call_ms", "longest ms", "{:.2f}")
PING_MS = Metric("ping_ms", "longest PING ms", "{:.2f}")
CALL_CPU_MS = Metric("call_cpu_ms", "CPU ms of one", "{:.2f}")
SERVER_MS = Metric("server_ms", "by its own clock ms", "{:.2f}")
P999_MS = Metric("p999_ms", "p99.9 ms", "{:.3f}")
READY_S = Metric("ready_s", "ready s", "{:.2f}")
READY_MS = Metric("ready_ms", "ready ms", "{:.1f}")
ROWS_S = Metric("rows_s", "rows/s", "{:,.0f}")
CPU_S = Metric("cpu_s", "CPU s", "{:.2f}")
RSS_READY = Metric("rss_mb", "RSS ready MB", "{:,.0f}")
SNAPSHOT_MB = Metric("snapshot_mb", "snapshot MB", "{:,.0f}")
DISK_MB = Metric("disk_mb", "all files MB", "{:,.0f}")
GROWTH_MB = Metric("growth_mb", "RSS growth MB", "{:,.1f}")
SNAPSHOTS = Metric("snapshots", "snapshots", "{:.0f}")
SNAPSHOT_S = Metric("snapshot_s", "s each", "{:.2f}")
READ_S = Metric("read_s", "s per XRANGE", "{:.2f}")


@dataclass(frozen=True)
class LoadCase:
    """redis-benchmark against running servers; per server and operation one measurement per repetition."""

    name: str
    title: str
    persistence: Persistence
    load: Load
    operations: tuple[str, ...]
    ops: int
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ALL
    metrics = (OPS_S, P50_MS, P99_MS, CPU, WRITES_PER_SYNC, CLIENT_SHARE)
    ratios = (OPS_S, CPU)


@dataclass(frozen=True)
class MemoryCase:
    """Resident memory per item (key, member, element), without persistence, measured after loading."""

    name: str
    title: str
    fill: Fill
    keys: int
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ALL
    persistence = Persistence.OFF
    metrics = (BYTES_PER_KEY, RSS_EMPTY, RSS_LOADED)
    ratios = (BYTES_PER_KEY,)


@dataclass(frozen=True)
class StartCase:
    """From exec until commands are answered, with `rows` items in a snapshot or in the log, or no data."""

    name: str
    title: str
    fill: Fill | None
    rows: int
    persistence: Persistence
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = WITH_TARANTOOL
    operations: tuple[str, ...] = (START,)
    metrics = (READY_S, READY_MS, ROWS_S, CPU_S, RSS_READY, SNAPSHOT_MB, DISK_MB)
    ratios = (ROWS_S, CPU_S)

    @property
    def has_snapshot(self) -> bool:
        """Whether the data is in a snapshot; else in the log."""
        return self.fill is not None and self.persistence is Persistence.OFF


@dataclass(frozen=True)
class SnapshotCase:
    """redis-benchmark against a server during continuous snapshots, and against the same one undisturbed.

    `members` are those of a sorted set besides the strings.
    """

    name: str
    title: str
    persistence: Persistence
    load: Load
    op: str
    ops: int
    members: int
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ALL
    metrics = (OPS_S, P50_MS, P99_MS, P999_MS, LONGEST_MS, CLIENT_SHARE, GROWTH_MB, SNAPSHOTS, SNAPSHOT_S)
    ratios = (OPS_S,)

    @property
    def operations(self) -> tuple[str, str]:
        """Undisturbed and during snapshots."""
        return self.op, during(self.op)


@dataclass(frozen=True)
class StallCase:
    """Commands on very large values, one at a time, on one worker: the longest calls and pings."""

    name: str
    title: str
    things: int
    operations: tuple[str, ...]
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ("sheaf", "redis")
    persistence = Persistence.OFF
    metrics = (CALL_MS, PING_MS, CALL_CPU_MS, SERVER_MS)
    ratios = (CALL_CPU_MS,)


@dataclass(frozen=True)
class BesideCase:
    """The waiting times of clients of one of two workers, alone and while the other worker is busy.

    `measure(port, size)` returns the figures of each operation; before, `things` are loaded.
    """

    name: str
    title: str
    measure: Callable[[int, int], dict[str, dict[str, float | None]]]
    size: int
    targets: tuple[Target, ...]
    operations: tuple[str, ...]
    fill: Fill | None = None
    things: int = 0
    contenders: tuple[str, ...] = ("sheaf",)
    metrics: tuple[Metric, ...] = (P50_MS, P99_MS, LONGEST_MS)
    workers = 2
    persistence = Persistence.OFF
    ratios = (P99_MS,)


# fmt: off
Case = (
    LoadCase | MemoryCase | StartCase | SnapshotCase | StallCase | BesideCase
    | MessageCase | ReplicaCase | GroupCase | DocumentCase | DoorCase | HandshakeCase
)
# fmt: on


def during(op: str) -> str:
    """The name of an operation during snapshots."""
    return f"{op} during"


def baseline(case: Case) -> str:
    """The server that ratios refer to."""
    return "redis" if "redis" in case.contenders else case.contenders[-1]


def _volatile(pipeline: int, ops: int, targets: tuple[Target, ...]) -> LoadCase:
    return LoadCase(
        name=f"none-p{pipeline}",
        title=f"GET and SET, 32 B values, 1M random keys, c=50 P={pipeline}, nothing synced",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=pipeline, value_bytes=32),
        operations=("SET", "GET"),
        ops=ops,
        targets=targets,
    )


def _strict(name: str, connections: int, pipeline: int, ops: int, targets: tuple[Target, ...]) -> LoadCase:
    return LoadCase(
        name=name,
        title=f"SET, 1 KB values, c={connections} P={pipeline}, every acknowledged write on disk",
        persistence=Persistence.SYNCED,
        load=Load(connections, pipeline, value_bytes=1024),
        operations=("SET",),
        ops=ops,
        targets=targets,
    )


def _snapshot_load(name: str, synced: str, persistence: Persistence, ops: int) -> SnapshotCase:
    return SnapshotCase(
        name=name,
        title=f"SET, 32 B values, 5M keys, c=50 P=16, {synced}, while snapshots are taken",
        persistence=persistence,
        load=Load(connections=50, pipeline=16, value_bytes=32, keys=5_000_000),
        op="SET",
        ops=ops,
        members=0,
        targets=at_least(OPS_S, 0.85, "SET", during("SET"))
        + at_most(P99_MS, 1.5, "SET", during("SET"))
        + at_most(GROWTH_MB, 64, None, during("SET")),
    )


CASES: tuple[Case, ...] = (
    _volatile(
        64,
        4_000_000,
        at_most(CPU, 0.35, "redis", "SET", "GET") + at_most(CPU, 0.65, "valkey", "SET", "GET"),
    ),
    _volatile(
        1,
        400_000,
        at_most(CPU, 1.0, "redis", "SET", "GET") + at_least(OPS_S, 1.0, "redis", "SET", "GET"),
    ),
    _strict("strict-p16", 50, 16, 400_000, at_least(OPS_S, 3.0, "redis", "SET")),
    _strict("strict-p64", 50, 64, 500_000, at_least(OPS_S, 3.0, "redis", "SET")),
    _strict(
        "strict-c100",
        100,
        1,
        300_000,
        at_least(OPS_S, 1.2, "redis", "SET") + at_most(CPU, 1.0, "redis", "SET"),
    ),
    _strict(
        "strict-c25",
        25,
        1,
        150_000,
        at_least(OPS_S, 1.4, "redis", "SET") + at_most(CPU, 1.0, "redis", "SET"),
    ),
    _strict(
        "strict-c1",
        1,
        1,
        20_000,
        at_most(P50_MS, 0.9, "redis", "SET") + at_most(CPU, 1.0, "redis", "SET"),
    ),
    LoadCase(
        name="merge-off",
        title="SET, 1 KB values, c=25 P=1, merged transactions against every write synced alone",
        persistence=Persistence.SYNCED,
        load=Load(connections=25, pipeline=1, value_bytes=1024),
        operations=("SET",),
        ops=60_000,
        targets=at_least(OPS_S, 4.0, UNMERGED, "SET") + at_least(WRITES_PER_SYNC, 5.0, None, "SET"),
        contenders=("sheaf", UNMERGED),
    ),
    MemoryCase(
        name="memory",
        title="Resident memory per key: keys k:<n>, 32 B values",
        fill=Fill.STRINGS,
        keys=5_000_000,
        targets=at_most(BYTES_PER_KEY, 78.0, None, "LOAD"),
    ),
    LoadCase(
        name="types",
        title="The data types, one key of each, c=50 P=64, nothing synced; random members out of 1M",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=64, value_bytes=3),
        operations=(
            *("LPUSH", "RPUSH", "LRANGE_100", "LPOP", "RPOP", "SADD", "SPOP"),
            *("HSET", "ZADD", "ZPOPMIN", "INCR", "MSET"),
        ),
        ops=1_000_000,
        targets=at_most(
            CPU,
            0.5,
            "redis",
            *("LPUSH", "RPUSH", "LPOP", "RPOP", "SADD", "SPOP", "HSET", "ZADD", "ZPOPMIN", "INCR", "MSET"),
        )
        + at_most(CPU, 1.0, "redis", "LRANGE_100"),
    ),
    LoadCase(
        name="types-many",
        title="The data types, 1M small keys of each, c=50 P=64, nothing synced",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=64, value_bytes=3),
        operations=("LPUSH many", "LPOP many", "SADD many", "HSET many", "HGET many", "ZADD many"),
        ops=1_000_000,
        targets=at_most(
            CPU, 0.5, "redis", *("LPUSH many", "LPOP many", "SADD many", "HSET many", "HGET many", "ZADD many")
        ),
    ),
    *(
        MemoryCase(
            name=f"memory-{fill.value}",
            title=f"Resident memory of {fill.words}",
            fill=fill,
            keys=fill.full_count,
            targets=at_most(BYTES_PER_KEY, 1.0, "valkey", "LOAD"),
        )
        for fill in (Fill.HASHES, Fill.ZSETS, Fill.LARGE_ZSET, Fill.LARGE_LIST, Fill.STREAM, Fill.STREAM_SHAPES)
    ),
    LoadCase(
        name="scripts",
        title="EVALSHA of a script of INCR, PEXPIRE and PTTL, 1M random keys, c=50 P=16, nothing synced",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=16, value_bytes=3),
        operations=("EVALSHA",),
        ops=1_000_000,
        targets=at_most(CPU, 0.7, "redis", "EVALSHA"),
    ),
    LoadCase(
        name="streams",
        title="XADD of 5 fields of 12 digits to one stream, c=50 P=16, nothing synced",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=16, value_bytes=3),
        operations=("XADD",),
        ops=1_000_000,
        targets=at_most(CPU, 0.5, "redis", "XADD"),
    ),
    StallCase(
        name="stall",
        title="Commands on a sorted set, a list, a set and a hash of 10M each, one worker; longest of all calls",
        things=10_000_000,
        operations=stall.OPERATIONS,
        targets=tuple(
            target
            for metric in (CALL_MS, PING_MS, CALL_CPU_MS)
            for target in at_most(metric, 5.0, None, *stall.COMMANDS)
        ),
    ),
    StartCase(
        name="start-hashes",
        title="Start on a snapshot of 10M hashes of 10 small integer fields",
        fill=Fill.HASHES,
        rows=10_000_000,
        persistence=Persistence.OFF,
        targets=at_least(ROWS_S, 5_000_000, None, START)
        + at_least(ROWS_S, 4.0, "tarantool", START)
        + at_least(ROWS_S, 5.0, "redis", START)
        + at_most(RSS_READY, 1000, None, START),
    ),
    StartCase(
        name="start-strings",
        title="Start on a snapshot of 10M strings of 32 B",
        fill=Fill.HEX_STRINGS,
        rows=10_000_000,
        persistence=Persistence.OFF,
        targets=at_least(ROWS_S, 6_000_000, None, START),
        contenders=ALL,
    ),
    StartCase(
        name="start-log",
        title="Start on a log of 10M SETs of 32 B, one record each, without a snapshot",
        fill=Fill.HEX_STRINGS,
        rows=10_000_000,
        persistence=Persistence.LOGGED,
        targets=at_least(ROWS_S, 2_500_000, None, START),
    ),
    StartCase(
        name="start-empty",
        title="Start of a server without data, after it was stopped and after kill -9",
        fill=None,
        rows=0,
        persistence=Persistence.LOGGED,
        targets=at_most(READY_MS, 50, None, START, START_KILLED),
        operations=(START, START_KILLED),
    ),
    _snapshot_load("snapshot-load", "nothing synced", Persistence.OFF, 6_000_000),
    _snapshot_load("snapshot-load-strict", "every acknowledged write on disk", Persistence.SYNCED, 3_000_000),
    SnapshotCase(
        name="snapshot-reads",
        title="GET of 1M keys, c=50 P=1, while snapshots with a sorted set of 5M members are taken",
        persistence=Persistence.OFF,
        load=Load(connections=50, pipeline=1, value_bytes=32),
        op="GET",
        ops=400_000,
        members=5_000_000,
        targets=at_most(P999_MS, 5.0, None, during("GET")),
    ),
    BesideCase(
        name="script-endless",
        title="GET by clients of the other one of two workers, beside a script that does not end",
        measure=endless.measure,
        size=endless.REQUESTS,
        targets=at_most(P99_MS, 2.0, endless.UNDISTURBED, endless.DISTURBED),
        operations=(endless.UNDISTURBED, endless.DISTURBED),
    ),
    BesideCase(
        name="stream-range",
        title="XADD to a stream of 1M entries that a client of the other one of two workers reads again and again",
        measure=ranges.measure,
        size=ranges.READS,
        targets=at_most(P99_MS, 0.1, "redis", ranges.BESIDE),
        operations=(ranges.ALONE, ranges.BESIDE),
        fill=Fill.STREAM,
        things=1_000_000,
        contenders=("sheaf", "redis"),
        metrics=(P50_MS, P99_MS, LONGEST_MS, READ_S),
    ),
    *JOB_CASES,
    *MESSAGE_CASES,
    *REPLICA_CASES,
    *GROUP_CASES,
    *DOOR_CASES,
    *DOCUMENT_CASES,
)
