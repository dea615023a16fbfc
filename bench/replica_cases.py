"""The cases of a leader and its replica, and their targets.

Per repetition every server has a fresh leader with all keys of the key space loaded, on which the rows of a
case are measured in order: first without the replica, which joins with the first row that has one.
"""

from dataclasses import dataclass
from enum import Enum

from driver import Load
from figures import ALL, CLIENT_SHARE, P99_MS, Metric, Target, at_least, at_most
from servers import Persistence

# Rows are keys written; CPU time is per row.
ROWS_S = Metric("rows_s", "rows/s", "{:,.0f}")
LEADER_CPU = Metric("leader_cpu_us", "leader CPU us", "{:.2f}")
ADDED_CPU = Metric("added_cpu_us", "added CPU us", "{:.2f}")
REPLICA_CPU = Metric("replica_cpu_us", "replica CPU us", "{:.2f}")
APPLIED_MS = Metric("applied_ms", "applied after ms", "{:.0f}")
BEHIND_MS = Metric("behind_ms", "most behind ms", "{:.0f}")
CATCH_UP_S = Metric("catch_up_s", "caught up s", "{:.2f}")
WRITE_MS = Metric("write_ms", "longest SET ms meanwhile", "{:.1f}")
GROWTH_MB = Metric("growth_mb", "leader RSS growth MB", "{:,.1f}")
SYNC_S = Metric("sync_s", "synced s", "{:.2f}")

ALONE, WITH_REPLICA = "alone", "with replica"
UNDISTURBED, DURING = "SET", "SET during"

# Writers and rows per transaction of Tarantool's benchmark 1mops_write, which writes in its own process.
WRITERS = 50
TRANSACTION_ROWS = 150

FLUSH_BYTES = (1, 128, 4 << 10, 16 << 10, 64 << 10, 1 << 20)


class Work(Enum):
    """The load during a measurement."""

    LOAD = "redis-benchmark writes"
    TRANSACTIONS = "transactions are written"
    CATCH_UP = "the replica takes what was written while it was stopped"
    FULL_SYNC = "redis-benchmark writes while a new replica copies everything"


@dataclass(frozen=True)
class Step:
    """One row of a case: its name, its load, whether a replica follows, settings of the leader (Sheaf's)."""

    op: str
    work: Work
    has_replica: bool
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ReplicaCase:
    """Steps on one leader; `rows` are written in each."""

    name: str
    title: str
    steps: tuple[Step, ...]
    load: Load
    rows: int
    metrics: tuple[Metric, ...]
    ratios: tuple[Metric, ...]
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ALL
    persistence: Persistence = Persistence.OFF

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(step.op for step in self.steps)


def _with_and_without(work: Work) -> tuple[Step, Step]:
    return Step(ALONE, work, has_replica=False), Step(WITH_REPLICA, work, has_replica=True)


WRITTEN = (ROWS_S, P99_MS, LEADER_CPU, ADDED_CPU, REPLICA_CPU, APPLIED_MS, BEHIND_MS, CLIENT_SHARE)
COSTS = at_most(ADDED_CPU, 0.15, None, WITH_REPLICA) + at_most(REPLICA_CPU, 0.6, None, WITH_REPLICA)
APPLIED_SOON = at_most(APPLIED_MS, 200, None, WITH_REPLICA)

REPLICA_CASES: tuple[ReplicaCase, ...] = (
    ReplicaCase(
        name="replica-load",
        title="SET, 32 B values, 1M random keys, c=50 P=64, nothing synced, with a replica",
        steps=_with_and_without(Work.LOAD),
        load=Load(connections=50, pipeline=64, value_bytes=32),
        rows=5_000_000,
        metrics=WRITTEN,
        ratios=(ROWS_S, LEADER_CPU, REPLICA_CPU),
        targets=at_least(ROWS_S, 2.0, "redis", WITH_REPLICA) + COSTS + APPLIED_SOON,
    ),
    ReplicaCase(
        name="replica-load-strict",
        title="SET, 32 B values, 1M random keys, c=50 P=64, every acknowledged write on disk, with a replica",
        steps=_with_and_without(Work.LOAD),
        load=Load(connections=50, pipeline=64, value_bytes=32),
        rows=5_000_000,
        metrics=WRITTEN,
        ratios=(),
        targets=COSTS + APPLIED_SOON,
        contenders=("sheaf",),
        persistence=Persistence.SYNCED,
    ),
    ReplicaCase(
        name="replica-transactions",
        title=f"MULTI of {TRANSACTION_ROWS} SETs of 32 B, {WRITERS} connections, logged and not synced, with a replica",
        steps=_with_and_without(Work.TRANSACTIONS),
        load=Load(connections=WRITERS, pipeline=TRANSACTION_ROWS, value_bytes=32),
        rows=3_000_000,
        metrics=WRITTEN,
        ratios=(ROWS_S, LEADER_CPU, REPLICA_CPU),
        targets=at_least(ROWS_S, 3.0, "tarantool", ALONE, WITH_REPLICA) + at_most(BEHIND_MS, 1000, None, WITH_REPLICA),
        contenders=(*ALL, "tarantool"),
        persistence=Persistence.LOGGED,
    ),
    ReplicaCase(
        name="replica-single",
        title=f"SET of 32 B, one at a time on {WRITERS} connections, logged and not synced, with a replica",
        steps=_with_and_without(Work.LOAD),
        load=Load(connections=WRITERS, pipeline=1, value_bytes=32),
        rows=400_000,
        metrics=WRITTEN,
        ratios=(ROWS_S, LEADER_CPU, REPLICA_CPU),
        targets=at_least(ROWS_S, 3.0, "tarantool", ALONE, WITH_REPLICA),
        contenders=(*ALL, "tarantool"),
        persistence=Persistence.LOGGED,
    ),
    ReplicaCase(
        name="replica-catch-up",
        title="A replica that was stopped for 5M SETs of 32 B, while the leader takes writes",
        steps=(Step("catch-up", Work.CATCH_UP, has_replica=True),),
        load=Load(connections=50, pipeline=64, value_bytes=32),
        rows=5_000_000,
        metrics=(ROWS_S, CATCH_UP_S, LEADER_CPU, REPLICA_CPU, WRITE_MS),
        ratios=(ROWS_S, LEADER_CPU, REPLICA_CPU),
        targets=at_least(ROWS_S, 1_500_000, None, "catch-up"),
    ),
    ReplicaCase(
        name="replica-full-sync",
        title="SET, 32 B values, 5M keys, c=50 P=16, nothing synced, while a new replica copies everything",
        steps=(
            Step(UNDISTURBED, Work.LOAD, has_replica=False),
            Step(DURING, Work.FULL_SYNC, has_replica=True),
        ),
        load=Load(connections=50, pipeline=16, value_bytes=32, keys=5_000_000),
        rows=6_000_000,
        metrics=(ROWS_S, P99_MS, GROWTH_MB, SYNC_S, APPLIED_MS),
        ratios=(ROWS_S,),
        targets=at_most(GROWTH_MB, 64, None, DURING) + at_most(P99_MS, 1.5, UNDISTURBED, DURING),
    ),
    ReplicaCase(
        name="replica-flush",
        title="SET, 32 B values, c=50 P=64, nothing synced: bytes that a leader sends to its replica at once",
        steps=tuple(
            Step(f"{size:,} B", Work.LOAD, has_replica=True, settings=(("relay-flush-size", str(size)),))
            for size in FLUSH_BYTES
        ),
        load=Load(connections=50, pipeline=64, value_bytes=32),
        rows=3_000_000,
        metrics=(ROWS_S, P99_MS, LEADER_CPU, REPLICA_CPU, APPLIED_MS, BEHIND_MS),
        ratios=(),
        targets=(),
        contenders=("sheaf",),
    ),
)
