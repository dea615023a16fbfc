"""The cases of three servers that hold the same data, and their targets.

Per repetition every contender has three fresh servers. Writes are confirmed by a majority (Sheaf's group), by
one replica before their OK (Sheaf with ack-replicas), or by one replica after a WAIT (Redis).
"""

from dataclasses import dataclass

from figures import CLIENT_SHARE, P50_MS, P99_MS, Metric, Target, at_least, at_most
from servers import Persistence

# A Sheaf leader with two replicas and `ack-replicas 1`.
ACKS = "sheaf-acks"

ROWS_S = Metric("rows_s", "rows/s", "{:,.0f}")
CPU_US = Metric("cpu_us", "CPU us of all three", "{:.2f}")
# The threads that vote, of the leader, in percent of a core.
VOTES = Metric("votes_percent", "votes % of a core", "{:.2f}")

IDLE = "idle"


@dataclass(frozen=True)
class GroupStep:
    """One row: SETs of `value_bytes`, `pipeline` at a time, on some connections; without connections, rest."""

    op: str
    connections: int
    pipeline: int
    rows: int
    value_bytes: int = 1024


@dataclass(frozen=True)
class GroupCase:
    """Steps on three servers."""

    name: str
    title: str
    steps: tuple[GroupStep, ...]
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ("sheaf", ACKS, "redis")
    persistence = Persistence.SYNCED
    metrics = (ROWS_S, P50_MS, P99_MS, CPU_US, VOTES, CLIENT_SHARE)
    ratios = (ROWS_S, CPU_US)

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(step.op for step in self.steps)


SINGLE, MANY = "c=1", "c=50 P=16"

GROUP_CASES: tuple[GroupCase, ...] = (
    GroupCase(
        name="group-writes",
        title="SET of 1 KB, every acknowledged write on the disks of two of three servers",
        steps=(
            GroupStep(IDLE, connections=0, pipeline=0, rows=0),
            GroupStep(SINGLE, connections=1, pipeline=1, rows=5_000),
            GroupStep(MANY, connections=50, pipeline=16, rows=300_000),
        ),
        targets=at_least(ROWS_S, 3.0, "redis", MANY)
        + at_least(ROWS_S, 0.9, ACKS, MANY)
        + at_most(P50_MS, 1.05, ACKS, SINGLE)
        + at_most(VOTES, 1.0, None, IDLE)
        + at_most(VOTES, 3.0, None, MANY),
    ),
)
