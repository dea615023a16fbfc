"""The programs of examples/, each as its page says; left out only where its language is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.server import ROOT, Server, free_port
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

EXAMPLES = ROOT / "examples"


def started(server: Server, command: list[str | Path], directory: str) -> subprocess.Popen[str]:
    addresses = {
        "REDIS_ADDRESS": f"127.0.0.1:{server.port}",
        "HTTP_URL": f"http://127.0.0.1:{server.http_port}",
    }
    return subprocess.Popen(
        command,
        cwd=EXAMPLES / directory,
        env=os.environ | addresses,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(program: subprocess.Popen[str]) -> str:
    with program:
        out, errors = program.communicate(timeout=2 * PATIENCE_S)
    assert program.returncode == 0, out + errors
    return out


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(tool), reason=f"{tool} not installed")


def test_every_program_is_on_the_page():
    page = (EXAMPLES / "README.md").read_text()
    programs = [path for path in EXAMPLES.rglob("*.*") if path.suffix in {".py", ".mjs", ".go", ".rs", ".java"}]
    assert len(programs) >= 5
    assert [path.name for path in programs if f"({path.relative_to(EXAMPLES)})" not in page] == []


def test_payments_happen_once_though_the_server_is_killed(new_server: Callable[..., Server]):
    server = new_server(port=free_port()).start()
    program = started(server, [sys.executable, "payment.py"], "python")
    for _ in range(2):
        with server.connect() as connection:
            before = connection.call("DBSIZE")
            # A key for each payment.
            wait_until("some payments", lambda: connection.call("DBSIZE") > before + 20)  # noqa: B023
        server.kill()
        server.start()
    assert printed(program) == "200 payments, rest 0\n"


@needs("node")
def test_the_outbox_counts_every_order_once(server: Server):
    for total in (10, 20):
        out = printed(started(server, ["node", "outbox.mjs"], "node"))
        assert f'"{total}"' in out and "tea" in out and "milk" in out, out


@needs("go")
@pytest.mark.timeout(900)
def test_jobs_of_a_dead_worker_are_taken_over(server: Server, tmp_path: Path):
    # On a new machine this also fetches the client and compiles the library of the language.
    subprocess.run(["go", "build", "-o", tmp_path / "jobs", "."], cwd=EXAMPLES / "go", check=True)
    out = printed(started(server, [tmp_path / "jobs"], "go"))
    assert out == "left behind: 3\ndone: 10 pending: 0\n"


@needs("rustc")
def test_two_connections_count_together(server: Server, tmp_path: Path):
    binary = tmp_path / "counter"
    subprocess.run(["rustc", "--edition", "2024", "-o", binary, "counter.rs"], cwd=EXAMPLES / "rust", check=True)
    assert printed(started(server, [binary], "rust")) == "2000\n"


@needs("javac")
def test_documents_from_java(server: Server):
    out = printed(started(server, ["java", "Notes.java"], "java"))
    assert out == "mine 201, yours 409 conflict\ntea, milk\n"
