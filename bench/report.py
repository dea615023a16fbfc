"""Turns samples into tables: medians, ratios, targets met or not. Markdown for people, JSON for programs."""

import json
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import doors
from cases import Case, LoadCase, MemoryCase, SnapshotCase, StallCase, baseline
from document_cases import DocumentCase
from door_cases import DoorCase, HandshakeCase
from figures import Metric, Target
from message_cases import MessageCase
from replica_cases import ReplicaCase, Work
from servers import Ports, Program
from suite import Result


@dataclass(frozen=True)
class Context:
    """The place, time and method of the figures."""

    machine: dict[str, str]
    load_average: float
    versions: dict[str, str]
    programs: dict[str, Program]
    reps: int
    scale: int
    command: str
    date: str

    @staticmethod
    def now() -> str:
        """The date for a report."""
        return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


@dataclass(frozen=True)
class Verdict:
    """A target with its measured value; `value` is None if the required servers did not take part."""

    target: Target
    value: float | None

    @property
    def met(self) -> bool | None:
        """None if not measured."""
        return None if self.value is None else self.target.met_by(self.value)

    def words(self) -> tuple[str, str, str]:
        """(target, measured, outcome) for a table row."""
        if self.value is None:
            return self.target.words(), "–", "not measured"
        shown = f"{self.value:.2f}x" if self.target.against else self.target.metric.show(self.value)
        return self.target.words(), shown, "met" if self.met else "NOT MET"


def median(result: Result, server: str, op: str, metric: Metric) -> float | None:
    """The median over the repetitions; None if the server was not measured or does not report it."""
    values = [sample.get(metric.key) for sample in result.samples.get((server, op), [])]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(value: float | None, reference: float | None) -> float | None:
    """None where a side is missing or the reference is zero."""
    return None if value is None or not reference else value / reference


def judge(result: Result) -> list[Verdict]:
    """The case's targets against its medians."""
    verdicts = []
    for target in result.case.targets:
        value = median(result, "sheaf", target.op, target.metric)
        if target.against in result.case.contenders:
            value = ratio(value, median(result, target.against, target.op, target.metric))
        elif target.against is not None:
            value = ratio(value, median(result, "sheaf", target.against, target.metric))
        verdicts.append(Verdict(target, value))
    return verdicts


def _spread(result: Result, server: str, op: str) -> str:
    """The spread of the repetitions in the first available metric: (max - min) / median."""
    for metric in result.case.metrics:
        values = [sample.get(metric.key) for sample in result.samples[server, op]]
        known = [value for value in values if value is not None]
        if known:
            middle = statistics.median(known)
            return f"{(max(known) - min(known)) / middle:.0%}" if middle else "–"
    return "–"


def figures_table(result: Result) -> list[list[str]]:
    """Heading and one row per operation and server."""
    case, reference = result.case, baseline(result.case)
    # A column in which no server has a figure is omitted (writes per sync without Sheaf or without syncs).
    metrics = [m for m in case.metrics if any(median(result, *row, m) is not None for row in result.samples)]
    ratios = [f"{metric.heading} / {reference}" for metric in case.ratios]
    rows = [["server", "op", *(metric.heading for metric in metrics), "spread", *ratios]]
    for server, op in sorted(result.samples, key=lambda row: (_op_order(case, row[1]), case.contenders.index(row[0]))):
        shown = [metric.show(median(result, server, op, metric)) for metric in metrics]
        against = [
            ratio(median(result, server, op, metric), median(result, reference, op, metric)) for metric in case.ratios
        ]
        compared = ["–" if value is None else f"{value:.2f}x" for value in against]
        rows.append([server, op, *shown, _spread(result, server, op), *compared])
    return rows


def _op_order(case: Case, op: str) -> int:
    return 0 if isinstance(case, MemoryCase) else case.operations.index(op)


def targets_table(result: Result) -> list[list[str]]:
    """Heading and one row per target."""
    return [["target", "measured", "outcome"], *(list(verdict.words()) for verdict in judge(result))]


def markdown_table(rows: list[list[str]], text_columns: int) -> str:
    """An aligned Markdown table; the columns after the first `text_columns` are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if column < text_columns else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(rows[0]), line(rule), *(line(row) for row in rows[1:])])


def case_text(result: Result) -> str:
    """Both tables of a case, for the terminal and for the Markdown file."""
    tables = [markdown_table(figures_table(result), 2)]
    if result.case.targets:
        tables.append(markdown_table(targets_table(result), 1))
    return f"### {result.case.name}: {result.case.title}\n\n" + "\n\n".join(tables) + "\n"


def command_lines(result: Result, context: Context) -> list[str]:
    """The command lines of the servers and the client of a case."""
    case = result.case
    servers = [context.programs[name] for name in case.contenders if name in context.programs]
    if isinstance(case, StallCase):
        servers = [server.with_one_worker() for server in servers]
    if isinstance(case, MessageCase):
        servers = [server.with_flags(case.flags) for server in servers]
    if isinstance(case, DoorCase | HandshakeCase):
        servers = [server.with_certificates(Path("CERTIFICATES")) for server in servers]
    if isinstance(case, ReplicaCase):
        servers = [server.for_replication() for server in servers]
        servers += [server.following(Ports("LEADER_PORT", "LEADER_PORT")) for server in servers]
    lines = [server.shown(case.persistence) for server in servers]
    if isinstance(case, LoadCase | SnapshotCase):
        ops = max(case.ops // context.scale, 1)
        sent = case.operations if isinstance(case, LoadCase) else (case.op,)
        lines += [" ".join(["redis-benchmark", *case.load.arguments("PORT", op, ops)]) for op in sent]
    if isinstance(case, DoorCase):
        for op in case.operations:
            kind, door = case.sent(op)
            port, through = doors.through(door, servers[0], Ports("PORT", "HTTP_PORT"))
            lines.append(" ".join(["redis-benchmark", *through, *case.load.arguments(port, kind, case.ops // context.scale)]))
    if isinstance(case, ReplicaCase) and any(step.work is not Work.TRANSACTIONS for step in case.steps):
        lines.append(" ".join(["redis-benchmark", *case.load.arguments("PORT", "SET", case.rows // context.scale)]))
    if isinstance(case, MessageCase):
        lines += [" ".join(["traffic", *run.words(context.scale), "--port PORT --pid PID"]) for run in case.runs]
    if isinstance(case, DocumentCase):
        lines += [" ".join(["traffic", *run.words(context.scale), "--port HTTP_PORT --pid PID"]) for run in case.runs]
    return lines


def markdown(results: list[Result], context: Context) -> str:
    """The whole report."""
    size = "" if context.scale == 1 else f", operation counts divided by {context.scale}"
    facts = [
        f"- date: {context.date}",
        *(f"- {name}: {words}" for name, words in context.machine.items()),
        f"- load average at the start: {context.load_average:.2f}",
        *(f"- {name}: {version}" for name, version in context.versions.items()),
        f"- medians of {context.reps} interleaved repetitions{size}; `{context.command}`",
    ]
    sections = [
        f"{case_text(result)}\n```\n{chr(10).join(command_lines(result, context))}\n```\n" for result in results
    ]
    return "\n".join(["## Figures", "", *facts, "", *sections])


def as_json(results: list[Result], context: Context) -> str:
    """Every repetition, so that other statistics can be computed."""
    document = {
        "date": context.date,
        "machine": context.machine,
        "load_average": context.load_average,
        "versions": context.versions,
        "reps": context.reps,
        "scale": context.scale,
        "cases": [_case_document(result, context) for result in results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _case_document(result: Result, context: Context) -> dict[str, object]:
    return {
        "name": result.case.name,
        "title": result.case.title,
        "commands": command_lines(result, context),
        "rows": [
            {
                "server": server,
                "op": op,
                "samples": samples,
                "medians": {metric.key: median(result, server, op, metric) for metric in result.case.metrics},
            }
            for (server, op), samples in result.samples.items()
        ],
        "targets": [
            {"target": verdict.target.words(), "value": verdict.value, "met": verdict.met} for verdict in judge(result)
        ],
    }


def write(path: Path, text: str) -> None:
    """Replaces the file atomically, so that an interrupted run leaves the previous one intact."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)
