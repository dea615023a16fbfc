"""Log lines in files: `logfile` and `http-access-log`, at the start and at run time, renamed, unwritable."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from harness.couch import Couch
from harness.replicas import call, error_of
from harness.server import ANY_PORTS, run_sheaf
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(path: Path, part: str) -> None:
    wait_until(f"{part!r} in {path.name}", lambda: part in text(path))


def requests(path: Path) -> list[list[str]]:
    """The fields of the lines, without the one that is being written."""
    return [line.split(" ") for line in text(path).splitlines(keepends=True) if line.endswith("\n")]


def test_the_file_of_lines_can_be_given_changed_and_rotated(new_server, tmp_path):
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    server = new_server(extra=("--logfile", str(first))).start()
    wait_for(first, "ready")
    assert server.log() == ""
    assert stat.S_IMODE(first.stat().st_mode) & 0o007 == 0, "lines name users and addresses"
    assert call(server, "CONFIG", "SET", "loglevel", "verbose", "logfile", str(second)) == b"OK"
    server.signal(signal.SIGHUP)
    wait_for(second, "SIGHUP")
    assert "SIGHUP" not in text(first)
    second.rename(tmp_path / "second.log.1")
    server.signal(signal.SIGHUP)
    wait_for(second, "SIGHUP")
    # Any change opens it again, for those who cannot send signals.
    second.rename(tmp_path / "second.log.2")
    assert call(server, "CONFIG", "SET", "logfile", str(second)) == b"OK"
    wait_until("the new file", second.exists)
    assert call(server, "CONFIG", "SET", "logfile", "") == b"OK"
    server.signal(signal.SIGHUP)
    server.wait_for_log("SIGHUP")
    assert "SIGHUP" not in text(second)


@pytest.fixture
def volume(tmp_path):
    volume = Volume(tmp_path, 20 * MIB)
    yield volume
    volume.close()


def test_lines_for_a_disk_that_does_not_answer_keep_no_client_waiting(new_server, volume):
    lines = volume.root / "lines.log"
    server = new_server(extra=("--logfile", str(lines), "--loglevel", "debug")).start()
    try:
        with Couch(server.http_port) as couch:
            with volume.stalled():
                server.signal(signal.SIGHUP)
                for number in range(8):
                    # It opens the file again.
                    assert call(server, "CONFIG", "SET", "ack-timeout", number + 1) == b"OK"
                assert [call(server, "SET", "k", "v") for _ in range(8)] == [b"OK"] * 8
                assert couch.get("/_up").status == 200
            wait_for(lines, "SIGHUP")
    finally:
        server.close()


def test_json_has_numbers_and_whole_paths(new_server):
    server = new_server(extra=("--log-format", "json")).start()
    assert call(server, "SET", "k", "v") == b"OK"
    assert call(server, "SAVE") == b"OK"
    server.wait_for_log("took a snapshot")
    lines = [json.loads(line)["fields"] for line in server.log().splitlines()]
    ready = next(fields for fields in lines if fields["message"] == "ready")
    assert isinstance(ready["seconds"], int | float) and ready["keys"] == 0
    assert ready["dir"].startswith("/")
    taken = next(fields for fields in lines if fields["message"] == "took a snapshot")
    assert isinstance(taken["begin_lsn"], int) and taken["rows"] == 1
    assert server.stop() == 0
    stopped = json.loads(server.log().splitlines()[-1])["fields"]
    assert stopped["message"] == "stopped in order" and isinstance(stopped["lsn"], int)


def test_refused_origins_are_logged_once_with_the_setting(server):
    with Couch(server.http_port) as couch:
        for _ in range(3):
            for origin in ("http://app.example", f"http://127.0.0.1:{server.http_port}"):
                couch.get("/", Origin=origin)
        server.wait_for_log("turn cors on, and list the origin in cors-origins")
        assert call(server, "CONFIG", "SET", "cors", "yes", "cors-origins", "http://app.example") == b"OK"
        couch.get("/", Origin="http://app.example")
        couch.get("/", Origin="http://other.example")
        server.wait_for_log('http://other.example" setting="cors-origins"')
    assert server.log().count("CORS: ") == 2, server.log()


def test_files_that_are_no_logs_are_refused_at_run_time(server, tmp_path):
    keys = tmp_path / "authorized_keys"
    for name in ("logfile", "http-access-log"):
        refused = error_of(call(server, "CONFIG", "SET", name, str(keys)))
        assert name in refused and "end in .log" in refused
        missing = error_of(call(server, "CONFIG", "SET", name, str(tmp_path / "none/a.log")))
        assert "cannot write to" in missing and "No such file" in missing
    assert not keys.exists()


def test_a_file_that_cannot_be_opened_refuses_the_start(tmp_path):
    for name in ("logfile", "http-access-log"):
        refused = run_sheaf("--dir", str(tmp_path / "data"), *ANY_PORTS, f"--{name}", str(tmp_path / "none/a.log"))
        assert refused.returncode == 2 and name in refused.stderr, refused.stderr


def test_a_file_that_is_lost_later_changes_nothing(new_server, tmp_path):
    directory = tmp_path / "logs"
    directory.mkdir()
    server = new_server(extra=("--logfile", str(directory / "a.log"))).start()
    moved = directory.rename(tmp_path / "moved")
    server.signal(signal.SIGHUP)
    wait_for(moved / "a.log", "log lines go on into the earlier file")
    assert call(server, "PING") == b"PONG"


def test_requests_leave_lines_without_secrets(server, tmp_path):
    log = tmp_path / "access.log"
    with Couch(server.http_port) as couch:
        couch.send("GET", "/_up")
        assert call(server, "CONFIG", "SET", "http-access-log", str(log)) == b"OK"
        couch.send("PUT", "/db")
        couch.send("GET", "/db/_all_docs?limit=3&startkey=%22secret%22&token=hush")
        couch.send("GET", "/none")
        couch.send("GET", "/metrics")
    wait_until("four lines", lambda: len(requests(log)) >= 4)
    lines = requests(log)
    assert [len(line) for line in lines] == [8] * 4
    assert [line[3:6] for line in lines] == [
        ["PUT", "/db", "201"],
        ["GET", "/db/_all_docs?limit=3&startkey=...&token=...", "200"],
        ["GET", "/none", "404"],
        ["GET", "/metrics", "200"],
    ]
    assert all(line[0].endswith("Z") and line[1].startswith("127.0.0.1:") and line[2] == "-" for line in lines)
    assert all(int(line[6]) > 0 and float(line[7]) >= 0 for line in lines)
    assert call(server, "CONFIG", "SET", "http-access-log", "") == b"OK"
    with Couch(server.http_port) as couch:
        couch.send("GET", "/_up")
    assert len(requests(log)) == 4


def test_lines_name_users_and_clients_that_leave(new_server, tmp_path):
    log = tmp_path / "access.log"
    extra = ("--http-access-log", str(log), "--log-format", "json", "--admin-password", "s3cret")
    server = new_server(extra=extra).start()
    with Couch(server.http_port, ("admin", "s3cret")) as couch:
        couch.send("PUT", "/db")
        cookie = couch.send("POST", "/_session", {"name": "admin", "password": "s3cret"}).headers["Set-Cookie"].partition(";")[0]
    with Couch(server.http_port, ("ad min\n", "wrong")) as couch:
        assert couch.send("GET", "/db").status == 401
    requests = [("GET", "/db", None), ("POST", "/_redis", [["PING"]]), ("GET", "/metrics", None)]
    with Couch(server.http_port) as couch:
        assert [couch.send(*request, Cookie=cookie).status for request in requests] == [200] * 3
    wait_until("six lines", lambda: len(text(log).splitlines()) == 6)
    shown = [json.loads(line) for line in text(log).splitlines()]
    users = [(line["user"], line["status"]) for line in shown]
    assert users == [("admin", 201), ("admin", 200), ("ad min\n", 401), *[("admin", 200)] * 3]
    assert "s3cret" not in text(log) and "wrong" not in text(log)


def test_a_pipe_without_a_reader_holds_up_nobody(new_server, tmp_path):
    """Its queue and the pipe take what they can, the rest is dropped and counted."""
    pipe = tmp_path / "access.log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server = new_server(extra=("--http-access-log", str(pipe))).start()
    with Couch(server.http_port) as couch:
        for _ in range(2_000):
            assert couch.send("GET", "/_up").status == 200
    server.wait_for_log("requests are missing in the access log")
    os.close(reader)
