"""The cases of documents, and their targets. Documents have 1 KB; clients use HTTP and keep their
connections.

Each measurement has a server and a database of its own. pouchdb-server never syncs; Sheaf answers once data
is on disk.
"""

from dataclasses import dataclass

from figures import CLIENT_SHARE, P50_MS, P99_MS, Metric, Target, at_least, at_most
from servers import Persistence

DOCUMENTS_S = Metric("documents_s", "docs/s", "{:,.0f}")
ROWS_S = Metric("documents_s", "rows/s", "{:,.0f}")
CPU_DOCUMENT = Metric("cpu_us_per_document", "CPU us/doc", "{:,.1f}")
PER_SYNC = Metric("documents_per_sync", "docs/sync", "{:.1f}")
TREE_WRITES = Metric("tree_writes_per_document", "tree writes/doc", "{:.4f}")
LOG_TREE_BYTES = Metric("log_tree_bytes_per_document", "log+tree bytes/doc", "{:,.0f}")
DISK_BYTES = Metric("disk_bytes_per_document", "disk bytes/doc", "{:,.0f}")
GROWTH_MB = Metric("rss_growth_mb", "RSS growth MB", "{:,.1f}")
COMPACTIONS = Metric("compactions", "compactions", "{:.0f}")
COMPACTION_S = Metric("compaction_s", "s each", "{:.2f}")

PEER = "pouchdb-server"
BOTH = ("sheaf", PEER)
# Sheaf with one thread for HTTP.
ONE_WORKER = "sheaf-one-worker"

# One measurement, without its warm-up: some checkpoints of Sheaf. A shorter one says nothing about
# pouchdb-server.
SECONDS, SECONDS_MIN = 8.0, 2.0
# The rough speed of filling databases.
FILL_DOCUMENTS_S = {PEER: 6_000.0, "sheaf": 60_000.0}
SMALL, LARGE = 20_000, 1_000_000
COMPACTED = 200_000


@dataclass(frozen=True)
class DocumentRun:
    """One row: its name, the action of the traffic program, the number of documents, and the servers.

    It runs for some seconds if it `is_timed`, else until it is done.
    """

    op: str
    arguments: tuple[str, ...]
    filled: int = 0
    is_timed: bool = True
    servers: tuple[str, ...] = BOTH

    def words(self, scale: int) -> tuple[str, ...]:
        """The arguments of the traffic program."""
        timed = ("--seconds", f"{self._seconds(scale):g}") if self.is_timed else ()
        filled = ("--filled", str(self.filled // scale)) if self.filled else ()
        return (*self.arguments, *filled, *timed)

    def _seconds(self, scale: int) -> float:
        return max(SECONDS / scale, SECONDS_MIN)

    def forecast_s(self, scale: int, server: str) -> float:
        """The rough duration, with the warm-up."""
        fill_s = self.filled / scale / FILL_DOCUMENTS_S.get(server, FILL_DOCUMENTS_S["sheaf"])
        return fill_s + (1.25 * self._seconds(scale) if self.is_timed else fill_s / 5) + 2.0


@dataclass(frozen=True)
class DocumentCase:
    """The traffic program against a fresh server; per server and run one measurement per repetition."""

    name: str
    title: str
    runs: tuple[DocumentRun, ...]
    metrics: tuple[Metric, ...]
    ratios: tuple[Metric, ...]
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = BOTH
    persistence: Persistence = Persistence.SYNCED

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(run.op for run in self.runs)

    def runs_of(self, server: str) -> tuple[DocumentRun, ...]:
        """The measurements with this server."""
        return tuple(run for run in self.runs if server in run.servers)


WRITE_METRICS = (
    *(DOCUMENTS_S, P50_MS, P99_MS, CPU_DOCUMENT, PER_SYNC, TREE_WRITES),
    *(LOG_TREE_BYTES, DISK_BYTES, GROWTH_MB, CLIENT_SHARE),
)
SCAN_METRICS = (ROWS_S, CPU_DOCUMENT, GROWTH_MB, CLIENT_SHARE)


def _put(connections: int, targets: tuple[Target, ...]) -> DocumentCase:
    return DocumentCase(
        name=f"doc-put-{connections}",
        title=f"PUT of new 1 KB documents with random ids, {connections} connection{'' if connections == 1 else 's'}",
        runs=(DocumentRun("PUT", ("put", "--connections", str(connections))),),
        metrics=WRITE_METRICS,
        ratios=(DOCUMENTS_S, CPU_DOCUMENT),
        targets=targets,
    )


def _scan(name: str, title: str, task: str, at_least_s: int) -> DocumentCase:
    return DocumentCase(
        name=name,
        title=title,
        runs=(
            DocumentRun("20,000 documents", (task,), SMALL, is_timed=False),
            DocumentRun("1M documents", (task,), LARGE, is_timed=False, servers=("sheaf",)),
        ),
        metrics=SCAN_METRICS,
        ratios=(ROWS_S, CPU_DOCUMENT),
        targets=at_least(ROWS_S, at_least_s, None, "1M documents") + at_most(GROWTH_MB, 64, None, "1M documents"),
    )


DOCUMENT_CASES: tuple[DocumentCase, ...] = (
    _put(
        100,
        at_least(DOCUMENTS_S, 25.0, PEER, "PUT")
        + at_most(CPU_DOCUMENT, 60, None, "PUT")
        + at_most(TREE_WRITES, 0.05, None, "PUT"),
    ),
    _put(25, at_least(DOCUMENTS_S, 20.0, PEER, "PUT")),
    _put(1, at_least(DOCUMENTS_S, 8.0, PEER, "PUT")),
    DocumentCase(
        name="doc-put-workers",
        title="PUT of new 1 KB documents with random ids, 100 connections, all workers against one",
        runs=(DocumentRun("PUT", ("put", "--connections", "100"), servers=("sheaf", ONE_WORKER)),),
        metrics=WRITE_METRICS,
        ratios=(DOCUMENTS_S, CPU_DOCUMENT),
        targets=at_most(CPU_DOCUMENT, 1.05, ONE_WORKER, "PUT"),
        contenders=("sheaf", ONE_WORKER),
    ),
    DocumentCase(
        name="doc-update-100",
        title="PUT of further revisions of 1 KB documents, 100 connections",
        runs=(
            DocumentRun("20,000 documents", ("put", "--connections", "100", "--updates"), SMALL),
            DocumentRun("1M documents", ("put", "--connections", "100", "--updates"), LARGE, servers=("sheaf",)),
        ),
        metrics=WRITE_METRICS,
        ratios=(DOCUMENTS_S, CPU_DOCUMENT),
        targets=at_most(LOG_TREE_BYTES, 5_000, None, "1M documents") + at_most(TREE_WRITES, 0.05, None, "1M documents"),
    ),
    DocumentCase(
        name="doc-bulk",
        title="_bulk_docs of 1000 new 1 KB documents with random ids, 4 connections",
        runs=(DocumentRun("_bulk_docs", ("bulk", "--connections", "4", "--batch", "1000")),),
        metrics=WRITE_METRICS,
        ratios=(DOCUMENTS_S, CPU_DOCUMENT),
        targets=at_least(DOCUMENTS_S, 10.0, PEER, "_bulk_docs") + at_most(CPU_DOCUMENT, 15, None, "_bulk_docs"),
    ),
    _scan("doc-changes", "_changes from the beginning, streamed to one connection", "changes", 300_000),
    _scan("doc-all-docs", "_all_docs, streamed to one connection", "all-docs", 300_000),
    DocumentCase(
        name="doc-pull",
        title="What PouchDB asks for when it pulls 20 000 documents, one connection",
        runs=(DocumentRun("pull", ("pull",), SMALL, is_timed=False),),
        metrics=(DOCUMENTS_S, CPU_DOCUMENT, CLIENT_SHARE),
        ratios=(DOCUMENTS_S, CPU_DOCUMENT),
        targets=at_least(DOCUMENTS_S, SMALL / 15, None, "pull"),
    ),
    DocumentCase(
        name="doc-compaction",
        title="PUT of further revisions of 200 000 documents, 100 connections, while the database is compacted",
        runs=(
            DocumentRun("undisturbed", ("put", "--connections", "100", "--updates"), COMPACTED),
            DocumentRun("compacting", ("put", "--connections", "100", "--updates", "--compact"), COMPACTED),
        ),
        metrics=(DOCUMENTS_S, P50_MS, P99_MS, CPU_DOCUMENT, COMPACTIONS, COMPACTION_S, GROWTH_MB, CLIENT_SHARE),
        ratios=(),
        targets=at_least(DOCUMENTS_S, 0.7, "undisturbed", "compacting") + at_least(COMPACTIONS, 1, None, "compacting"),
        contenders=("sheaf",),
    ),
)
