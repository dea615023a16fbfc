"""sheaf backup and sheaf restore on the real binary: under load, interrupted, damaged, with a password, to a
point in time.
"""

import base64
import json
import random
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.cutting_proxy import CuttingProxy
from harness.oracle import Operation, State
from harness.resp import ErrorReply, encode
from harness.server import ANY_PORTS, Server, run_sheaf
from harness.storm import Storm, Writer, contents
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

WRITERS = 6
SESSIONS_MAX = 4
SEGMENT_BYTES = 1 << 20


def backup(port: int, dest: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `sheaf backup` against an HTTP port."""
    return run_sheaf("backup", str(dest), "--from", f"http://127.0.0.1:{port}", *arguments)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that must succeed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The errors of a command that must fail."""
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


@pytest.fixture
def restored(new_server):
    """Restores, checks, and starts a server on the result."""

    def restore(source: Path, *target: str) -> Server:
        server = new_server()
        succeeded(run_sheaf("restore", str(source), "--dir", str(server.directory), *target))
        succeeded(run_sheaf("check", str(server.directory)))
        return server.start()

    return restore


def fill(server: Server, keys: int, first: int = 0) -> None:
    """Writes incompressible values of 1000 bytes."""
    chance = random.Random(first)
    with server.connect() as connection:
        numbers = range(first, first + keys)
        connection.send(b"".join(encode("SET", f"k{number}", chance.randbytes(1000)) for number in numbers))
        assert [connection.read() for _ in numbers] == [b"OK"] * keys


def take_snapshot(server: Server) -> None:
    """Takes a snapshot and returns when it exists."""
    with server.connect() as connection:
        # The server may take one by itself just now.
        wait_until("a snapshot", lambda: connection.call("SAVE") == b"OK")


def ask(server: Server, method: str, path: str, **headers: str):
    """(status, headers, body) of a request to the HTTP port."""
    url = f"http://127.0.0.1:{server.http_port}{path}"
    # Only requests that declare JSON may change data.
    asked = urllib.request.Request(url, method=method, headers={"Content-Type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def begin(server: Server) -> dict:
    """Begins a session and returns its answer."""
    status, _, body = ask(server, "POST", "/_backup")
    assert status == 201, body
    return json.loads(body)


class RecordingWriter(Writer):
    """A writer that remembers all commands that it has sent."""

    def __init__(self, number: int, seed: int):
        super().__init__(number, seed)
        self.history: list[Operation] = []
        sent = self.oracle.sent

        def remember(operation: Operation) -> None:
            self.history.append(operation)
            sent(operation)

        self.oracle.sent = remember

    def position_of(self, found: State, acknowledged: int) -> int:
        """The number of commands, not fewer than were acknowledged, after which the database had the found
        state.
        """
        state: State = {}
        for position, operation in enumerate([None, *self.history]):
            if operation is not None:
                operation.apply(state)
            if position >= acknowledged and state == found:
                return position
        raise AssertionError(f"writer {self.number}: no state from command {acknowledged} on is what was restored")


@pytest.mark.oracle
@pytest.mark.parametrize("durability", ["strict", "none"])
def test_a_backup_under_full_load_holds_all_that_was_acknowledged_before(
    new_server, restored, tmp_path, request, durability
):
    server = new_server(durability=durability, log_segment_bytes="1mb").start()
    writers = [RecordingWriter(number, request.config.getoption("seed")) for number in range(WRITERS)]
    storm = Storm(server, writers, []).start(3000)
    storm.wait()
    for number in range(3):
        before = [writer.oracle.acknowledged for writer in writers]
        succeeded(backup(server.http_port, tmp_path / f"backup-{number}"))
        if number == 1:
            take_snapshot(server)
    storm.stop()
    storm.join()
    succeeded(run_sheaf("check", str(tmp_path / "backup-2")))
    copy = restored(tmp_path / "backup-2")
    for writer, acknowledged in zip(writers, before, strict=True):
        with writer.connect(copy) as connection:
            assert acknowledged <= writer.position_of(contents(connection), acknowledged) <= len(writer.history)


class TestInterrupted:
    """The copied files are kept, if the server still has their snapshot."""

    @pytest.fixture
    def interrupted(self, new_server, tmp_path):
        """A server, and a backup of it that was interrupted in the middle."""
        server = new_server(log_segment_bytes="1mb").start()
        fill(server, 4000)
        take_snapshot(server)
        fill(server, 3000, first=4000)
        dest = tmp_path / "backup"
        with CuttingProxy(server.http_port, bytes_max=5_500_000) as proxy:
            told = refused(backup(proxy.port, dest))
        assert "interrupted" in told and "to resume it" in told, told
        assert not (dest / "backup.json").exists()
        return server, dest

    def test_an_interrupted_backup_is_continued(self, interrupted, restored):
        server, dest = interrupted
        kept = sum(path.stat().st_size for path in dest.rglob("*.part")) + sum(
            path.stat().st_size for path in dest.glob("log-*.seg")
        )
        assert kept > 4_000_000
        with CuttingProxy(server.http_port) as proxy:
            told = succeeded(backup(proxy.port, dest))
        assert "starts over" not in told
        total = json.loads((dest / "backup.json").read_text())
        assert proxy.bytes < sum(file["bytes"] for file in total["files"]) - kept + 100_000
        with restored(dest).connect() as connection:
            assert connection.call("DBSIZE") == 7000

    def test_an_interrupted_backup_is_not_restored(self, interrupted, tmp_path):
        _, dest = interrupted
        for arguments in (("check", str(dest)), ("restore", str(dest), "--dir", str(tmp_path / "new"))):
            assert "not complete" in refused(run_sheaf(*arguments))
        assert not (tmp_path / "new").exists()

    def test_a_backup_starts_over_when_the_snapshot_is_gone(self, interrupted, restored):
        server, dest = interrupted
        [session] = re.findall(r'a copy of the files begins, for a backup or a replica session="(\w+)"', server.log())
        assert ask(server, "DELETE", f"/_backup/{session}")[0] == 200
        for number in range(2):
            fill(server, 10, first=7000 + 10 * number)
            take_snapshot(server)
        assert "starts over" in succeeded(backup(server.http_port, dest))
        with restored(dest).connect() as connection:
            assert connection.call("DBSIZE") == 7020


class TestDamaged:
    """Damage is found by the check and refused by the restore."""

    @pytest.fixture
    def complete(self, new_server, tmp_path):
        """A backup of a server, with a snapshot and log behind it."""
        server = new_server(log_segment_bytes="1mb").start()
        fill(server, 500)
        take_snapshot(server)
        fill(server, 1500, first=500)
        succeeded(backup(server.http_port, tmp_path / "backup"))
        return tmp_path / "backup"

    def test_a_flipped_bit_anywhere(self, complete, tmp_path):
        files = [complete / file["name"] for file in json.loads((complete / "backup.json").read_text())["files"]]
        chance = random.Random(1)
        for path in files:
            intact = path.read_bytes()
            damaged = bytearray(intact)
            # The front of the first segment lies before the snapshot: it is checked, but a restore does not
            # need it.
            at = chance.randrange(len(intact) // 2, len(intact))
            damaged[at] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            assert path.name in refused(run_sheaf("check", str(complete))), f"byte {at}"
            if not path.name.startswith("log-"):
                told = refused(run_sheaf("restore", str(complete), "--dir", str(tmp_path / "new")))
                assert path.name in told, told
            path.write_bytes(intact)
        succeeded(run_sheaf("check", str(complete)))

    def test_damage_in_the_log_or_a_file_that_is_cut_or_missing(self, complete, tmp_path):
        *_, last = sorted(complete.glob("log-*.seg"))
        intact = last.read_bytes()
        damaged = bytearray(intact)
        damaged[len(intact) // 2] ^= 0x10
        for content in (bytes(damaged), intact[:-4096], None):
            last.unlink()
            if content is not None:
                last.write_bytes(content)
            for arguments in (("check", str(complete)), ("restore", str(complete), "--dir", str(tmp_path / "new"))):
                # A record may begin in the segment before.
                assert re.search(r"log-\w+\.seg", refused(run_sheaf(*arguments)))
            last.write_bytes(intact)
        succeeded(run_sheaf("restore", str(complete), "--dir", str(tmp_path / "newer")))

    def test_a_complete_backup_stays_as_it_is(self, complete, server, tmp_path):
        assert "backup of another server" in refused(backup(server.http_port, complete))
        succeeded(run_sheaf("export", str(tmp_path / "dump.rdb"), "--dir", str(complete)))
        for arguments in (
            ("serve", "--dir", str(complete), *ANY_PORTS),
            ("import", str(tmp_path / "dump.rdb"), "--dir", str(complete), "--replace-existing"),
        ):
            assert "sheaf restore" in refused(run_sheaf(*arguments))
        succeeded(run_sheaf("check", str(complete)))


def test_only_an_empty_directory_becomes_a_backup_or_is_restored_into(server, tmp_path):
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "notes.txt").write_text("mine")
    assert "not empty" in refused(backup(server.http_port, occupied))
    fill(server, 10)
    succeeded(backup(server.http_port, tmp_path / "backup"))
    assert "not empty" in refused(run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(occupied)))
    restored = run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(tmp_path / "restored"))
    assert restored.returncode == 0 and "settings that CONFIG SET has made" in restored.stdout, restored.stdout
    assert sorted(path.name for path in occupied.iterdir()) in (["notes.txt"], ["notes.txt", "sheaf.lock"])
    assert "neither a backup" in refused(run_sheaf("restore", str(occupied), "--dir", str(tmp_path / "new")))


def test_an_unreachable_server_is_an_error(server, tmp_path):
    server.stop()
    assert "--from" in refused(backup(server.http_port, tmp_path / "backup"))


def test_a_restore_that_did_not_finish_is_not_served(server, tmp_path):
    succeeded(backup(server.http_port, tmp_path / "backup"))
    new = tmp_path / "new"
    succeeded(run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(new)))
    (new / "restore-unfinished").touch()
    for arguments in (
        ("serve", "--dir", str(new), *ANY_PORTS),
        ("restore", str(tmp_path / "backup"), "--dir", str(new)),
        ("export", str(tmp_path / "out.rdb"), "--dir", str(new)),
    ):
        assert "did not finish" in refused(run_sheaf(*arguments))


class TestPassword:
    """Clients with access to the Redis port may make backups, and no others."""

    @pytest.fixture
    def protected(self, new_server) -> Server:
        """A server with a password."""
        return new_server(requirepass="seal:ed").start()

    def test_the_password_is_needed(self, protected, tmp_path):
        assert "--password-file" in refused(backup(protected.http_port, tmp_path / "backup"))
        (tmp_path / "wrong").write_text("sealed\n")
        wrong = ("--password-file", str(tmp_path / "wrong"))
        assert "incorrect" in refused(backup(protected.http_port, tmp_path / "backup", *wrong))
        (tmp_path / "right").write_text("seal:ed\n")
        succeeded(backup(protected.http_port, tmp_path / "backup", "--password-file", str(tmp_path / "right")))

    def test_the_password_of_the_admin_is_one_too(self, new_server, tmp_path):
        server = new_server(extra=("--admin-password", "seal:ed")).start()
        (tmp_path / "password").write_text("seal:ed\n")
        given = ("--password-file", str(tmp_path / "password"))
        assert "--user" in refused(backup(server.http_port, tmp_path / "backup", *given))
        succeeded(backup(server.http_port, tmp_path / "backup", "--user", "admin", *given))

    @pytest.mark.parametrize("given", [None, "default:", "default:seal:e", "default:seal:edd", "root:seal:ed"])
    def test_no_path_is_open_without_the_password(self, protected, given):
        headers = {"Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"} if given else {}
        paths = (("POST", "/_backup"), ("GET", "/_backup/x/control"), ("DELETE", "/_backup/x"), ("GET", "/metrics"))
        for method, path in paths:
            status, told, body = ask(protected, method, path, **headers)
            assert (status, json.loads(body)["error"]) == (401, "unauthorized")
            assert told["WWW-Authenticate"].startswith("Basic")


class TestSessions:
    """The files that a server keeps for running backups, and for how long."""

    @pytest.fixture
    def busy(self, new_server) -> Server:
        """A server with several segments of log."""
        server = new_server(log_segment_bytes="1mb", extra=("--backup-retention-bytes", "8mb")).start()
        fill(server, 2000)
        take_snapshot(server)
        fill(server, 2000, first=2000)
        return server

    def test_offered_files_stay_after_newer_snapshots(self, busy):
        offer = begin(busy)
        files = {file["name"]: file["bytes"] for file in offer["files"]}
        path = f"/_backup/{offer['session']}"
        early = {name: ask(busy, "GET", f"{path}/{name}")[2] for name in files}
        assert {name: len(body) for name, body in early.items()} == files
        for number in range(3):
            fill(busy, 1000, first=4000 + 1000 * number)
            take_snapshot(busy)
        assert {name: ask(busy, "GET", f"{path}/{name}")[2] for name in files} == early
        kept = [busy.directory / name for name in files if name != "control"]
        assert all(file.exists() for file in kept)
        assert ask(busy, "DELETE", path)[0] == 200
        # One segment waits for reuse.
        wait_until("what was kept to be removed", lambda: sum(file.exists() for file in kept) <= 1)
        assert ask(busy, "GET", f"{path}/control")[0] == 404
        assert ask(busy, "DELETE", path)[0] == 404

    def test_ranges(self, busy):
        offer = begin(busy)
        path = f"/_backup/{offer['session']}"
        for file in offer["files"]:
            whole = ask(busy, "GET", f"{path}/{file['name']}")[2]
            middle = len(whole) // 2
            status, headers, body = ask(busy, "GET", f"{path}/{file['name']}", Range=f"bytes={middle}-")
            assert (status, body) == (206, whole[middle:])
            assert headers["Content-Range"] == f"bytes {middle}-{len(whole) - 1}/{len(whole)}"
            status, headers, _ = ask(busy, "GET", f"{path}/{file['name']}", Range=f"bytes={len(whole)}-")
            assert (status, headers["Content-Range"]) == (416, f"bytes */{len(whole)}")

    @pytest.mark.parametrize("name", ["sheaf.lock", "../control", "%2e%2e/control", "/etc/passwd", "log-0.seg", ""])
    def test_only_offered_files_are_served(self, busy, name):
        session = begin(busy)["session"]
        assert ask(busy, "GET", f"/_backup/{session}/{name}")[0] == 404

    def test_the_number_of_sessions_is_limited(self, busy):
        sessions = [begin(busy)["session"] for _ in range(SESSIONS_MAX)]
        status, _, body = ask(busy, "POST", "/_backup")
        assert (status, json.loads(body)["error"]) == (429, "too_many_requests")
        assert ask(busy, "DELETE", f"/_backup/{sessions[0]}")[0] == 200
        begin(busy)

    def test_one_that_keeps_too_much_of_the_log_is_given_up(self, busy):
        session = begin(busy)["session"]
        # A session without copies gives way sooner.
        assert ask(busy, "GET", f"/_backup/{session}/control")[0] == 200
        fill(busy, 9000)
        wait_until("the session to end", lambda: ask(busy, "GET", f"/_backup/{session}/control")[0] == 404)
        busy.wait_for_log("backup-retention-bytes")
        fill(busy, 10)

    def test_a_server_that_is_empty_has_backups_as_well(self, server, restored, tmp_path):
        succeeded(backup(server.http_port, tmp_path / "backup"))
        with restored(tmp_path / "backup").connect() as connection:
            assert connection.call("DBSIZE") == 0


class TestPointInTime:
    """The state of a moment, restored from a backup or from the directory of a stopped server."""

    @pytest.fixture
    def moments(self, server, tmp_path):
        """The times at which `n` was 0, 1, ...; a backup of the last state; the server has stopped."""
        succeeded(backup(server.http_port, tmp_path / "before"))
        times = []
        with server.connect() as connection:
            for number in range(5):
                assert connection.call("SET", "n", number) == b"OK"
                assert connection.call("RPUSH", "list", number) == number + 1
                times.append(time.time())
                wait_until("a later millisecond", lambda: time.time() > times[-1] + 0.002)
        succeeded(backup(server.http_port, tmp_path / "backup"))
        server.stop()
        return times

    def check(self, copy: Server, number: int) -> None:
        """The server holds the state of this moment."""
        with copy.connect() as connection:
            assert connection.call("GET", "n") == b"%d" % number
            assert connection.call("LRANGE", "list", 0, -1) == [b"%d" % each for each in range(number + 1)]
            assert connection.call("SET", "n", "another history") == b"OK"

    @pytest.mark.parametrize("number", [0, 2, 4])
    def test_by_time(self, server, moments, restored, tmp_path, number):
        iso = datetime.fromtimestamp(moments[number], UTC).isoformat()
        self.check(restored(server.directory, "--to-time", iso), number)
        self.check(restored(tmp_path / "backup", "--to-time", f"{moments[number]:.3f}"), number)

    def test_by_position(self, server, moments, restored):
        shown = succeeded(run_sheaf("log", str(server.directory), "--key", "list"))
        positions = [int(line.split()[0]) for line in shown.splitlines() if "push" in line]
        assert len(positions) == len(moments)
        for number in (1, 3):
            self.check(restored(server.directory, "--to-lsn", str(positions[number])), number)

    def test_a_target_outside_the_held_range_is_refused(self, server, moments, tmp_path):
        new = tmp_path / "new"
        for target in (("--to-time", "2001-01-01T00:00:00Z"), ("--to-time", str(moments[-1] + 3600))):
            told = refused(run_sheaf("restore", str(server.directory), "--dir", str(new), *target))
            assert re.search(r"it holds lsn \d+ \(\d{4}-.*Z\) to lsn \d+ \(\d{4}-.*Z\)", told), told
        assert "to lsn" in refused(run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(new), "--to-lsn", "9" * 15))

    def test_of_a_server_that_runs_only_by_a_backup(self, server, moments, tmp_path):
        server.start()
        told = refused(run_sheaf("restore", str(server.directory), "--dir", str(tmp_path / "new")))
        assert f"process {server.pid}" in told


def test_a_backup_begins_although_a_client_cancels_its_snapshot(server):
    fill(server, 50_000)
    cancelled, given_up = threading.Event(), threading.Event()

    def cancel() -> None:
        with server.connect() as canceller:
            while not cancelled.is_set() and not given_up.is_set():
                if not isinstance(canceller.call("BGSAVE", "CANCEL"), ErrorReply):
                    cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        status, _, body = ask(server, "POST", "/_backup")
    finally:
        given_up.set()
        canceller.join()
    assert status == 201, body
    assert cancelled.is_set()


def test_the_export_of_a_running_server_is_that_of_its_directory(new_server, tmp_path):
    server = new_server(requirepass="s3cret").start()
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    with server.connect() as connection:
        connection.call("MSET", "a", "1", "{b}1", "x" * 1000)
        connection.call("HSET", "h", "f", "v", "g", "w")
        connection.call("HPEXPIREAT", "h", "4102444800000", "FIELDS", "1", "f")
        connection.call("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)")
    url = f"http://127.0.0.1:{server.http_port}"
    live, stopped = tmp_path / "live.rdb", tmp_path / "stopped.rdb"
    without = run_sheaf("export", str(live), "--from", url)
    assert "--password-file" in refused(without) and not live.exists()
    login = ("--from", url, "--password-file", str(password))
    told = refused(run_sheaf("export", str(live), *login))
    assert "--drop-field-expiry" in told and not live.exists()
    printed = succeeded(run_sheaf("export", str(live), *login, "--rdb-version", "12"))
    assert "exported     3 keys" in printed and "functions    1 library\n" in printed
    assert server.stop() == 0
    succeeded(run_sheaf("export", str(stopped), "--dir", str(server.directory), "--rdb-version", "12"))
    # The time of its making, and so the checksum, differs.
    assert len(live.read_bytes()) == len(stopped.read_bytes())
    kept = [path.name for path in tmp_path.iterdir() if "export-copy" in path.name]
    assert kept in ([], ["live.rdb.export-copy"])
    assert not (tmp_path / "live.rdb.export-copy" / "backup.json").exists(), "the copy is removed"


def test_an_export_says_which_servers_it_reads(server, tmp_path):
    for url in (f"redis://127.0.0.1:{server.port}", f"127.0.0.1:{server.http_port}"):
        told = refused(run_sheaf("export", str(tmp_path / "a.rdb"), "--from", url))
        assert "is not the HTTP port of a Sheaf" in told and "redis-cli -h HOST --rdb FILE" in told
