"""The command line of the benchmarks: chooses cases and servers, runs them, prints and writes the results."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import messages
import procfs
import report
from cases import BEFORE, CASES, UNMERGED, Case
from document_cases import ONE_WORKER, DocumentCase
from driver import DriverFailed
from group_cases import ACKS, GroupCase
from message_cases import MessageCase
from resp import ServerReply
from servers import Program, ServerFailed, find_pouchdb, find_redis, find_sheaf, find_tarantool, find_valkey
from suite import Progress, Result, Suite

QUICK_SCALE = 10
# Above this, other work on the machine makes the figures rough.
LOAD_AVERAGE_QUIET = 0.7
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Sheaf with other settings.
VARIANTS = (UNMERGED, ACKS, ONE_WORKER)
SERVERS = ("sheaf", "redis", "valkey", "tarantool", "pouchdb-server")


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 measured, 1 something failed, 2 wrong usage, 130 interrupted."""
    options = _parse(arguments)
    if options.list:
        print("\n".join(f"{case.name:20} {case.title}" for case in CASES))
        return 0
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        _measure(options)
    except KeyboardInterrupt:
        print("\ninterrupted; all servers ended", file=sys.stderr)
        return 130
    except (ServerFailed, DriverFailed, ServerReply, OSError) as error:
        print(f"bench/run: {error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    # A second signal must not interrupt the ending of the servers.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description="Sheaf and its peers side by side.")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument(
        "--case",
        type=_chosen([case.name for case in CASES]),
        action="extend",
        metavar="NAME[,NAME]",
        help="only these cases (default: all; --list names them)",
    )
    parser.add_argument(
        "--servers",
        type=_chosen(list(SERVERS)),
        default=list(SERVERS),
        metavar="NAME[,NAME]",
        help=f"only these of {', '.join(SERVERS)}",
    )
    parser.add_argument("--reps", type=_positive, default=3, help="repetitions (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"divide the operation counts by {QUICK_SCALE}")
    parser.add_argument("--workers", type=_positive, help="worker threads of sheaf (default: sheaf's own)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).parent / "data",
        metavar="DIR",
        help="where data directories are made and removed (default: bench/data)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="make the data of start-* cases in DIR, leave it there, and start on what is there already",
    )
    parser.add_argument("--sheaf", metavar="PATH", help="default: target/release/sheaf")
    parser.add_argument("--before", metavar="PATH", help="an older build of sheaf, measured instead of the peers")
    parser.add_argument("--redis", metavar="PATH", help="default: redis-server in PATH")
    parser.add_argument("--valkey", metavar="PATH", help="default: the server that bench/setup installed")
    parser.add_argument("--tarantool", metavar="PATH", help="default: tarantool in PATH")
    parser.add_argument("--pouchdb", metavar="PATH", help="default: the pouchdb-server that bench/setup installed")
    parser.add_argument("--traffic", metavar="PATH", help="default: target/release/traffic, built if it is not there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables with command lines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of each repetition")
    return parser.parse_args(arguments)


def _chosen(known: list[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _programs(options: argparse.Namespace) -> dict[str, Program]:
    """The chosen servers by name; `sheaf` adds its variants."""
    programs = {}
    needed = {name for case in _cases(options) for name in case.contenders} & {*options.servers, BEFORE}
    if "sheaf" in needed:
        sheaf = find_sheaf(options.sheaf, options.workers)
        programs["sheaf"] = sheaf
        programs[UNMERGED] = replace(sheaf, name=UNMERGED, extra=(*sheaf.extra, "--log-merge", "false"))
        programs[ACKS] = replace(sheaf, name=ACKS)
        programs[ONE_WORKER] = replace(sheaf.with_one_worker(), name=ONE_WORKER)
    if BEFORE in needed:
        programs[BEFORE] = replace(find_sheaf(options.before, options.workers), name=BEFORE)
    if "redis" in needed:
        programs["redis"] = find_redis(options.redis)
    if "valkey" in needed:
        programs["valkey"] = find_valkey(options.valkey)
    if "tarantool" in needed:
        programs["tarantool"] = find_tarantool(options.tarantool)
    if "pouchdb-server" in needed:
        programs["pouchdb-server"] = find_pouchdb(options.pouchdb)
    return programs


def _benchmark() -> str:
    found = shutil.which("redis-benchmark")
    if found is None:
        raise ServerFailed("redis-benchmark not found: run bench/setup")
    return found


def _measure(options: argparse.Namespace) -> None:
    programs = _programs(options)
    traffic = None
    if any(isinstance(case, MessageCase | DocumentCase) for case in _cases(options)):
        traffic = messages.find_traffic(options.traffic)
        messages.allow_connections()
    options.data.mkdir(parents=True, exist_ok=True)
    context = _context(options, programs)
    if context.load_average > LOAD_AVERAGE_QUIET:
        print(f"load average {context.load_average:.2f}: other work is running, figures are rough", file=sys.stderr)
    # A separate directory inside DIR: other files there are never touched.
    with tempfile.TemporaryDirectory(prefix="run-", dir=options.data) as directory:
        suite = Suite(programs, _benchmark(), traffic, Path(directory), options.reps, context.scale, options.keep)
        cases = [case for case in _cases(options) if suite.contenders(case)]
        progress = Progress(sum(map(suite.forecast_s, cases)))
        results: list[Result] = []
        for case in cases:
            results.append(suite.run(case, progress))
            print(report.case_text(results[-1]), flush=True)
            _write(options, results, context)


def _cases(options: argparse.Namespace) -> list[Case]:
    chosen = [case for case in CASES if options.case is None or case.name in options.case]
    if options.before is None:
        return chosen
    # Older builds may know no groups.
    comparable = [case for case in chosen if "sheaf" in case.contenders and not isinstance(case, GroupCase)]
    return [_with_older_build(case) for case in comparable]


def _with_older_build(case: Case) -> Case:
    """The case without peers, and without targets, which compare with peers."""
    if isinstance(case, DocumentCase):
        runs = [replace(run, servers=(*run.servers, BEFORE)) for run in case.runs if "sheaf" in run.servers]
        case = replace(case, runs=tuple(runs))
    return replace(case, contenders=("sheaf", BEFORE), targets=())


def _context(options: argparse.Namespace, programs: dict[str, Program]) -> report.Context:
    return report.Context(
        machine=procfs.machine(options.data),
        load_average=procfs.load_average(),
        versions={name: program.version() for name, program in programs.items() if name not in VARIANTS},
        programs=programs,
        reps=options.reps,
        scale=QUICK_SCALE if options.quick else 1,
        command=_repeatable(options),
        date=report.Context.now(),
    )


def _repeatable(options: argparse.Namespace) -> str:
    """The command that repeats the measurement, without the paths of this machine."""
    words = ["bench/run", "--reps", str(options.reps)]
    words += ["--case", ",".join(options.case)] if options.case else []
    words += ["--servers", ",".join(options.servers)] if options.servers != list(SERVERS) else []
    words += ["--before", "OLDER"] if options.before else []
    words += ["--workers", str(options.workers)] if options.workers else []
    words += ["--quick"] if options.quick else []
    return " ".join(words)


def _write(options: argparse.Namespace, results: list[Result], context: report.Context) -> None:
    """Called after every case, so that an interrupted run keeps its results so far."""
    if options.markdown is not None:
        report.write(options.markdown, report.markdown(results, context))
    if options.json is not None:
        report.write(options.json, report.as_json(results, context))
