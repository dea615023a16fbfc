"""Runs the snippets of README.md, docs/ and docs/guides/ as they stand, twice.

A snippet is an indented or fenced block. Shell commands run in bash, Redis commands in redis-cli: all blocks
of a page in order on one server, and then all of them once more. A fenced block with the language `output`
comes after a snippet and states its output; `*` stands for anything, also for more lines. HTML comments, which
readers of the page do not see, mark exceptions:

    <!-- not run: REASON -->     before a block that is not a list of commands, or needs something missing here
    <!-- run once: REASON -->    before a block that is refused when it runs again
    <!-- setup: COMMANDS -->     commands of the shell that come before all blocks, such as a server to move from

Servers that a block starts in the background run until the page ends. Their ports are replaced by free ones.

A block of Redis commands must state its output. A shell block without stated output must succeed and print no
error.
"""

import contextlib
import fnmatch
import os
import re
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.server import ROOT, Server, free_port, sheaf_binary
from harness.waiting import PATIENCE_S

PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guides").glob("*.md")]
    if "<!-- snippets not run:" not in page.read_text()
)
SHELL_WORDS = {"cp", "curl", "redis-cli", "sheaf", "until"}
SETUP = re.compile(r"^<!-- setup: (.*?) -->$", re.MULTILINE | re.DOTALL)
# Ports of servers that pages start.
PORT = re.compile(r"\b(6400|7[01]0[1-9])\b")
NOT_RUN, ONCE, OUTPUT = "<!-- not run:", "<!-- run once:", "```output"


@dataclass
class Snippet:
    """A block of a page, and its markers."""

    page: str
    line: int
    text: str
    not_run: bool
    once: bool
    prints: list[str] | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}\n{self.text}"

    @property
    def is_shell(self) -> bool:
        words = {line.split()[0] for line in self.text.splitlines() if line.strip()}
        return bool(words & SHELL_WORDS)

    @property
    def is_redis(self) -> bool:
        return all(re.match(r"[A-Z][A-Z.]+( |$)", line) for line in self.text.splitlines())


def blocks(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """The bounds of each block (the end is exclusive), and its text."""
    at = 0
    while at < len(lines):
        begin = at
        at += 1
        if lines[begin].startswith("```"):
            while not lines[at].startswith("```"):
                at += 1
            at += 1
            yield begin, at, "\n".join(lines[begin + 1 : at - 1])
        elif lines[begin].startswith("    ") and not lines[begin - 1].strip():
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            text = "\n".join(line[4:] for line in lines[begin:at]).strip()
            yield begin, at, text


def snippets(page: str) -> list[Snippet]:
    """All blocks of a page."""
    lines = (ROOT / page).read_text().splitlines()
    found = []
    for begin, end, text in blocks(lines):
        if lines[begin] == OUTPUT:
            continue
        before = next((line for line in reversed(lines[:begin]) if line.strip()), "")
        behind = end + next((at for at, line in enumerate(lines[end:]) if line.strip()), 0)
        prints = None
        if lines[behind : behind + 1] == [OUTPUT]:
            until = lines.index("```", behind)
            prints = lines[behind + 1 : until]
        found.append(
            Snippet(page, begin + 1, text, before.startswith(NOT_RUN), before.startswith(ONCE), prints)
        )
    return found


@dataclass
class Place:
    """Where the snippets of a page run."""

    directory: Path
    ports: defaultdict[str, int]
    # The shells, each with a group of processes of its own.
    shells: list[int]

    def with_ports(self, text: str) -> str:
        """The text with free ports in the place of documented ones."""
        return PORT.sub(lambda found: str(self.ports[found[0]]), text)


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Iterator[Place]:
    """A directory for shell snippets; its commands find this test's server at the documented addresses."""
    commands = tmp_path / "commands"
    commands.mkdir()
    # `sheaf backup` uses CouchDB's port by default.
    script = f'#!/bin/sh\n[ "$1" = backup ] && set -- "$@" --from http://127.0.0.1:{server.http_port}\n'
    (commands / "sheaf").write_text(f'{script}exec {sheaf_binary()} "$@"\n')
    (commands / "redis-cli").write_text(f'#!/bin/sh\nexec /usr/bin/env -i ${{REDISCLI_AUTH:+REDISCLI_AUTH="$REDISCLI_AUTH"}} "$REDIS_CLI" -p {server.port} "$@"\n')
    for command in commands.iterdir():
        command.chmod(0o755)
    place = Place(tmp_path, defaultdict(free_port), [])
    yield place
    for shell in place.shells:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell, signal.SIGKILL)


def run(snippet: Snippet, server: Server, place: Place) -> str:
    """Runs a snippet and returns its output."""
    text = snippet.text.replace("127.0.0.1:5984", f"127.0.0.1:{server.http_port}")
    text = place.with_ports(text.replace("127.0.0.1:6379", f"127.0.0.1:{server.port}"))
    text = re.sub(r"(?<!\w)/backups\b", f"{place.directory}/backups", text)
    if snippet.is_redis:
        command = ["redis-cli", "-p", str(server.port)]
    else:
        command = ["bash", "-e"]
    path = os.environ["PATH"]
    real = subprocess.run(["which", "redis-cli"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {"PATH": f"{place.directory}/commands:{path}" if not snippet.is_redis else path, "REDIS_CLI": real}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=place.directory,
        start_new_session=True,
    ) as shell:
        place.shells.append(shell.pid)
        try:
            # Some pages fill a server with a million keys.
            printed, errors = shell.communicate(text + "\n", timeout=2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    assert shell.returncode == 0, f"{snippet}\n{printed}{errors}"
    return printed


def check(snippet: Snippet, printed: str, place: Place) -> None:
    """Compares the output of a snippet with that on the page."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if snippet.prints is None:
        assert not any('"error"' in line or line.startswith("ERR") for line in lines), f"{snippet}\n{printed}"
        return
    expected = place.with_ports("\n".join(snippet.prints))
    matches = fnmatch.fnmatchcase("\n".join(lines), expected.replace("[", "[[]"))
    assert matches, f"{snippet}\n\nprinted:\n{printed}\nexpected:\n{expected}"


@pytest.mark.sheaf_only
@pytest.mark.parametrize("page", PAGES)
def test_snippets_work_as_they_stand_twice(page: str, server: Server, place: Place) -> None:
    """Every snippet of a page has the stated result, the first and the second time."""
    found = [snippet for snippet in snippets(page) if not snippet.not_run]
    for snippet in found:
        assert snippet.is_shell or snippet.is_redis, f"neither a shell's nor Redis' commands, and not marked:\n{snippet}"
        assert snippet.is_shell or snippet.prints is not None, f"says not what it prints:\n{snippet}"
    for commands in SETUP.findall((ROOT / page).read_text()):
        run(Snippet(page, 1, commands, not_run=False, once=True, prints=None), server, place)
    for turn in ["first", "second"]:
        for snippet in found:
            if turn == "first" or not snippet.once:
                check(snippet, run(snippet, server, place), place)
