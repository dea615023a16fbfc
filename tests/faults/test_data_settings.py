"""Settings that belong to the data: they are records of the log, and go wherever the data goes. And replicas
that do not acknowledge.
"""

import contextlib
import json
import re
import signal
import urllib.error
import urllib.request

import pytest

from harness.couch import Couch
from harness.replicas import call, error_of, follower_of, has_role, info, wait_following, wait_same
from harness.resp import encode
from harness.server import run_sheaf
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

# Without replicas nothing would wait for acknowledgements, and no client is delayed here.
VALUES = {
    "durable-channels": "log:* audit",
    "durable-channels-retention-bytes": "2097152",
    "durable-channels-retention-ms": "86400000",
    "ack-timeout": "77",
    "min-replicas-max-lag": "99",
}
# In the log of a leader: what was given at its start survives a kill.
RECORDED = "the value given here is recorded in the data"


def setting(server, name: str) -> str:
    """The value in CONFIG GET."""
    return call(server, "CONFIG", "GET", name)[1].decode()


def said(server) -> dict[str, str]:
    """The current values of these settings."""
    return {name: setting(server, name) for name in VALUES}


def say(server) -> None:
    """Sets them, and publishes a message that is retained."""
    pairs = [word for pair in VALUES.items() for word in pair]
    assert call(server, "CONFIG", "SET", *pairs) == b"OK"
    assert call(server, "PUBLISH", "log:a", "kept") == 0


def kept_message(server) -> bytes:
    """The oldest retained message."""
    with server.connect() as reader:
        reader.call("XSUBSCRIBE", "log:a", "FROM", "-")
        return reader.read()[3]


def start_without(new_server, server):
    """Starts a server on the directory of a stopped one, without flags."""
    return new_server(directory=server.directory).start()


@pytest.mark.oracle
@pytest.mark.parametrize("between", ["nothing", "SAVE", "FLUSHALL"])
def test_settings_of_the_data_hold_after_kill_9(server, between):
    say(server)
    if between != "nothing":
        assert call(server, between) == b"OK"
    if between == "FLUSHALL":
        # The log before FLUSHALL is removed, so its record holds the settings.
        assert call(server, "SET", "k", "v") == b"OK"
    server.kill()
    server.start()
    assert said(server) == VALUES
    if between != "FLUSHALL":
        assert kept_message(server) == b"kept"
    assert not (server.directory / "settings.toml").exists(), "the log has them"


def test_a_setting_of_the_data_is_on_disk_before_its_ok(server):
    for number in range(20):
        assert call(server, "CONFIG", "SET", "min-replicas-max-lag", number) == b"OK"
        server.kill()
        server.start()
        assert setting(server, "min-replicas-max-lag") == str(number)


def test_the_log_shows_settings_of_the_data_as_text(server):
    say(server)
    server.kill()
    shown = run_sheaf("log", str(server.directory)).stdout
    assert 'setting "durable-channels" = "log:* audit"' in shown or "setting durable-channels = log:* audit" in shown
    assert run_sheaf("check", str(server.directory)).returncode == 0


@pytest.mark.parametrize("how", ["FAILOVER", "kill -9"])
def test_a_new_leader_has_the_settings_of_the_data(new_server, how):
    leader = new_server().start()
    replica = follower_of(new_server, leader, extra=("--durable-channels", "own", "--ack-timeout", "5"))
    say(leader)
    wait_same(leader, replica)
    wait_until("the replica to take them over", lambda: said(replica) == VALUES)
    refused = error_of(call(replica, "CONFIG", "SET", "ack-replicas", 1))
    assert refused.startswith("READONLY 'ack-replicas' belongs to the data")
    assert call(replica, "CONFIG", "SET", "timeout", 100) == b"OK", "its own settings are its own"
    assert call(leader, "CONFIG", "SET", "ack-replicas", 1) == b"OK"
    if how == "FAILOVER":
        # Requiring acknowledgements begins an epoch, for which the replica reconnects.
        wait_until("the replica to be back", lambda: info(leader)["connected_slaves"] == "1")
        assert call(leader, "FAILOVER") == b"OK"
        wait_until("the replica to lead", lambda: has_role(replica, "master"))
        wait_until("the leader to follow", lambda: has_role(leader, "slave"))
        wait_following(leader)
    else:
        leader.kill()
        assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert said(replica) == VALUES
    assert setting(replica, "ack-replicas") == "1"
    assert call(replica, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
    assert kept_message(replica) == b"kept"
    # A client that has just read may still be connected.
    assert call(replica, "PUBLISH", "log:a", "of the new leader") in (0, 1)
    if how == "FAILOVER":
        wait_same(replica, leader)
        wait_until("the old leader to take it over", lambda: setting(leader, "ack-replicas") == "0")


def test_backups_have_the_settings_of_the_data(new_server, tmp_path):
    server = new_server().start()
    say(server)
    assert call(server, "SAVE") == b"OK"
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    done = run_sheaf("backup", str(backup), "--from", f"http://127.0.0.1:{server.http_port}")
    assert done.returncode == 0, done.stderr
    done = run_sheaf("restore", str(backup), "--dir", str(restored))
    assert done.returncode == 0, done.stderr
    assert said(new_server(directory=restored).start()) == VALUES


def test_settings_given_at_the_start_of_a_leader_become_a_record(new_server):
    server = new_server(extra=("--durable-channels", "log:*")).start()
    assert call(server, "PUBLISH", "log:a", "kept") == 0
    server.wait_for_log(RECORDED)
    server.kill()
    again = start_without(new_server, server)
    assert setting(again, "durable-channels") == "log:*"
    assert kept_message(again) == b"kept"
    assert call(again, "CONFIG", "SET", "durable-channels", "log:* more") == b"OK"
    again.kill()
    given = new_server(directory=server.directory, extra=("--durable-channels", "log:* given")).start()
    assert setting(given, "durable-channels") == "log:* given"
    # All of them write the same log.
    wait_until("the value to be recorded", lambda: given.log().count(RECORDED) == 2)
    given.kill()
    assert setting(start_without(new_server, given), "durable-channels") == "log:* given"


@pytest.mark.parametrize("how", ["FAILOVER", "kill -9"])
def test_an_ok_that_rests_on_a_given_setting_has_it_on_the_next_leader(new_server, how):
    """At once: no second may pass between the first OK and the end of its leader."""
    leader = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    replica = follower_of(new_server, leader)
    assert call(leader, "SET", "a", 1) == b"OK"
    if how == "FAILOVER":
        assert call(leader, "FAILOVER") == b"OK"
        wait_until("the replica to lead", lambda: has_role(replica, "master"))
        leader.kill()
    else:
        leader.kill()
        assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert setting(replica, "ack-replicas") == "1"
    assert error_of(call(replica, "SET", "b", 2)).startswith("NOREPLICAS"), "nobody has it but this server"


def test_a_given_setting_keeps_no_empty_server_from_following(new_server):
    leader = new_server(extra=("--durable-channels", "log:*")).start()
    assert call(leader, "SET", "a", 1) == b"OK"
    other = new_server(extra=("--durable-channels", "own:*")).start()
    other.wait_for_log(RECORDED)
    assert call(other, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    wait_following(other)
    wait_same(leader, other)
    wait_until("the leader's value", lambda: setting(other, "durable-channels") == "log:*")


def verdicts(server) -> set[str]:
    """Why no write can be acknowledged, as each door tells it; empty: it can."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/_up") as answer:
            up = json.load(answer)
    except urllib.error.HTTPError as refused:
        assert refused.code == 503
        up = json.load(refused)
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics").read().decode()
    held = re.findall(r'^sheaf_read_only\{reason="(\w+)"\} 1', metrics, re.MULTILINE)
    return {"" if up["status"] == "ok" else up["error"], info(server)["read_only_reason"], *(held or [""])}


def test_all_doors_say_that_replicas_for_acknowledgements_are_missing(new_server):
    leader = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    wait_until("the verdict", lambda: verdicts(leader) == {"too_few_acks"})
    leader.wait_for_log("no write can be acknowledged")
    assert error_of(call(leader, "SET", "a", 1)).startswith("NOREPLICAS")
    replica = follower_of(new_server, leader)
    wait_until("the verdict", lambda: verdicts(leader) == {""})
    assert call(leader, "SET", "a", 1) == b"OK"
    replica.kill()
    wait_until("the verdict", lambda: verdicts(leader) == {"too_few_acks"})


def test_all_doors_say_that_a_replica_with_a_stalled_disk_acknowledges_nothing(new_server, tmp_path):
    leader = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    with contextlib.closing(Volume(tmp_path, 200 * MIB)) as volume:
        replica = follower_of(new_server, leader, directory=volume.root / "data")
        wait_until("the verdict", lambda: verdicts(leader) == {""})
        with volume.stalled():
            assert error_of(call(leader, "SET", "a", 1)).startswith("NOREPLICAS")
            wait_until("the verdict", lambda: verdicts(leader) == {"too_few_acks"})
            assert info(leader)["connected_slaves"] == "1", "it is heard all the time"
        wait_until("the verdict", lambda: verdicts(leader) == {""})
        wait_until("writes to be acknowledged", lambda: call(leader, "SET", "a", 2) == b"OK")
        replica.kill()


def test_all_doors_say_that_the_lead_was_given_up(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    with replica.frozen():
        order = ("FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 100)
        assert call(leader, *order) == b"OK"
        wait_until("the replica to be told", lambda: info(leader)["replication_fenced_by_epoch"] != "0")
        assert verdicts(leader) == {"deposed"}
        refused = error_of(call(leader, "SET", "a", 1))
        assert refused.startswith("READONLY This server has given up the lead")
        read = error_of(call(leader, "GET", "a"))
        assert read.startswith("MASTERDOWN This server has given up the lead"), read
        # What the error names is there.
        assert "replication_fenced_by_epoch in INFO" in read and "master_link_status" not in info(leader)
        assert error_of(call(leader, "EVAL", "return redis.call('GET', 'a')", 0)).startswith(read)
        assert error_of(call(leader, "EVAL", "return redis.call('SET', 'a', 1)", 0)).startswith(refused)
        with Couch(leader.http_port) as couch:
            for answer in (couch.send("PUT", "/db"), couch.send("GET", "/db"), couch.send("GET", "/_up")):
                assert answer.status == 503 and b"This server has given up the lead" in answer.body, answer.body


def test_all_doors_say_that_the_lead_is_being_handed_over(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    assert call(leader, "SET", "a", 1) == b"OK"
    with replica.frozen():
        # The replica cannot say that it has this write, so the hand-over waits for it.
        assert call(leader, "SET", "a", 2) == b"OK"
        assert call(leader, "FAILOVER", "TIMEOUT", 600_000) == b"OK"
        assert verdicts(leader) == {"handing_over"}
        refused = error_of(call(leader, "SET", "a", 3))
        assert refused.startswith("READONLY This server is handing over the lead"), refused
        assert info(leader)["master_failover_state"] == "waiting-for-sync"
        assert error_of(call(leader, "EVAL", "return redis.call('SET', 'a', 3)", 0)).startswith(refused)
        assert call(leader, "GET", "a") == b"2", "it leads until the replica does"
        with Couch(leader.http_port) as couch:
            answer = couch.send("PUT", "/db")
            assert answer.status == 503 and b"is handing over the lead" in answer.body, answer.body
        assert call(leader, "FAILOVER", "ABORT") == b"OK"
        wait_until("the verdict", lambda: verdicts(leader) == {""})
    assert call(leader, "SET", "a", 3) == b"OK"


def test_a_replica_has_a_setting_as_soon_as_it_has_shown_a_later_write(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    for number in range(20):
        channel = f"log:{number}"
        assert call(leader, "CONFIG", "SET", "durable-channels", channel, "ack-timeout", 100 + number) == b"OK"
        assert call(leader, "SET", "number", number) == b"OK"
        wait_until("the write", lambda number=number: call(replica, "GET", "number") == b"%d" % number)
        # No second passes between the record and this.
        assert setting(replica, "durable-channels") == channel
        refused = error_of(call(replica, "PUBLISH", channel, "x"))
        assert refused.startswith("READONLY"), refused


@pytest.mark.parametrize("with_data", ["with data", "without data"])
def test_an_unchanged_file_does_not_undo_config_set(new_server, tmp_path, with_data):
    """A file sets a value once: until the file changes, a later CONFIG SET stays in force."""
    file = tmp_path / "sheaf.toml"
    file.write_text('durable-channels = "log:*"\n')
    server = new_server(extra=("--config", str(file))).start()
    if with_data == "with data":
        assert call(server, "PUBLISH", "log:a", "kept") == 0
        server.wait_for_log(RECORDED)
    assert call(server, "CONFIG", "SET", "durable-channels", "log:* more") == b"OK"
    for _ in range(2):
        server.kill()
        server.start()
        assert setting(server, "durable-channels") == "log:* more"
    file.write_text('durable-channels = "log:* other"\n')
    server.kill()
    server.start()
    assert setting(server, "durable-channels") == "log:* other"
    assert call(server, "CONFIG", "SET", "durable-channels", "log:* last") == b"OK"
    server.signal(signal.SIGHUP)
    server.wait_for_log("the configuration file was read again")
    assert setting(server, "durable-channels") == "log:* last", "nothing has changed in the file"
    file.write_text('durable-channels = "log:*"\n')
    server.signal(signal.SIGHUP)
    wait_until("the file to be in force", lambda: setting(server, "durable-channels") == "log:*")


def test_a_transaction_cannot_change_settings_of_the_data(server):
    with server.connect() as connection:
        connection.call("MULTI")
        connection.call("CONFIG", "SET", "ack-replicas", 1)
        [answer] = connection.call("EXEC")
    assert "not in a transaction" in error_of(answer)
    assert setting(server, "ack-replicas") == "0"


# -- replicas that do not acknowledge ------------------------------------------------------------------------


def metric(server, name: str) -> int:
    """A counter of /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith(name + " "))))


def test_writes_without_acknowledgements_fail_after_the_timeout(new_server):
    server = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    with server.connect() as connection:
        commands = [("SET", "k", "v"), ("INCR", "n"), ("LRANGE", "none", 0, -1), ("RPUSH", "l", "a", "b")]
        connection.send(b"".join(encode(*words) for words in commands))
        for _ in commands[:2]:
            assert error_of(connection.read()).startswith("NOREPLICAS not enough replicas have acknowledged within")
        connection.read()
        assert error_of(connection.read()).startswith("NOREPLICAS")
        assert connection.call("PING") == b"PONG", "the connection goes on"
        assert error_of(connection.call("GET", "k")).startswith("NOREPLICAS"), "nobody reads what may be lost"
        with Couch(server.http_port) as couch:
            status, error, _ = couch.send("PUT", "/db").told()
            assert (status, error) == (503, "not_replicated")
        assert server.log().count("too few replicas acknowledge") == 1
        assert metric(server, "sheaf_ack_timeouts_total") >= 5
        # The command is executed, and in the log.
        assert call(server, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
        assert connection.call("GET", "k") == b"v"
        assert connection.call("LRANGE", "l", 0, -1) == [b"a", b"b"]
    server.kill()
    server.options.extra = ()
    server.start()
    assert call(server, "GET", "n") == b"1"


def test_a_read_waits_only_for_what_it_shows(new_server):
    server = new_server(extra=("--ack-replicas", "0")).start()
    assert call(server, "SET", "k", "v") == b"OK"
    server.options.extra = ("--ack-replicas", "1", "--ack-timeout", "1")
    server.kill()
    server.start()
    refused = error_of(call(server, "GET", "k"))
    assert refused.startswith("NOREPLICAS") and "or would show" in refused, refused
    # Nobody has written these.
    assert call(server, "GET", "absent") is None
    with Couch(server.http_port) as couch:
        assert couch.ok("GET", "/_all_dbs") == []
        assert couch.send("PUT", "/db").told()[:2] == (503, "not_replicated")
        assert couch.send("GET", "/_all_dbs").told()[:2] == (503, "not_replicated")


def test_a_read_of_a_document_waits_only_for_changes_of_the_document(new_server):
    server = new_server(extra=("--ack-timeout", "1")).start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("PUT", "/db/old", {"n": 1})
        call(server, "CONFIG", "SET", "ack-replicas", 1)
        for changed in ("/db/new", "/db/_local/new"):
            assert couch.send("PUT", changed, {"n": 2}).told()[:2] == (503, "not_replicated")
        assert couch.ok("GET", "/db/old")["n"] == 1
        assert couch.send("GET", "/db/absent").status == 404
        assert json.loads(call(server, "DOC.GET", "db", "old"))["n"] == 1
        assert call(server, "DOC.GET", "db", "absent") is None
        for shown in ("/db/new", "/db/_local/new", "/db/_all_docs", "/db"):
            assert couch.send("GET", shown).told()[:2] == (503, "not_replicated")
        assert error_of(call(server, "DOC.GET", "db", "new")).startswith("NOREPLICAS")
        # Rights may depend on the security object.
        assert couch.send("PUT", "/db/_security", {"members": {"names": ["x"]}}).told()[:2] == (503, "not_replicated")
        assert couch.send("GET", "/db/old").told()[:2] == (503, "not_replicated")
        assert call(server, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
        assert couch.ok("GET", "/db/new")["n"] == 2


def test_a_database_whose_deletion_is_not_committed_is_not_said_to_be_missing(new_server):
    server = new_server(extra=("--ack-timeout", "1")).start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("PUT", "/db/doc", {})
        call(server, "CONFIG", "SET", "ack-replicas", 1)
        assert couch.send("DELETE", "/db").told()[:2] == (503, "not_replicated")
        for method, path in (("GET", "/db"), ("GET", "/db/doc"), ("PUT", "/db/doc"), ("DELETE", "/db")):
            body = {} if method == "PUT" else None
            assert couch.send(method, path, body).told()[:2] == (503, "not_replicated"), (method, path)
        assert call(server, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
        assert couch.send("GET", "/db/doc").status == 404


def test_a_replica_that_comes_in_time_is_enough(new_server):
    leader = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "0")).start()
    with leader.connect() as connection:
        connection.send(encode("SET", "k", "v"))
        follower_of(new_server, leader)
        assert connection.read() == b"OK"
    assert metric(leader, "sheaf_ack_timeouts_total") == 0
