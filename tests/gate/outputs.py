"""What the output of a step says: how many tests passed, which failed, how to repeat one, which took longest.

Formats: cargo (libtest with times), pytest (with its list of durations), Node (TAP), unittest.
"""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

BINARY = re.compile(r"^ +Running (?:unittests )?(\S+) \(\S*/deps/(.+)-[0-9a-f]+\)")
CARGO_TEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED)(?: <([0-9.]+)s>)?")
PASSED = (
    re.compile(r"^test result: (?:ok|FAILED)\. (\d+) passed"),
    re.compile(r"^=*\s*(?:\d+ failed, )?(\d+) passed.* in [0-9.]+s"),
    re.compile(r"^# pass (\d+)$"),
    re.compile(r"^Ran (\d+) tests? in"),
)
SKIPPED = re.compile(r"^=*\s*\d+ passed.*?(\d+) skipped.* in [0-9.]+s")
PYTEST_TIME = re.compile(r"^([0-9.]+)s (?:call|setup|teardown) +(\S+)")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$")
PEER = re.compile(r"[-\[](redis-\d\.\d|valkey-\d\.\d)[-\]]")
NODE_FAILED = re.compile(r"^ *not ok \d+ - (.+)$")
SEED = re.compile(r"(SHEAF_\w*SEED=\d+|seed[ =:]+\d+)")
PROGRESS = re.compile(r"^(begins|ends) (.+)$")
# Rust's words for a bug, in the log of a server.
CRASHED = re.compile(r"panicked at|AddressSanitizer")


@dataclass
class Output:
    """What a step has printed."""

    passed: int = 0
    skipped: str = ""
    failed: list[tuple[str, str]] = None  # (test, command that repeats it alone)
    times: list[tuple[float, str]] = None  # (seconds, test)
    unfinished: list[str] = None
    seeds: list[str] = None
    crashed: bool = False  # a server or a test program has ended by a bug


def read(log: Path) -> Output:
    """Reads the output of a step, of any of the formats."""
    output = Output(failed=[], times=[], unfinished=[], seeds=[])
    package = source = ""
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    for line in log.read_text(errors="replace").splitlines():
        if match := BINARY.match(line):
            source, package = match.groups()
        elif match := CARGO_TEST.match(line):
            name, outcome, seconds = match.groups()
            if seconds:
                output.times.append((float(seconds), f"{package} {name}"))
            if outcome == "FAILED":
                target = "--lib" if source == "src/lib.rs" else f"--test {package}"
                owner = package if source == "src/lib.rs" else owner_of(package)
                output.failed.append((f"{package} {name}", f"cargo test -p {owner} {target} {name}"))
        elif match := PYTEST_FAILED.match(line):
            # The name of a test that compares ends with its peer.
            peer = PEER.search(match[1])
            options = f" --seed 1 --peer {peer[1]}" if peer else ""
            test = shlex.quote(f"tests/{match[1].removeprefix('tests/')}")
            repeat = f"{target}/test-venv/bin/pytest -c tests/pytest.ini{options} {test}"
            output.failed.append((match[1], repeat))
        elif (match := NODE_FAILED.match(line)) and not match[1].endswith(".js"):
            pattern = re.escape(match[1])
            repeat = f"node --test --test-force-exit --test-name-pattern {shlex.quote(pattern)} tests/clients/node"
            output.failed.append((match[1], f"NODE_PATH={target}/node-clients/node_modules {repeat}"))
        elif match := PYTEST_TIME.match(line):
            output.times.append((float(match[1]), match[2]))
        elif line.startswith("skipped: "):
            output.skipped = line
        if match := SKIPPED.match(line):
            output.skipped = f"{match[1]} skipped"
        for form in PASSED:
            if match := form.match(line):
                output.passed += int(match[1])
        output.crashed = output.crashed or bool(CRASHED.search(line))
        output.seeds += [seed for seed in SEED.findall(line) if seed not in output.seeds]
    output.unfinished = unfinished_by_progress(log) or unfinished_of_cargo(log)
    return output


def owner_of(test: str) -> str:
    """The package of an integration test, by the place of its file."""
    for manifest in Path("crates").glob(f"*/tests/{test}*"):
        return manifest.parts[1]
    return test


def progress_file(log: Path) -> Path:
    """Where pytest and Node write which tests begin and end (progress.py, progress.mjs)."""
    return log.with_suffix(".progress")


def unfinished_by_progress(log: Path) -> list[str]:
    """The tests that began and have not ended."""
    running: dict[str, None] = {}
    file = progress_file(log)
    for line in file.read_text().splitlines() if file.exists() else []:
        if match := PROGRESS.match(line):
            if match[1] == "begins":
                running[match[2]] = None
            else:
                running.pop(match[2], None)
    return list(running)


def unfinished_of_cargo(log: Path) -> list[str]:
    """The tests that cargo's harness has reported as running for over a minute, without an end since."""
    running: dict[str, None] = {}
    for line in log.read_text(errors="replace").splitlines():
        if match := re.match(r"^test (\S+) has been running for over", line):
            running[match[1]] = None
        elif match := CARGO_TEST.match(line):
            running.pop(match[1], None)
        elif match := re.match(r"^test (\S+) \.\.\. *$", line):
            running[match[1]] = None
    return list(running)
