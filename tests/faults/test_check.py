"""`sheaf check` and starts agree: for any missing, truncated or changed file, check finds a start that would
be refused.
"""

import json
import shutil
from pathlib import Path

import pytest

from harness.couch import Couch
from harness.replicas import call, follower_of, wait_same
from harness.server import ANY_PORTS, Server, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

SMALL_SEGMENTS = "1mb"
# Files that a start recreates or never reads: losing them loses nothing.
DISPENSABLE = {"sheaf.lock"}


def fill(server: Server) -> None:
    """Keys, a library, documents and attachments, in a snapshot, in files and in the log behind them."""
    with server.connect() as connection, Couch(server.http_port) as couch:
        for number in range(200):
            assert connection.call("SET", f"before:{number}", "x" * 50) == b"OK"
        library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
        assert connection.call("FUNCTION", "LOAD", library) == b"lib"
        for name in ("first", "second"):
            assert couch.send("PUT", f"/{name}").status == 201
            for number in range(20):
                assert couch.send("PUT", f"/{name}/doc-{number}", {"value": number}).status == 201
        index = {"index": {"fields": ["value"]}, "name": "by-value"}
        assert couch.send("POST", "/first/_index", index).status == 200
        assert couch.send("POST", "/first/_find", {"selector": {"value": {"$gt": 3}}}).status == 200
        assert connection.call("SAVE") == b"OK"
        assert connection.call("SET", "after", "1") == b"OK"
        assert couch.send("PUT", "/first/later", {"value": -1}).status == 201


@pytest.fixture
def leader_directory(new_server) -> Path:
    """The directory of a server that was stopped in order and has saved settings."""
    server = new_server(log_segment_bytes=SMALL_SEGMENTS).start()
    fill(server)
    assert server.stop() == 0
    assert list(server.directory.glob("documents/*.tree")), "documents are saved"
    (server.directory / "settings.toml").write_text("maxclients = 77\n")
    return server.directory


@pytest.fixture
def replica_directory(new_server) -> Path:
    """The directory of a replica."""
    leader = new_server(log_segment_bytes=SMALL_SEGMENTS).start()
    fill(leader)
    # The leader is given once, by a command: the next start knows it from its files only.
    replica = new_server(log_segment_bytes=SMALL_SEGMENTS).start()
    assert call(replica, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    wait_same(leader, replica)
    assert replica.stop() == 0
    leader.kill()
    return replica.directory


@pytest.fixture
def member_directory(new_server) -> Path:
    """The directory of the only member of a group."""
    server = new_server(log_segment_bytes=SMALL_SEGMENTS, extra=("--group", "shop")).start()
    wait_until("the member to lead", lambda: call(server, "SET", "k", "1") == b"OK")
    assert server.stop() == 0
    return server.directory


def damages(intact: bytes):
    """The possible fates of a file: (description, contents or None)."""
    yield "removed", None
    yield "emptied", b""
    if intact:
        yield "cut in half", intact[: len(intact) // 2]
        yield "cut by a byte", intact[:-1]
        for where, at in (("first", 0), ("middle", len(intact) // 2), ("last", -1)):
            changed = bytearray(intact)
            changed[at] ^= 0x04
            yield f"{where} byte changed", bytes(changed)


@pytest.mark.parametrize("kind", ["leader_directory", "replica_directory"])
def test_check_finds_all_damage_that_a_start_refuses(new_server, kind, request):
    directory: Path = request.getfixturevalue(kind)
    checked = run_sheaf("check", str(directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    files = [path.relative_to(directory) for path in sorted(directory.rglob("*")) if path.is_file()]
    assert {"control", "replication.json"} <= {str(file) for file in files}
    found = set()
    for file in files:
        intact = (directory / file).read_bytes()
        for what, contents in damages(intact):
            copy = new_server(log_segment_bytes=SMALL_SEGMENTS)
            shutil.copytree(directory, copy.directory)
            (copy.directory / file).unlink()
            if contents is not None:
                (copy.directory / file).write_bytes(contents)
            checked = run_sheaf("check", str(copy.directory))
            assert checked.returncode in (0, 1), f"{file} {what}: {checked.stderr}"
            if checked.returncode == 0:
                # Fails if it is refused.
                copy.start()
                copy.kill()
            else:
                found.add(str(file))
            shutil.rmtree(copy.directory)
    for name in ("control", "documents/catalog"):
        assert name in found, found
    assert not found & DISPENSABLE, found


def test_check_finds_unfinished_work_and_wrong_settings(leader_directory):
    for name, text in (
        ("import-unfinished", ""),
        ("restore-unfinished", ""),
        ("settings.toml", "maxclients = many\n"),
        ("settings.toml", 'replica-of = "nowhere"\n'),
    ):
        path = leader_directory / name
        before = path.read_text() if path.exists() else None
        path.write_text(text)
        checked = run_sheaf("check", str(leader_directory))
        assert checked.returncode == 1, (name, checked.stdout)
        path.unlink()
        if before is not None:
            path.write_text(before)
    assert run_sheaf("check", str(leader_directory)).returncode == 0


def test_a_damaged_membership_is_found(member_directory):
    assert run_sheaf("check", str(member_directory)).returncode == 0
    group = member_directory / "group.json"
    group.write_bytes(group.read_bytes().replace(b'"founded": true', b'"founded": false'))
    for command in (
        ("check", str(member_directory)),
        ("serve", *ANY_PORTS, "--dir", str(member_directory)),
    ):
        refused = run_sheaf(*command)
        assert refused.returncode == 1, refused.stdout
        assert "group.json is damaged (checksum mismatch)" in refused.stderr


def test_documents_and_log_of_different_days_are_found(new_server, tmp_path):
    server = new_server(log_segment_bytes=SMALL_SEGMENTS).start()
    fill(server)
    assert server.stop() == 0
    shutil.copytree(server.directory / "documents", tmp_path / "documents")
    server.start()
    fill_more(server)
    assert server.stop() == 0
    shutil.rmtree(server.directory / "documents")
    shutil.copytree(tmp_path / "documents", server.directory / "documents")
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 1, checked.stdout
    assert "not of the same moment" in checked.stderr


def fill_more(server: Server) -> None:
    """Enough writes that two more snapshots remove the log in between."""
    with server.connect() as connection, Couch(server.http_port) as couch:
        for number in range(3):
            assert couch.send("PUT", f"/first/more-{number}", {"value": number}).status == 201
            assert connection.call("SAVE") == b"OK"


@pytest.mark.parametrize("told", ["a leader", "to lead", "nothing"])
def test_a_replica_without_replication_json_must_be_told_its_role(new_server, told):
    leader = new_server().start()
    assert call(leader, "SET", "k", "1") == b"OK"
    replica = follower_of(new_server, leader)
    wait_same(leader, replica)
    assert replica.stop() == 0
    (replica.directory / "replication.json").unlink()
    if told == "a leader":
        replica.start()
        wait_same(leader, replica)
        return
    if told == "to lead":
        replica.options.extra = ("--replica-of", "none")
        replica.start()
        assert call(replica, "SET", "k", "2") == b"OK"
        assert replica.stop() == 0
        replica.options.extra = ()
        replica.start()
        assert call(replica, "GET", "k") == b"2"
        return
    for command in (
        ("serve", *ANY_PORTS, "--dir", str(replica.directory)),
        ("check", str(replica.directory)),
    ):
        refused = run_sheaf(*command)
        assert refused.returncode == 1, refused.stdout
        for part in ("replication.json", "is missing", "--replica-of HOST:PORT", "--replica-of none"):
            assert part in refused.stderr, (part, refused.stderr)
    assert not (replica.directory / "replication.json").exists()


def test_a_leader_needs_no_replication_json(new_server):
    server = new_server().start()
    assert call(server, "SET", "k", "1") == b"OK"
    assert server.stop() == 0
    (server.directory / "replication.json").unlink()
    server.start()
    assert call(server, "SET", "k", "2") == b"OK"


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_missing_directory_of_documents_is_reported(new_server, how):
    """The log no longer has the missing documents: without the message, the loss would be silent."""
    server = new_server(log_segment_bytes=SMALL_SEGMENTS).start()
    fill(server)
    fill_more(server)
    assert server.stop() == 0
    shutil.rmtree(server.directory / "documents")
    if how == "emptied":
        (server.directory / "documents").mkdir()
    for arguments in (("check", str(server.directory)), ("serve", "--dir", str(server.directory), *ANY_PORTS)):
        refused = run_sheaf(*arguments)
        assert refused.returncode == 1, refused.stdout
        assert "documents/ is missing or empty" in refused.stderr and "--force-recovery" in refused.stderr
    server.options.extra = ("--force-recovery",)
    server.start()
    server.options.extra = ()
    places = json.loads((server.directory / "recovery-report.json").read_text())["places"]
    assert [place["what"] for place in places] == ["all files of documents"]
    assert call(server, "GET", "before:7") == b"x" * 50
    assert call(server, "CONFIG", "SET", "force-recovery", "confirmed") == b"OK"
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", "/third").status == 201
    assert server.stop() == 0
    server.start()
    assert call(server, "GET", "before:7") == b"x" * 50
    with Couch(server.http_port) as couch:
        assert couch.send("GET", "/_all_dbs").json == ["third"]


def test_missing_documents_are_rebuilt_if_the_log_has_them(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", "/first").status == 201
        assert couch.send("PUT", "/first/doc", {"value": 7}).status == 201
    wait_until("documents to be saved", (server.directory / "documents" / "catalog").exists)
    server.kill()
    shutil.rmtree(server.directory / "documents")
    assert run_sheaf("check", str(server.directory)).returncode == 0
    server.start()
    with Couch(server.http_port) as couch:
        assert couch.send("GET", "/_all_dbs").json == ["first"]
        assert couch.send("GET", "/first/doc").json["value"] == 7


def test_a_damaged_file_of_documents_says_how_to_go_on(leader_directory):
    (leader_directory / "documents" / "catalog").unlink()
    for arguments in (("check", str(leader_directory)), ("serve", "--dir", str(leader_directory), *ANY_PORTS)):
        refused = run_sheaf(*arguments)
        assert refused.returncode == 1
        assert "move documents/ out of the data directory and start again" in refused.stderr
