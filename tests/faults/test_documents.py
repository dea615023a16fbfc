"""Documents in all places where keys are: in backups, restores, replicas, and after a log that was cut."""

import base64
import threading
from pathlib import Path

import pytest

from harness.couch import Couch
from harness.document_storm import DocumentWriter, check_feed, storm
from harness.replicas import call, follower_of, info, wait_following
from harness.server import Server, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

WRITERS = 4


def content(server: Server, database: str) -> list:
    """Everything in a database that clients can see, with the feed."""
    with Couch(server.http_port) as couch:
        feed = couch.ok("GET", f"/{database}/_changes?style=all_docs&include_docs=true&attachments=true")
        local = [couch.get(f"/{database}/_local/{number}").body for number in range(WRITERS)]
        return [feed["results"], feed["last_seq"], local, couch.ok("GET", f"/{database}/_security")]


def fill(server: Server) -> None:
    """Databases with conflicts, deletions, attachments of both sizes, settings."""
    with Couch(server.http_port) as couch:
        for name in ("db", "gone", "empty"):
            couch.ok("PUT", f"/{name}")
        couch.ok("PUT", "/db/_security", {"admins": {"names": ["a"], "roles": []}})
        couch.ok("PUT", "/db/_revs_limit", b"17")
        docs = [{"_id": f"d{number:04}", "n": number, "filling": "x" * 500} for number in range(1000)]
        couch.ok("POST", "/db/_bulk_docs", {"docs": docs})
        for hash_ in ("a", "b"):
            conflict = {"_id": "conflict", "_rev": "1-" + hash_ * 32, "by": hash_}
            couch.ok("POST", "/db/_bulk_docs", {"docs": [conflict], "new_edits": False})
        rev = couch.put("db", {"_id": "deleted"})
        couch.ok("DELETE", f"/db/deleted?rev={rev}")
        small = {"content_type": "text/plain", "data": base64.b64encode(b"small").decode()}
        rev = couch.put("db", {"_id": "with", "_attachments": {"small": small}})
        couch.ok("PUT", f"/db/with/large?rev={rev}", bytes(range(256)) * 4000, Content_Type="application/x-large")
        couch.ok("PUT", "/db/_local/0", {"checkpoint": 7})
        couch.put("gone", {"_id": "x"})
        couch.ok("DELETE", "/gone")


def save(server: Server) -> None:
    """Takes a snapshot: documents are saved, and the log before it may be removed."""
    assert call(server, "SAVE") == b"OK"


@pytest.fixture
def filled(new_server) -> Server:
    server = new_server(log_segment_bytes="1mb").start()
    fill(server)
    return server


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_restart_finds_everything(filled, is_saved):
    before = content(filled, "db")
    if is_saved:
        save(filled)
        assert filled.stop() == 0
    else:
        filled.kill()
    filled.start()
    assert content(filled, "db") == before
    with Couch(filled.http_port) as couch:
        assert couch.ok("GET", "/_all_dbs") == ["db", "empty"]
        assert couch.ok("GET", "/db/_revs_limit") == 17
        couch.put("db", {"_id": "after"})


def test_flushall_leaves_documents_alone(filled):
    before = content(filled, "db")
    for _ in range(3):
        with filled.connect() as connection:
            for number in range(200):
                connection.call("SET", f"k{number}", b"x" * 10_000)
            connection.call("FLUSHALL")
        wait_until("the log to be cut", lambda: not (filled.directory / "log-0000000000100000.seg").exists())
    filled.kill()
    filled.start()
    assert content(filled, "db") == before


@pytest.mark.oracle
def test_a_backup_under_load_holds_acknowledged_changes(new_server, filled, tmp_path, request):
    writers = [DocumentWriter(number, request.config.getoption("seed")) for number in range(WRITERS)]
    with Couch(filled.http_port) as couch:
        couch.ok("PUT", "/storm")
    save(filled)
    threads = storm(filled, "storm", writers, 300)
    acknowledged = {id_: known.rev for writer in writers for id_, known in writer.known.items() if known.rev}
    made = run_sheaf("backup", str(tmp_path / "copy"), "--from", f"http://127.0.0.1:{filled.http_port}")
    assert made.returncode == 0, made.stdout + made.stderr
    before = content(filled, "db")
    filled.kill()
    for thread in threads:
        thread.join()
    checked = run_sheaf("check", str(tmp_path / "copy"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    restored = restore(new_server, tmp_path / "copy")
    assert content(restored, "db") == before
    with Couch(restored.http_port) as couch:
        for id_, rev in acknowledged.items():
            leaf = couch.ok("GET", f"/storm/{id_}?open_revs=all&revs=true")[0]["ok"]["_revisions"]
            path = [f"{leaf['start'] - back}-{hash_}" for back, hash_ in enumerate(leaf["ids"])]
            assert rev in path, f"{id_} was acknowledged as {rev} before the backup"


def restore(new_server, source: Path, *target: str) -> Server:
    """A running server on the restored directory."""
    server = new_server()
    done = run_sheaf("restore", str(source), "--dir", str(server.directory), *target)
    assert done.returncode == 0, done.stdout + done.stderr
    return server.start()


def test_a_point_in_time_is_that_of_documents_too(new_server, filled):
    save(filled)
    with Couch(filled.http_port) as couch:
        couch.put("db", {"_id": "kept"})
    before = content(filled, "db")
    position = int(info(filled)["master_repl_offset"])
    with Couch(filled.http_port) as couch:
        couch.put("db", {"_id": "undone"})
        couch.ok("PUT", "/undone")
    assert filled.stop() == 0
    restored = restore(new_server, filled.directory, "--to-lsn", str(position))
    assert content(restored, "db") == before
    with Couch(restored.http_port) as couch:
        assert couch.ok("GET", "/_all_dbs") == ["db", "empty"]
        couch.put("db", {"_id": "another"})
    restored.kill()
    restored.start()
    with Couch(restored.http_port) as couch:
        assert couch.get("/db/another").status == 200 and couch.get("/db/undone").status == 404


def test_a_deleted_database_comes_back_only_from_a_backup(new_server, filled, tmp_path):
    save(filled)
    position = int(info(filled)["master_repl_offset"])
    with Couch(filled.http_port) as couch:
        couch.ok("DELETE", "/db")
    assert filled.stop() == 0
    target = ("--dir", str(tmp_path / "restored"), "--to-lsn", str(position))
    refused = run_sheaf("restore", str(filled.directory), *target)
    assert refused.returncode == 1 and "older backup" in refused.stderr, refused.stderr


def wait_caught_up(leader: Server, replica: Server) -> None:
    """Waits until the replica shows the leader's documents."""
    wait_following(replica)
    assert call(replica, "WAITLSN", int(info(leader)["master_repl_offset"]), 60_000) == 1


def test_replicas_have_documents_follow_and_lead(new_server, filled):
    save(filled)
    replica = follower_of(new_server, filled)
    wait_caught_up(filled, replica)
    assert content(replica, "db") == content(filled, "db")
    with Couch(filled.http_port) as couch, Couch(replica.http_port) as other:
        rev = couch.put("db", {"_id": "live"})
        wait_caught_up(filled, replica)
        assert other.get("/db/live").json["_rev"] == rev
        assert other.send("PUT", "/db/refused", {}).status == 403
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    filled.kill()
    with Couch(replica.http_port) as couch:
        couch.put("db", {"_id": "of the new leader"})
    replica.kill()
    replica.start()
    with Couch(replica.http_port) as couch:
        assert couch.get("/db/live").status == 200 and couch.get("/db/of%20the%20new%20leader").status == 200


@pytest.mark.oracle
def test_replicas_survive_kills_under_edits(new_server, request):
    seed = request.config.getoption("seed")
    leader = new_server(log_segment_bytes="1mb", extra=("--snapshot-interval-seconds", "1")).start()
    with Couch(leader.http_port) as couch:
        couch.ok("PUT", "/storm")
    replica = follower_of(new_server, leader)
    writers = [DocumentWriter(number, seed) for number in range(WRITERS)]
    for _ in range(4):
        threads = storm(leader, "storm", writers, 400)
        replica.kill()
        replica.start()
        leader.kill()
        for thread in threads:
            thread.join()
        port = leader.port
        leader.options.port = port
        leader.start()
        for writer in writers:
            writer.check(leader, "storm")
        wait_caught_up(leader, replica)
        check_feed(replica, "storm", writers)
        assert content(replica, "storm") == content(leader, "storm")


def test_compaction_beside_writers_keeps_everything_and_frees_the_disk(new_server, request):
    server = new_server(log_segment_bytes="1mb").start()
    writers = [DocumentWriter(number, request.config.getoption("seed")) for number in range(WRITERS)]
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/storm")
        filler = "x" * 50_000
        rev = {}
        for round_ in range(15):
            docs = [{"_id": f"f{n}", "round": round_, "filler": filler, **rev.get(n, {})} for n in range(40)]
            results = couch.ok("POST", "/storm/_bulk_docs", {"docs": docs})
            rev = {n: {"_rev": result["rev"]} for n, result in enumerate(results)}
            save(server)
        # Not the size of the file: the server may have compacted it by itself.
        written = 15 * len(rev) * len(filler)
        threads = storm(server, "storm", writers, 100)
        assert couch.send("POST", "/storm/_compact", {}).status == 202
        wait_until("the compaction", lambda: not couch.ok("GET", "/storm")["compact_running"])
        after = couch.ok("GET", "/storm")["sizes"]["file"]
        assert after < written / 2, (written, after)
    storm_goes_on = sum(writer.acknowledged for writer in writers)
    wait_until("edits after it", lambda: sum(writer.acknowledged for writer in writers) > storm_goes_on + 50)
    server.kill()
    for thread in threads:
        thread.join()
    server.start()
    for writer in writers:
        writer.check(server, "storm")
    with Couch(server.http_port) as couch:
        for number, known in rev.items():
            found = couch.ok("GET", f"/storm/f{number}")
            assert (found["_rev"], found["filler"]) == (known["_rev"], filler)
            couch.ok("DELETE", f"/storm/f{number}?rev={known['_rev']}")
            couch.ok("POST", "/storm/_purge", {f"f{number}": [couch_rev(couch, f"f{number}")]})
    check_feed(server, "storm", writers)


def couch_rev(couch: Couch, id_: str) -> str:
    """The leaf of a deleted document."""
    return couch.ok("GET", f"/storm/{id_}?open_revs=all")[0]["ok"]["_rev"]


def test_a_saved_database_stays_saved_while_others_are_edited(new_server):
    """One database is saved and others are edited: the catalog is written again, and still has all that a
    start needs.
    """
    server = new_server(log_segment_bytes="1mb").start()
    with Couch(server.http_port) as couch:
        for name in ("one", "two"):
            couch.ok("PUT", f"/{name}")
        couch.put("one", {"_id": "early"})
        save(server)
        catalog = server.directory / "documents" / "catalog"
        before = catalog.read_bytes()
        rev = couch.put("one", {"_id": "late"})
        filler = "x" * 1_000_000
        for number in range(10):
            couch.put("two", {"_id": f"d{number}", "filler": filler})
        wait_until("the larger one to be saved", lambda: catalog.read_bytes() != before)
    server.kill()
    server.start()
    with Couch(server.http_port) as couch:
        assert couch.get("/one/late").json["_rev"] == rev
        assert couch.ok("GET", "/two")["doc_count"] == 10


def test_a_database_created_and_removed_around_a_snapshot_is_recovered(new_server):
    for delete_first in (False, True):
        server = new_server(log_segment_bytes="1mb").start()
        with Couch(server.http_port) as couch:
            couch.ok("PUT", "/short")
            couch.put("short", {"_id": "x"})
            if delete_first:
                couch.ok("DELETE", "/short")
            save(server)
            if not delete_first:
                couch.put("short", {"_id": "y"})
                couch.ok("DELETE", "/short")
            couch.ok("PUT", "/another")
        server.kill()
        server.start()
        with Couch(server.http_port) as couch:
            assert couch.ok("GET", "/_all_dbs") == ["another"]


def test_an_edit_that_came_without_its_ancestors_may_be_made_again(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch, server.connect() as connection:
        for name in ("here", "there"):
            couch.ok("PUT", f"/{name}")
        first = couch.put("here", {"_id": "x", "n": 1})
        assert couch.put("there", {"_id": "x", "n": 1}) == first
        second = couch.put("there", {"_id": "x", "_rev": first, "n": 2})
        orphan = {"docs": [{"_id": "x", "_rev": second, "n": 2}], "new_edits": False}
        couch.ok("POST", "/here/_bulk_docs", orphan)
        assert connection.call("DOC.PUT", "here", "x", '{"n":2}', first) == second.encode()
        assert couch.put("here", {"_id": "x", "_rev": first, "n": 2}) == second


def test_readers_on_a_replica_do_not_stop_it(new_server):
    """Transactions that read keys and documents, while other records change both."""
    leader = new_server().start()
    with Couch(leader.http_port) as couch:
        couch.ok("PUT", "/db")
    replica = follower_of(new_server, leader)
    stopped = threading.Event()

    def read() -> None:
        with replica.connect() as connection:
            while not stopped.is_set():
                for words in (["MULTI"], ["GET", "k"], ["DOC.GET", "db", "x"], ["EXEC"]):
                    answer = connection.call(*words)
                key, document = answer
                assert (key is None) == (document is None), "half of a record"

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        with leader.connect() as connection:
            rev = b""
            for number in range(500):
                connection.call("MULTI")
                connection.call("SET", "k", number)
                connection.call("DOC.PUT", "db", "x", f'{{"n":{number}}}', *([rev] if rev else []))
                rev = connection.call("EXEC")[1]
        wait_caught_up(leader, replica)
    finally:
        stopped.set()
        for reader in readers:
            reader.join()
    with Couch(replica.http_port) as couch:
        assert couch.get("/db/x").json["n"] == 499


def test_a_script_that_has_flushed_can_be_stopped(new_server):
    server = new_server(extra=("--script-max-instructions", "1000000")).start()
    with server.connect() as connection:
        connection.call("SET", "k", "v")
        stopped = connection.call("EVAL", "redis.call('flushall') while true do end", "0")
        assert "script-max-instructions" in stopped.text and "its changes stay" in stopped.text
        assert connection.call("EXISTS", "k") == 0
        undone = connection.call("EVAL", "redis.call('set', 'k', 1) while true do end", "0")
        assert "script-max-instructions" in undone.text and "its changes are undone" in undone.text
        assert connection.call("EXISTS", "k") == 0, "what can be undone is"
    server.kill()
    server.start()
    assert call(server, "EXISTS", "k") == 0
