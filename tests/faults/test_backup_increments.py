"""sheaf backup onto a backup: brings it up to date with the changes only, and is always a backup of one
moment or another.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.couch import Couch
from harness.cutting_proxy import CuttingProxy
from harness.resp import encode
from harness.server import ANY_PORTS, Server, run_sheaf, sheaf_binary
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


def backup(port: int, dest: Path) -> subprocess.CompletedProcess[str]:
    """Runs `sheaf backup` against an HTTP port."""
    return run_sheaf("backup", str(dest), "--from", f"http://127.0.0.1:{port}")


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that must succeed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The errors of a command that must fail."""
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def check(dest: Path) -> str:
    """The output of `sheaf check` for an intact backup."""
    return succeeded(run_sheaf("check", str(dest)))


def bytes_moved(told: str) -> tuple[int, int]:
    """(copied, reused), as printed by a backup."""
    copied, reused = re.search(r"copied +(\d+) bytes; (\d+) bytes were there already", told).groups()
    return int(copied), int(reused)


def write_keys(server: Server, first: int, keys: int) -> None:
    """Writes incompressible values of 1000 bytes."""
    chance = random.Random(first)
    with server.connect() as connection:
        numbers = range(first, first + keys)
        connection.send(b"".join(encode("SET", f"k{number}", chance.randbytes(1000)) for number in numbers))
        assert [connection.read() for _ in numbers] == [b"OK"] * keys


def write_documents(server: Server, database: str, first: int, documents: int) -> None:
    """Writes new documents of 1 KB."""
    chance = random.Random(first)
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", f"/{database}").status in (201, 412)
        docs = [{"_id": f"d{number:06}", "x": chance.randbytes(500).hex()} for number in range(first, first + documents)]
        answers = couch.ok("POST", f"/{database}/_bulk_docs", {"docs": docs})
        assert all("rev" in answer for answer in answers)


def write_attachment(server: Server, database: str) -> None:
    """Writes a large attachment."""
    with Couch(server.http_port) as couch:
        content = random.Random(7).randbytes(3_000_000)
        couch.ok("PUT", f"/{database}/with/large", content, Content_Type="application/octet-stream")


def save(server: Server) -> None:
    """Takes a snapshot; documents are saved before."""
    with server.connect() as connection:
        assert connection.call("SAVE") == b"OK"


def contents(server: Server) -> list:
    """All keys and documents."""
    found = []
    with server.connect() as connection:
        keys = sorted(connection.call("KEYS", "*"))
        found.append([(key, connection.call("GET", key)) for key in keys])
    with Couch(server.http_port) as couch:
        for database in couch.ok("GET", "/_all_dbs"):
            feed = couch.ok("GET", f"/{database}/_changes?style=all_docs&include_docs=true&attachments=true")
            found.append([database, feed["results"]])
    return found


@pytest.fixture
def restored(new_server):
    """The content of a backup, checked and restored."""

    def restore(dest: Path) -> list:
        check(dest)
        server = new_server()
        succeeded(run_sheaf("restore", str(dest), "--dir", str(server.directory)))
        succeeded(run_sheaf("check", str(server.directory)))
        found = contents(server.start())
        server.kill()
        return found

    return restore


@pytest.fixture
def grown(new_server) -> Server:
    """A server with keys and documents, most of them in a snapshot and in files."""
    server = new_server(log_segment_bytes="1mb").start()
    write_keys(server, 0, 4000)
    write_documents(server, "db", 0, 2000)
    write_documents(server, "other", 0, 1000)
    write_attachment(server, "db")
    save(server)
    return server


def go_on(server: Server) -> None:
    """A little more of everything, and one replaced file."""
    write_keys(server, 3990, 50)
    write_documents(server, "db", 2000, 50)
    with Couch(server.http_port) as couch:
        for number in range(300):
            row = couch.ok("GET", f"/other/d{number:06}")
            couch.ok("DELETE", f"/other/d{number:06}?rev={row['_rev']}")
        couch.ok("POST", "/other/_compact", b"")
    server.wait_for_log('compacted database="other"')
    # A backup has the files that the catalog names; an old file goes when the catalog names the new one.
    trees = server.directory / "documents"
    wait_until("the file before the compaction is gone", lambda: len(list(trees.glob("*.tree"))) == 2)


def test_an_increment_copies_little_and_holds_everything(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    all_bytes, reused = bytes_moved(succeeded(backup(grown.http_port, dest)))
    assert reused == 0
    at_first = contents(grown)
    assert restored(dest) == at_first
    # Without writes, only the files that prove the state are copied, and the log's own records.
    copied, reused = bytes_moved(succeeded(backup(grown.http_port, dest)))
    assert copied < 50_000 and reused >= all_bytes - 1000

    # An earlier state is kept as hard links.
    kept = tmp_path / "kept"
    subprocess.run(["cp", "-al", str(dest), str(kept)], check=True)
    go_on(grown)
    with CuttingProxy(grown.http_port) as proxy:
        copied, reused = bytes_moved(succeeded(backup(proxy.port, dest)))
    # At most 50 keys and 50 documents, 300 deleted ones, and the compacted file of 700.
    assert copied < 3_000_000 < reused, (copied, reused, all_bytes)
    assert proxy.bytes < copied + 500_000
    manifest = json.loads((dest / "backup.json").read_text())
    assert (manifest["format"], manifest["increments"]) == (2, 2)
    assert copied + reused == sum(file["bytes"] for file in manifest["files"])
    stored = {file.get("stored_as", file["name"]) for file in manifest["files"]}
    found = {str(path.relative_to(dest)) for path in dest.rglob("*") if path.is_file()}
    assert found == stored | {"backup.json", "sheaf.lock"}
    assert restored(dest) == contents(grown)
    assert restored(kept) == at_first


def test_a_snapshot_that_the_server_has_dropped_is_copied_anew(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    before = {path.name for path in (dest / "snapshots").iterdir()}
    for number in range(3):
        write_keys(grown, 10 * number, 10)
        save(grown)
    _, reused = bytes_moved(succeeded(backup(grown.http_port, dest)))
    assert reused > 3_000_000, "the files of documents"
    assert not before & {path.name for path in (dest / "snapshots").iterdir()}
    assert restored(dest) == contents(grown)


def test_a_kill_in_the_middle_leaves_the_earlier_backup_and_the_same_command_completes_it(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    at_first = contents(grown)
    go_on(grown)
    write_keys(grown, 5000, 4000)
    save(grown)
    save(grown)
    was_begun = 0
    for number in range(8):
        # As long as the server does not answer, the increment has begun and is not finished.
        with grown.frozen():
            running = subprocess.Popen(
                [sheaf_binary(), "backup", str(dest), "--from", f"http://127.0.0.1:{grown.http_port}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            wait_until("the increment to begin", (dest / "backup-unfinished").exists)
            if number == 0:
                running.send_signal(signal.SIGKILL)
                running.wait()
        # The other kills happen at any moment: earlier and later ones in turn.
        time.sleep(0.01 * number)
        running.send_signal(signal.SIGKILL)
        running.wait()
        told = check(dest)
        if json.loads((dest / "backup.json").read_text())["increments"]:
            break
        assert "unfinished: run the same" in told
        was_begun += 1
    assert was_begun > 0
    if was_begun == 8:
        assert restored(dest) == at_first
    succeeded(backup(grown.http_port, dest))
    assert "unfinished" not in check(dest)
    assert restored(dest) == contents(grown)


def test_an_increment_that_reaches_no_server_leaves_no_mark(grown, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    before = sorted(path.name for path in dest.iterdir())
    assert grown.stop() == 0
    assert "cannot reach the server" in refused(backup(grown.http_port, dest))
    assert sorted(path.name for path in dest.iterdir()) == before


def test_a_backup_is_known_as_one_after_increments_and_interruptions(grown, tmp_path):
    dest = tmp_path / "backup"
    with Couch(grown.http_port) as couch:
        couch.ok("PUT", "/some")
    for number in range(2):
        save(grown)
        write_keys(grown, 5000 + number, 1)
        succeeded(backup(grown.http_port, dest))
    assert not (dest / "documents" / "catalog").exists(), "it has another name after an increment"
    assert "NOT EXPORTED documents" in succeeded(run_sheaf("export", str(tmp_path / "out.rdb"), "--dir", str(dest)))
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0003\xff")
    starts = (("serve", "--dir", str(dest), *ANY_PORTS), ("import", str(tmp_path / "dump.rdb"), "--dir", str(dest)))
    (dest / "backup-unfinished").write_text("{}")
    for start in starts:
        assert "holds a backup, which must stay as it is" in refused(run_sheaf(*start))
    (dest / "backup.json").unlink()
    for start in starts:
        assert "is not complete: run the same `sheaf backup` again" in refused(run_sheaf(*start))


def test_a_broken_connection_leaves_the_earlier_backup(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    at_first = contents(grown)
    write_keys(grown, 5000, 3000)
    with CuttingProxy(grown.http_port, bytes_max=1_500_000) as proxy:
        told = refused(backup(proxy.port, dest))
    assert "interrupted" in told and "to resume it" in told, told
    assert "unfinished: run the same" in check(dest)
    assert restored(dest) == at_first
    with CuttingProxy(grown.http_port) as proxy:
        copied, _ = bytes_moved(succeeded(backup(proxy.port, dest)))
    assert copied < 2_500_000, "what came before is there"
    assert restored(dest) == contents(grown)


def test_another_server_is_refused(grown, new_server, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    at_first, before = contents(grown), sorted(path.name for path in dest.iterdir())
    other = new_server().start()
    write_keys(other, 0, 10)
    assert "backup of another server" in refused(backup(other.http_port, dest))
    assert sorted(path.name for path in dest.iterdir()) == before
    assert restored(dest) == at_first


def test_a_server_that_was_set_back_is_refused(grown, new_server, restored, tmp_path):
    dest, set_back = tmp_path / "backup", new_server()
    assert grown.stop() == 0
    shutil.copytree(grown.directory, set_back.directory, dirs_exist_ok=True)
    grown.start()
    write_keys(grown, 0, 100)
    succeeded(backup(grown.http_port, dest))
    assert grown.stop() == 0
    at_first = restored(dest)
    set_back.start()
    assert "later state" in refused(backup(set_back.http_port, dest))
    write_keys(set_back, 0, 2000)
    assert "has diverged" in refused(backup(set_back.http_port, dest))
    assert restored(dest) == at_first


def test_a_prefix_that_was_tampered_with_is_named_and_copied_again(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    files = [file["name"] for file in json.loads((dest / "backup.json").read_text())["files"]]
    segment = [name for name in files if name.startswith("log-")][0]
    tree = max((name for name in files if name.endswith(".tree")), key=lambda name: (dest / name).stat().st_size)
    for name in (segment, tree):
        content = bytearray((dest / name).read_bytes())
        content[len(content) // 3] ^= 0x20
        (dest / name).write_bytes(content)
    checked = run_sheaf("check", str(dest))
    assert checked.returncode == 1 and tree in checked.stdout + checked.stderr
    go_on(grown)
    told = succeeded(backup(grown.http_port, dest))
    for name in (segment, tree):
        assert re.search(f"DAMAGED +{re.escape(name)} ", told), told
    assert restored(dest) == contents(grown)
    # The copied files beside the backup are resumed.
    write_keys(grown, 0, 10)
    write_documents(grown, "db", 5000, 10)
    copied, _ = bytes_moved(succeeded(backup(grown.http_port, dest)))
    assert copied < 300_000
    assert restored(dest) == contents(grown)


def test_a_backup_of_the_format_before_is_brought_up_to_date(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    manifest = json.loads((dest / "backup.json").read_text())
    del manifest["increments"]
    (dest / "backup.json").write_text(json.dumps(manifest | {"format": 1}))
    write_keys(grown, 0, 10)
    copied, _ = bytes_moved(succeeded(backup(grown.http_port, dest)))
    assert copied < 100_000
    assert restored(dest) == contents(grown)


def test_an_increment_under_load_is_consistent(grown, restored, tmp_path):
    dest = tmp_path / "backup"
    succeeded(backup(grown.http_port, dest))
    acknowledged = 0
    with grown.connect() as connection:
        for number in range(4):
            write_documents(grown, "db", 10_000 + 100 * number, 100)
            for _ in range(50):
                acknowledged = connection.call("INCR", "count")
            succeeded(backup(grown.http_port, dest))
    [keys, *_] = restored(dest)
    assert dict(keys)[b"count"] == b"%d" % acknowledged
    assert not os.path.exists(dest / "backup-unfinished")
