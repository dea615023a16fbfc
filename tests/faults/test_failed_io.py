"""A failing disk: after a failed write or sync of the log the server stops with status 74 and acknowledges
nothing more.

strace attaches to the running server and makes its system calls fail, so the failures are real ones.
"""

import contextlib
import shutil
import signal
import subprocess

import pytest

from harness.server import UNDER_TEST, Server, run_sheaf
from harness.storm import Reader, Storm, Writer
from harness.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.sheaf_only,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

EXIT_LOG_FAILED = 74
LOG_CALLS = "pwrite64,pwritev,pwritev2,write,writev,fdatasync,fsync,sync_file_range"
# Written data is synced by one call, created files by the other.
LOG_SYNC_CALLS = "fdatasync"
WRITERS = 6


@contextlib.contextmanager
def injected(server: Server, calls: str, what: str):
    """From now on, `calls` on files of the directory fail as given by `what`, in all threads."""
    trace = server.directory.with_suffix(".strace")
    paths = [argument for path in sorted(server.directory.iterdir()) for argument in ("-P", str(path))]
    command = ["strace", "-f", "-o", str(trace), *paths, "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    tracer = subprocess.Popen(
        [*command, "-p", str(server.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    attached = tracer.stderr.readline()
    assert "attached" in attached, attached
    try:
        yield
    finally:
        tracer.terminate()
        tracer.communicate(timeout=PATIENCE_S)


def hit(server: Server, writers: list[Writer], readers: list[Reader], calls: str, what: str) -> int:
    """Load until the injected failure ends the server; returns its exit status."""
    storm = Storm(server, writers, readers).start(acknowledgements=200)
    storm.wait()
    with injected(server, calls, what):
        status = server.wait_exit()
    storm.join()
    return status


def check_after(server: Server, writers: list[Writer], readers: list[Reader]) -> None:
    """Checks offline, after a restart, and after one more restart."""
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    server.start()
    for checker in [*writers, *readers]:
        checker.check(server) if isinstance(checker, Writer) else checker.check()
    assert server.stop() == 0
    server.start()
    for writer in writers:
        assert writer.check(server) == 0


@pytest.mark.parametrize("when", [1, 2, 5, 20])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_failed_write_stops_the_server(new_server, error, when):
    server = new_server().start()
    writers = [Writer(number, seed=when, large_values=False) for number in range(WRITERS)]
    readers = [Reader(writers, seed=when)]
    assert hit(server, writers, readers, LOG_CALLS, f"error={error}:when={when}") == EXIT_LOG_FAILED
    assert "the log failed" in server.log()
    check_after(server, writers, readers)


@pytest.mark.parametrize("durability", ["commit", "interval", "none"])
def test_a_failed_write_stops_the_server_in_every_durability(new_server, durability):
    server = new_server(durability=durability).start()
    writers = [Writer(number, seed=3, large_values=False) for number in range(WRITERS)]
    assert hit(server, writers, [], LOG_CALLS, "error=EIO:when=3") == EXIT_LOG_FAILED
    assert "the log failed" in server.log()
    if durability == "commit":
        check_after(server, writers, [])
    else:
        server.start()


def test_a_failed_sync_is_never_tried_again(new_server):
    """With `interval` the sync is a call of its own. After one failure nothing may be acknowledged."""
    server = new_server(durability="interval").start()
    writers = [Writer(number, seed=4, large_values=False) for number in range(WRITERS)]
    assert hit(server, writers, [], LOG_SYNC_CALLS, "error=EIO:when=1") == EXIT_LOG_FAILED
    trace = server.directory.with_suffix(".strace").read_text()
    assert trace.count("INJECTED") == 1, trace
    server.start()


def test_an_idle_server_that_cannot_write_stops_at_the_first_write(new_server):
    server = new_server().start()
    with server.connect() as connection:
        assert connection.call("SET", "k", "before") == b"OK"
        server.wait_until_idle()
        with injected(server, LOG_CALLS, "error=EIO"):
            connection.send(b"SET k after\r\nGET k\r\n")
            said = connection.read_to_end()
            assert server.wait_exit() == EXIT_LOG_FAILED
    assert b"+OK" not in said
    assert b"after" not in said
    assert said == b"" or said.startswith(b"-IOERR")
    server.start()
    with server.connect() as connection:
        assert connection.call("GET", "k") in (b"before", b"after")


@pytest.mark.oracle
@pytest.mark.parametrize("when", range(1, 9))
def test_killed_at_an_exact_write(new_server, when):
    """SIGKILL arrives inside the log's n-th write after the load has begun."""
    server = new_server().start()
    writers = [Writer(number, seed=50 + when, large_values=False) for number in range(WRITERS)]
    readers = [Reader(writers, seed=when)]
    assert hit(server, writers, readers, LOG_CALLS, f"signal=KILL:when={when}") == -signal.SIGKILL
    check_after(server, writers, readers)


def test_recovery_that_cannot_write_leaves_everything_as_it_was(new_server):
    server = new_server().start()
    writers = [Writer(number, seed=7, large_values=False) for number in range(WRITERS)]
    storm = Storm(server, writers, []).start(acknowledgements=2000)
    storm.wait()
    server.kill()
    storm.join()
    calls = "pwrite64,pwritev2,fdatasync,fsync"
    # With -D strace stays in the background and the server is our child.
    trace = ("strace", "-D", "-f", "-o", "/dev/null", "-P", str(server.directory), "-e", f"trace={calls}")
    for when in range(1, 6):
        wrapper = (*trace, "-e", f"inject={calls}:error=EIO:when={when}")
        failing = new_server(directory=server.directory, wrapper=wrapper)
        failing.spawn()
        wait_until("a decision", lambda failing=failing: not failing.is_running() or failing.answers())
        failing.close()
    server.start()
    for writer in writers:
        writer.check(server)
