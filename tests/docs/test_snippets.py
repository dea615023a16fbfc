"""README.md and docs/: what stands there to be pasted works as it stands, twice.

A snippet is an indented or fenced block. Commands of a shell run in bash, commands of Redis in redis-cli, one block after the other
with the server of its page, and then all of them once more. Comments that a reader of the page does not see say what is
different:

    <!-- not run: REASON -->     before a block that shows something else than commands, or needs what is not here
    <!-- run once: REASON -->    before a block that is refused when it runs again
    <!-- prints                  after a block: what it prints; `*` stands for anything, also for more lines
    ...
    -->

A block of Redis commands says what it prints. A block for the shell that does not must end well and print no error.
"""

import fnmatch
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.server import ROOT, Server, sheaf_binary
from harness.waiting import PATIENCE_S

PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if "<!-- snippets not run:" not in page.read_text()
)
SHELL_WORDS = {"curl", "redis-cli", "sheaf"}
NOT_RUN, ONCE, PRINTS = "<!-- not run:", "<!-- run once:", "<!-- prints"


@dataclass
class Snippet:
    """A block of a page, and what is said about it."""

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
    """Where blocks begin and end, and their text."""
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
        before = next((line for line in reversed(lines[:begin]) if line.strip()), "")
        behind = end + next((at for at, line in enumerate(lines[end:]) if line.strip()), 0)
        prints = None
        if lines[behind : behind + 1] == [PRINTS]:
            until = lines.index("-->", behind)
            prints = lines[behind + 1 : until]
        found.append(
            Snippet(page, begin + 1, text, before.startswith(NOT_RUN), before.startswith(ONCE), prints)
        )
    return found


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Path:
    """A directory to run shells in, whose commands find this server where the pages have one."""
    commands = tmp_path / "commands"
    commands.mkdir()
    # `sheaf backup` asks the server on CouchDB's port unless it is told another.
    script = f'#!/bin/sh\n[ "$1" = backup ] && set -- "$@" --from http://127.0.0.1:{server.http_port}\n'
    (commands / "sheaf").write_text(f'{script}exec {sheaf_binary()} "$@"\n')
    (commands / "redis-cli").write_text(f'#!/bin/sh\nexec /usr/bin/env -i "$REDIS_CLI" -p {server.port} "$@"\n')
    for command in commands.iterdir():
        command.chmod(0o755)
    return tmp_path


def run(snippet: Snippet, server: Server, place: Path) -> str:
    """Pastes a snippet; what it printed."""
    text = snippet.text.replace("127.0.0.1:5984", f"127.0.0.1:{server.http_port}")
    text = text.replace("127.0.0.1:6379", f"127.0.0.1:{server.port}").replace("/backups/", f"{place}/backups/")
    if snippet.is_redis:
        command = ["redis-cli", "-p", str(server.port)]
    else:
        command = ["bash", "-e"]
    path = os.environ["PATH"]
    real = subprocess.run(["which", "redis-cli"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {"PATH": f"{place}/commands:{path}" if not snippet.is_redis else path, "REDIS_CLI": real}
    done = subprocess.run(
        command,
        input=text + "\n",
        capture_output=True,
        text=True,
        env=environment,
        cwd=place,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{snippet}\n{done.stdout}{done.stderr}"
    return done.stdout


def check(snippet: Snippet, printed: str) -> None:
    """Compares what a snippet printed with what the page says."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if snippet.prints is None:
        assert not any('"error"' in line or line.startswith("ERR") for line in lines), f"{snippet}\n{printed}"
        return
    expected = "\n".join(snippet.prints)
    matches = fnmatch.fnmatchcase("\n".join(lines), expected.replace("[", "[[]"))
    assert matches, f"{snippet}\n\nprinted:\n{printed}\nexpected:\n{expected}"


@pytest.mark.sheaf_only
@pytest.mark.parametrize("page", PAGES)
def test_snippets_work_as_they_stand_twice(page: str, server: Server, place: Path) -> None:
    """Every snippet of a page does what the page says, and so does its second time."""
    found = [snippet for snippet in snippets(page) if not snippet.not_run]
    for snippet in found:
        assert snippet.is_shell or snippet.is_redis, f"neither a shell's nor Redis' commands, and not marked:\n{snippet}"
        assert snippet.is_shell or snippet.prints is not None, f"says not what it prints:\n{snippet}"
    for turn in ["first", "second"]:
        for snippet in found:
            if turn == "first" or not snippet.once:
                check(snippet, run(snippet, server, place))
