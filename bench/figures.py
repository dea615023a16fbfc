"""Metrics, and targets over them.

A target always concerns `sheaf`, compared with another server of the same run, with another operation of
Sheaf, or with a fixed figure.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One measured figure: the key it is stored under, its heading in a table, and how it is printed."""

    key: str
    heading: str
    form: str

    def show(self, value: float | None) -> str:
        """The value for a table cell."""
        return "–" if value is None else self.form.format(value)


@dataclass(frozen=True)
class Target:
    """`sheaf`'s metric must be at least or at most `bound`, as a ratio to `against` if that is given.

    `against` is another server with the same operation, or another operation of Sheaf.
    """

    op: str
    metric: Metric
    at_least: bool
    bound: float
    against: str | None = None

    def met_by(self, value: float) -> bool:
        """Whether the figure (or ratio) is good enough."""
        return value >= self.bound if self.at_least else value <= self.bound

    def words(self) -> str:
        """For example "SET CPU s/1M <= 0.35x redis"."""
        relation = ">=" if self.at_least else "<="
        bound = f"{self.bound:g}x {self.against}" if self.against else self.metric.show(self.bound)
        return f"{self.op} {self.metric.heading} {relation} {bound}"


def at_least(metric: Metric, bound: float, against: str | None, *ops: str) -> tuple[Target, ...]:
    """The same lower bound for some operations."""
    return tuple(Target(op, metric, True, bound, against) for op in ops)


def at_most(metric: Metric, bound: float, against: str | None, *ops: str) -> tuple[Target, ...]:
    """The same upper bound for some operations."""
    return tuple(Target(op, metric, False, bound, against) for op in ops)


OPS_S = Metric("ops_s", "ops/s", "{:,.0f}")
CPU = Metric("cpu_s_per_1m", "CPU s/1M", "{:.2f}")
P50_MS = Metric("p50_ms", "p50 ms", "{:.3f}")
P99_MS = Metric("p99_ms", "p99 ms", "{:.3f}")
LONGEST_MS = Metric("longest_ms", "longest ms", "{:.1f}")
CLIENT_SHARE = Metric("client_share", "client busy", "{:.0%}")

# The servers that take part in most cases.
ALL = ("sheaf", "redis", "valkey")
