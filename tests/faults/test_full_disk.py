"""A full disk: writes are refused before they are executed, reads go on, and the server recovers alone."""

import pytest

from harness.couch import Couch
from harness.replicas import call, error_of, follower_of, wait_same
from harness.resp import ErrorReply, encode
from harness.server import run_sheaf
from harness.storm import Storm, Writer, contents
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

VOLUME_BYTES = 300 * MIB
# Room for the segments of the start and a few more.
LEFT_BYTES = 100 * MIB
WRITERS = 4


@pytest.fixture
def volume(tmp_path):
    volume = Volume(tmp_path, VOLUME_BYTES)
    yield volume
    volume.close()


@pytest.fixture
def on_volume(new_server, volume):
    """A running server on the small file system, with little free space."""
    volume.fill_leaving(LEFT_BYTES)
    server = new_server(directory=volume.root / "data").start()
    yield server
    server.close()


def write_until_refused(server, writers) -> None:
    """Load until the server is read-only for all writers."""
    storm = Storm(server, writers, []).start(1 << 60)
    wait_until("writes to be refused", lambda: storm.failures or all(writer.refusals > 0 for writer in writers))
    storm.stop()
    storm.join()


def test_read_only_while_full_and_by_itself_again(on_volume, volume):
    writers = [Writer(number, seed=1) for number in range(WRITERS)]
    write_until_refused(on_volume, writers)
    volume.fill()
    with on_volume.connect() as connection:
        before = contents(connection)
        for command in (("SET", "k", "v"), ("DEL", *before), ("FLUSHALL",), ("EXPIRE", next(iter(before)), 10), ("INCR", "n")):
            reply = connection.call(*command)
            assert isinstance(reply, ErrorReply), command
            assert reply.text.startswith("MISCONF"), command
            assert "space" in reply.text
        assert contents(connection) == before, "a refused command changed something"
        assert connection.call("PING") == b"PONG"
        # One refused command in a pipeline does not affect its neighbours.
        connection.send(encode("PING") + encode("SET", "k", "v") + encode("DBSIZE"))
        assert [type(connection.read()) for _ in range(3)] == [bytes, ErrorReply, int]
        volume.release()
        wait_until("writes to be accepted", lambda: connection.call("SET", "healed", "yes") == b"OK")
        assert connection.call("DEL", "healed") == 1
    for writer in writers:
        writer.check(on_volume)
    on_volume.kill()
    on_volume.start()
    for writer in writers:
        writer.check(on_volume)
    assert on_volume.stop() == 0


def test_a_full_disk_shows_in_every_status(on_volume, volume):
    writers = [Writer(number, seed=3) for number in range(WRITERS)]
    with Couch(on_volume.http_port) as couch, on_volume.connect() as connection:
        assert couch.get("/_up").json == {"status": "ok"}
        write_until_refused(on_volume, writers)
        volume.fill()
        answer = couch.get("/_up")
        assert answer.status == 503 and answer.json["error"] == "disk_full" and answer.json["reason"]
        assert b'\nsheaf_read_only{reason="disk_full"} 1\n' in couch.get("/metrics").body
        assert b"aof_last_write_status:err\r\n" in connection.call("INFO", "persistence")
        volume.release()
        wait_until("writes to be accepted", lambda: connection.call("SET", "healed", "yes") == b"OK")
        assert couch.get("/_up").json == {"status": "ok"}
        assert b'\nsheaf_read_only{reason="disk_full"} 0\n' in couch.get("/metrics").body
        assert b"aof_last_write_status:ok\r\n" in connection.call("INFO", "persistence")


@pytest.mark.oracle
def test_a_kill_on_a_full_disk_loses_no_acknowledged_write(on_volume, volume):
    writers = [Writer(number, seed=2) for number in range(WRITERS)]
    write_until_refused(on_volume, writers)
    volume.fill()
    on_volume.kill()
    # Without any space the server may serve its data or refuse to start; then it gives the reason.
    on_volume.spawn()
    wait_until("a decision", lambda: not on_volume.is_running() or on_volume.answers())
    if not on_volume.is_running():
        assert on_volume.wait_exit() != 0
        assert "space" in on_volume.log()
    on_volume.kill()
    checked = run_sheaf("check", str(on_volume.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    volume.release()
    on_volume.start()
    for writer in writers:
        writer.check(on_volume)
    with on_volume.connect() as connection:
        assert connection.call("SET", "k", "v") == b"OK"


def test_a_setting_that_cannot_be_stored_is_refused_as_by_a_full_disk(on_volume, volume):
    path = "/_node/_local/_config/chttpd/enable_cors"
    volume.fill()
    with Couch(on_volume.http_port) as couch:
        for answer in (couch.send("PUT", path, "true"), couch.send("DELETE", path)):
            assert (answer.status, answer.json["error"]) == (507, "insufficient_storage"), answer.body
            assert "settings.toml" in answer.json["reason"], answer.body
        assert couch.send("PUT", path, "perhaps").status == 400, "not a value"
        assert couch.get(path).json == "false"
        volume.release()
        couch.ok("PUT", path, "true")
        assert couch.get(path).json == "true"


def test_documents_that_could_not_be_saved_are_saved_when_there_is_room(on_volume, volume):
    def metric(couch: Couch, name: str) -> float:
        lines = couch.get("/metrics").body.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    acknowledged = 1
    with Couch(on_volume.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.put("db", {"_id": "first"})
        # The log has space that it allocated before; the files of documents have none.
        wait_until("a segment ahead of the log", lambda: len(list(on_volume.directory.glob("log-*.seg"))) > 1)
        volume.fill()
        for number in range(12):
            documents = [{"_id": f"{number}-{n}", "text": "x" * 10_000} for n in range(100)]
            answer = couch.send("POST", "/db/_bulk_docs", {"docs": documents})
            assert answer.status in (201, 507), answer.body
            acknowledged += 100 if answer.status == 201 else 0
        assert acknowledged > 100, "the log took nothing"
        wait_until("a save to fail", lambda: metric(couch, "sheaf_document_save_failures_total") > 1)
        assert couch.get("/db").json["doc_count"] == acknowledged
        volume.release()
        wait_until("a save to succeed", lambda: metric(couch, "sheaf_document_unsaved_bytes") == 0)
        assert couch.put("db", {"_id": "last"})
    on_volume.kill()
    checked = run_sheaf("check", str(on_volume.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    on_volume.start()
    with Couch(on_volume.http_port) as couch:
        assert couch.get("/db").json["doc_count"] == acknowledged + 1


def test_scripts_on_a_full_disk_evict_no_key(on_volume, volume):
    writers = [Writer(number, seed=5) for number in range(WRITERS)]
    write_until_refused(on_volume, writers)
    with on_volume.connect() as connection:
        for setting in (("maxmemory-policy", "allkeys-random"), ("maxmemory", "1kb")):
            assert connection.call("CONFIG", "SET", *setting) == b"OK"
        volume.fill()
        before = contents(connection)
        for command in (("EVAL", "return 1", 0), ("EVAL", "return redis.call('DBSIZE')", 0)):
            connection.call(*command)
        assert isinstance(connection.call("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "k"), ErrorReply)
        assert contents(connection) == before, "a script removed keys that no log takes the removal of"


def test_a_script_that_grows_beyond_the_disk_is_refused_while_it_runs(on_volume):
    """Its size is not known when it begins; it must not wait for room with its keys locked."""
    with on_volume.connect() as connection:
        assert connection.call("SET", "big", b"x" * (8 * MIB)) == b"OK"
        # A transaction is refused as a whole, before it changes anything.
        copies = b"".join(encode("COPY", "big", number) for number in range(60))
        connection.send(encode("MULTI") + copies + encode("EXEC"))
        assert "MISCONF" in [connection.read() for _ in range(62)][-1].text
        assert connection.call("DBSIZE") == 1
        wait_until("room for smaller writes", lambda: connection.call("SET", "k", "v") == b"OK")
        reply = connection.call("EVAL", "for i = 1, 60 do redis.call('COPY', 'big', 'copy:' .. i) end", 0)
        assert isinstance(reply, ErrorReply) and "MISCONF" in reply.text and "space" in reply.text
        before = contents(connection)
        assert 2 < len(before) < 62, "some fitted"
    on_volume.kill()
    on_volume.start()
    with on_volume.connect() as connection:
        assert contents(connection) == before


def test_a_replica_that_could_not_be_promoted_follows_again(new_server, volume):
    leader = new_server().start()
    volume.fill_leaving(LEFT_BYTES)
    # The replica can keep no room for its promotion: the name of the file is taken.
    (volume.root / "data" / "reserve").mkdir(parents=True)
    replica = follower_of(new_server, leader, directory=volume.root / "data")
    assert call(leader, "SET", "before", "1") == b"OK"
    wait_until("the replica to have it", lambda: call(replica, "GET", "before") == b"1")
    volume.fill()
    for _ in range(2):
        assert "No space left" in error_of(call(replica, "REPLICAOF", "NO", "ONE"))
    assert call(replica, "GET", "before") == b"1"
    volume.release()
    assert call(leader, "SET", "after", "1") == b"OK"
    wait_until("the replica to have this, too", lambda: call(replica, "GET", "after") == b"1")
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(replica, "SET", "own", "1") == b"OK"
    assert call(replica, "MGET", "before", "after", "own") == [b"1"] * 3


def test_a_leader_whose_disk_is_full_hands_over_to_its_replica(on_volume, volume, new_server):
    """The file of its role must be replaced for that, and a pair has no votes."""
    replica = follower_of(new_server, on_volume)
    wait_until("the reserve", lambda: (on_volume.directory / "reserve").exists())
    writers = [Writer(number, seed=5) for number in range(WRITERS)]
    write_until_refused(on_volume, writers)
    volume.fill()
    assert error_of(call(on_volume, "SET", "k", "v")).startswith("MISCONF")
    assert call(on_volume, "FAILOVER", "TIMEOUT", 60_000) == b"OK"
    wait_until("the replica to lead", lambda: call(replica, "SET", "k", "v") == b"OK")
    assert call(replica, "DEL", "k") == 1
    for writer in writers:
        writer.check(replica)
    volume.release()
    wait_same(replica, on_volume)
    wait_until("a new reserve", lambda: (on_volume.directory / "reserve").exists())
