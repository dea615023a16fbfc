"""Leaders and replicas, real processes: joining, following, failing, promotion, hand-over, and safety."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from harness import resp
from harness.couch import Couch
from harness.cutting_proxy import CuttingProxy
from harness.procfs import resident_bytes
from harness.replicas import call, error_of, follower_of, has_role, info, is_following, wait_following, wait_same
from harness.server import Server, free_port
from harness.storm import contents
from harness.waiting import PATIENCE_S, wait_until

INSTALLS = "installing the copy"

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def pair(new_server):
    """A leader, and a replica that follows it."""

    def make(**options) -> tuple[Server, Server]:
        leader = new_server(**options).start()
        return leader, follower_of(new_server, leader, **options)

    return make


def write_all_types(server: Server, mark: str) -> None:
    """Every type, in two databases, with and without a deadline, and in a transaction."""
    with server.connect() as connection:
        commands = [
            ("SET", f"string:{mark}", "x" * 100),
            ("SET", f"large:{mark}", "y" * 3_000_000),
            ("SET", f"deadline:{mark}", "soon", "PX", 3_600_000),
            ("RPUSH", f"list:{mark}", *range(300)),
            ("SADD", f"set:{mark}", *range(50)),
            ("HSET", f"hash:{mark}", "a", 1, "b", 2),
            ("ZADD", f"zset:{mark}", 1, "one", 2, "two"),
            ("RENAME", f"set:{mark}", f"renamed:{mark}"),
            ("COPY", f"hash:{mark}", f"copied:{mark}"),
            ("MULTI",),
            ("INCR", "counter"),
            ("APPEND", f"string:{mark}", "z"),
            ("EXEC",),
            ("SELECT", 1),
            ("SET", f"elsewhere:{mark}", "here"),
        ]
        for command in commands:
            answer = connection.call(*command)
            assert not isinstance(answer, resp.ErrorReply), (command, answer)


def test_a_replica_copies_everything_and_follows(pair):
    leader, replica = pair()
    write_all_types(leader, "live")
    assert call(leader, "WAIT", 1, 60_000) == 1, "who has written nothing waits for nothing"
    wait_same(leader, replica)
    assert call(replica, "GET", "counter") == b"1"
    assert call(replica, "ROLE")[0] == b"slave"
    role = call(leader, "ROLE")
    assert role[0] == b"master" and role[2][0][1] == str(replica.port).encode()
    with replica.connect() as connection:
        connection.call("SELECT", 1)
        assert connection.call("GET", "elsewhere:live") == b"here"
        for command in (["SET", "k", "v"], ["DEL", "counter"], ["FLUSHALL"], ["RPUSH", "list:live", "x"]):
            answer = connection.call(*command)
            assert error_of(answer).startswith("READONLY You can't write against a read only replica"), answer
    assert error_of(call(replica, "WAIT", 1, 1)).startswith("ERR WAIT cannot be used with replica instances")


def test_data_from_before_the_replica_is_copied(new_server):
    leader = new_server().start()
    write_all_types(leader, "before")
    replica = follower_of(new_server, leader)
    write_all_types(leader, "after")
    wait_same(leader, replica)
    assert "copying everything" in replica.log()


@pytest.mark.parametrize("durability", ["strict", "none"])
def test_both_may_be_killed_and_go_on(pair, durability):
    leader, replica = pair(durability=durability)
    for round_number in range(3):
        write_all_types(leader, f"a{round_number}")
        replica.kill()
        write_all_types(leader, f"b{round_number}")
        replica.start()
        wait_same(leader, replica)
    assert replica.log().count("copying everything") == 1, "after that it resumes"
    leader.options.port = leader.port
    leader.kill()
    leader.start()
    write_all_types(leader, "again")
    wait_same(leader, replica)


def test_expired_keys_are_removed_by_the_leader(pair):
    leader, replica = pair()
    with leader.connect() as connection:
        connection.call("SET", "k", "v", "PX", 1)
        wait_until("the key to expire", lambda: connection.call("DBSIZE") == 0)
    wait_same(leader, replica)
    assert call(replica, "DBSIZE") == 0


def test_a_replica_leads_and_the_old_leader_follows_it(pair):
    leader, replica = pair()
    write_all_types(leader, "shared")
    wait_same(leader, replica)
    leader.options.port = leader.port
    leader.kill()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(replica, "SET", "new", "leader") == b"OK", "it takes writes once it has said so"
    leader.start()
    with leader.connect() as connection:
        for number in range(50):
            connection.call("SET", f"lost:{number}", "written to the old leader")
    assert call(leader, "REPLICAOF", "127.0.0.1", replica.port) == b"OK"
    wait_same(replica, leader)
    assert call(leader, "GET", "lost:1") is None and call(leader, "GET", "new") == b"leader"
    kept = list(leader.directory.glob("diverged-*.bin"))
    assert kept and b"written to the old leader" in kept[0].read_bytes(), "what was cut off is kept"
    write_all_types(replica, "after")
    wait_same(replica, leader)
    replica.options.port = replica.port
    replica.kill()
    replica.start()
    assert info(replica)["role"] == "master", "REPLICAOF NO ONE outlives a restart"
    replica.wait_for_log("keeps that role: start it without replica-of")
    wait_same(replica, leader)


MASTERDOWN = (
    "MASTERDOWN Link with MASTER is down and what of the data here is committed is not known. Wait for the link "
    "(master_link_status in INFO), or ask the leader; REPLICAOF NO ONE has this server lead with the data that it has."
)

GIVEN_UP = "MASTERDOWN This server has given up the lead"


def refuses_reads(server: Server, why: str = MASTERDOWN) -> bool:
    """Whether it refuses reads at the moment, with this error."""
    try:
        return error_of(call(server, "GET", "k")).startswith(why)
    except (OSError, resp.Closed):
        return False


def test_a_leader_that_is_to_follow_shows_nothing_that_its_leader_may_not_have(pair):
    leader, replica = pair()
    wait_same(leader, replica)
    leader.options.port = leader.port
    leader.kill()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    leader.start()
    assert call(leader, "SET", "k", "written to the old leader") == b"OK"
    assert call(leader, "REPLICAOF", "127.0.0.1", free_port()) == b"OK", "nobody is there"
    wait_until("reads to be refused", lambda: refuses_reads(leader))
    leader.kill()
    leader.start()
    assert refuses_reads(leader), "a restart changes nothing about that"
    with Couch(leader.http_port) as couch:
        up = couch.send("GET", "/_up")
        assert (up.status, up.json["error"]) == (503, "shows_nothing"), up.json
        assert "\nsheaf_replication_lag_bytes NaN\n" in couch.get("/metrics").body.decode()
    assert info(leader)["read_only_reason"] == "shows_nothing"
    with leader.connect() as connection:
        for command in (["GET", "k"], ["KEYS", "*"], ["DBSIZE"], ["XSUBSCRIBE", "c", "FROM", "-"], ["WAIT", 0, 1]):
            assert error_of(connection.call(*command)) == MASTERDOWN, command
        assert error_of(connection.call("SET", "k", "v")).startswith("READONLY"), "as Redis has it"
        shown = "return redis.call('GET', KEYS[1])"
        refusal = error_of(connection.call("EVAL", shown, 1, "k"))
        assert refusal.startswith(MASTERDOWN), refusal
        refusal = error_of(connection.call("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k"))
        assert refusal.startswith("READONLY"), refusal
        refusal = error_of(connection.call("EVAL_RO", "#!lua flags=no-writes\n" + shown, 1, "k"))
        assert refusal.startswith("MASTERDOWN"), refusal
        assert connection.call("PING") == b"PONG" and connection.call("SELECT", 1) == b"OK"
        assert connection.call("WAITLSN", 1, 10) == 0
        assert connection.call("MULTI") == b"OK"
        assert error_of(connection.call("GET", "k")) == MASTERDOWN
        assert error_of(connection.call("EXEC")).startswith("EXECABORT")
    assert info(leader)["master_link_status"] == "down"
    assert call(leader, "REPLICAOF", "127.0.0.1", replica.port) == b"OK"
    wait_same(replica, leader)
    assert call(leader, "GET", "k") is None
    with Couch(leader.http_port) as couch:
        assert couch.send("GET", "/_up").status == 200
        assert "\nsheaf_replication_lag_bytes 0.0\n" in couch.get("/metrics").body.decode()


def flushed_by_replica(leader: Server) -> int:
    """The durable position of its only replica, as known to the leader; 0 while it has two."""
    fields = info(leader)
    return 0 if "slave1" in fields else int(fields["slave0"].split("offset=")[1].split(",")[0])


def test_messages_that_the_leader_has_not_committed_are_read_nowhere(new_server):
    extra = ("--durable-channels", "log", "--ack-timeout", "0")
    leader = new_server(extra=extra).start()
    replica, other = (follower_of(new_server, leader, extra=extra) for _ in range(2))
    assert call(leader, "CONFIG", "SET", "ack-replicas", 2) == b"OK"
    assert call(leader, "SET", "k", "both have it") == b"OK"
    other.kill()
    wait_until("the other replica to be gone", lambda: flushed_by_replica(leader) > 0)
    message, begin = b"m" * 100_000, flushed_by_replica(leader)
    with leader.connect() as publisher, replica.connect() as early, replica.connect() as late:
        early.call("XSUBSCRIBE", "log", "FROM", "-")
        publisher.send(resp.encode("PUBLISH", "log", message))
        wait_until("the replica to have the message", lambda: flushed_by_replica(leader) >= begin + len(message))
        late.call("XSUBSCRIBE", "log", "FROM", "-")
        for _ in range(500):
            for reader in (early, late):
                assert reader.call("PING") == [b"pong", b""], "one replica of two has it"
        assert call(replica, "DBSIZE") == 1, "what is shown waits for nobody"
        with Couch(replica.http_port) as couch:
            assert couch.ok("GET", "/_all_dbs") == []
        other.start()
        assert publisher.read() == 0, "nobody reads at the leader"
        for reader in (early, late):
            assert reader.read()[0::3] == [b"xmessage", message]


def test_two_promotions_at_once_are_one(pair):
    leader, replica = pair()
    write_all_types(leader, "before")
    wait_same(leader, replica)
    leader.kill()
    with replica.connect() as one, replica.connect() as other:
        for connection in (one, other):
            connection.send(resp.encode("REPLICAOF", "NO", "ONE"))
        assert [connection.read() for connection in (one, other)] == [b"OK", b"OK"]
        assert one.call("SET", "k", "v") == b"OK"
    replica.kill()
    replica.start()
    assert call(replica, "GET", "k") == b"v"


def leads_from_now_on(server: Server) -> bool:
    """Promotes it; `False` if it is just restarting in its process."""
    try:
        return call(server, "REPLICAOF", "NO", "ONE") == b"OK"
    except (OSError, resp.Closed):
        return False


def test_a_leader_that_was_to_follow_may_lead_again_with_its_data(pair):
    leader, _ = pair()
    assert call(leader, "SET", "k", "v") == b"OK"
    assert call(leader, "REPLICAOF", "127.0.0.1", free_port()) == b"OK"
    wait_until("reads to be refused", lambda: refuses_reads(leader))
    # Reads are refused before it restarts in its process, which breaks connections, perhaps after it leads again.
    wait_until("it to lead again", lambda: leads_from_now_on(leader))
    wait_until("its data", lambda: call(leader, "GET", "k") == b"v")


@pytest.mark.parametrize("acks", [0, 1])
def test_a_replica_that_starts_without_its_leader_shows_committed_data_only(pair, acks):
    leader, replica = pair(extra=("--ack-replicas", str(acks)))
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_same(leader, replica)
    leader.options.port = leader.port
    leader.kill()
    replica.kill()
    replica.start()
    assert refuses_reads(replica) == (acks > 0), "with acks, its log may hold more than was acknowledged"
    leader.start()
    wait_following(replica)
    assert call(replica, "GET", "k") == b"v"


def test_a_new_leader_says_at_once_that_it_lacks_replicas(pair):
    leader, replica = pair(extra=("--ack-replicas", "1"))
    leader.kill()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    fields = info(replica)
    assert (fields["role"], fields["read_only_reason"]) == ("master", "too_few_acks")
    with Couch(replica.http_port) as couch:
        assert couch.get("/_up").json["error"] == "too_few_acks"


def test_a_replica_may_have_replicas(new_server, pair):
    leader, middle = pair()
    last = follower_of(new_server, middle)
    write_all_types(leader, "chained")
    wait_same(leader, middle)
    wait_same(leader, last)
    middle.options.port = middle.port
    middle.kill()
    write_all_types(leader, "meanwhile")
    middle.start()
    wait_same(leader, last)


def test_a_replica_may_be_copied_exactly_where_its_own_copy_ends(new_server, pair):
    leader, first = pair()
    call(leader, "SET", "k", "v")
    wait_same(leader, first)
    # From now on nothing is written, not even by an idle log.
    leader.options.port = leader.port
    leader.kill()
    assert call(first, "SAVE") == b"OK"
    second = follower_of(new_server, first)
    assert info(second)["repl_backlog_histlen"] == "0", "its log begins where the snapshot of the first ends"
    # So only the hash of the batch before is known.
    third = follower_of(new_server, second)
    assert third.log().count("copying everything from the leader") == 1
    leader.start()
    write_all_types(leader, "after")
    wait_same(leader, third)


def test_acks_of_replicas_are_waited_for(new_server, pair):
    leader, replica = pair(extra=("--ack-replicas", "1", "--ack-timeout", "0"))
    assert call(leader, "SET", "k", "v") == b"OK"
    replica.kill()
    with leader.connect() as connection, leader.connect() as other:
        connection.send(resp.encode("SET", "unsafe", "1"))
        wait_until("the write to be on the leader's disk", lambda: other.call("WAITAOF", 1, 0, 10) != [0, 0])
        connection.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        connection.socket.settimeout(60)
        replica.start()
        assert connection.read() == b"OK", "once a replica has it"
    assert call(leader, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
    replica.kill()
    assert call(leader, "SET", "k", "v2") == b"OK"


def test_wait_counts_replicas_with_the_write_on_disk(pair):
    leader, replica = pair()
    with leader.connect() as connection:
        connection.call("SET", "k", "v")
        assert connection.call("WAIT", 1, 60_000) == 1
        assert connection.call("WAITAOF", 1, 1, 60_000) == [1, 1]
        assert connection.call("WAIT", 2, 50) == 1, "after the time that was given"
        replica.kill()
        connection.call("SET", "k", "v2")
        assert connection.call("WAIT", 1, 50) == 0
        connection.send(resp.encode("WAIT", 1, 0))
        replica.start()
        assert connection.read() == 1
    assert call(leader, "WAITLSN", 1 << 60, 10) == 0


def test_too_few_replicas_refuse_writes(pair):
    leader, replica = pair()
    assert call(leader, "CONFIG", "SET", "min-replicas-to-write", 1) == b"OK"
    assert call(leader, "SET", "k", "v") == b"OK"
    replica.kill()
    wait_until(
        "writes to be refused",
        lambda: error_of(call(leader, "SET", "k", "v")).startswith("NOREPLICAS Not enough good replicas to write."),
    )
    assert call(leader, "GET", "k") == b"v"
    replica.start()
    wait_until("writes to be taken", lambda: call(leader, "SET", "k", "v") == b"OK")


def test_a_leader_hands_over_without_loss(pair):
    leader, replica = pair()
    acknowledged: list[int] = []

    def write() -> None:
        with leader.connect() as connection:
            for number in range(1_000_000):
                try:
                    if connection.call("SET", f"key:{number}", number) != b"OK":
                        return
                except (OSError, resp.Closed):
                    return
                acknowledged.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    wait_until("some writes", lambda: len(acknowledged) > 200)
    assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 30_000) == b"OK"
    writer.join()
    wait_until("the roles to change", lambda: has_role(replica, "master") and is_following(leader))
    with replica.connect() as connection:
        for number in acknowledged:
            assert connection.call("GET", f"key:{number}") == str(number).encode()
    call(replica, "SET", "after", "1")
    wait_same(replica, leader)
    assert_nothing_parted(leader, replica)
    assert error_of(call(replica, "FAILOVER", "ABORT")).startswith("ERR No failover in progress")
    for name in ("replicaof", "slaveof", "replica-of"):
        assert call(replica, "CONFIG", "GET", name)[1] == b"", "as ROLE says"
        assert call(leader, "CONFIG", "GET", name)[1] == f"127.0.0.1:{replica.port}".encode()


def assert_nothing_parted(*servers: Server) -> None:
    """Neither had data that the other lacked."""
    for server in servers:
        assert not list(server.directory.glob("diverged-*")), server.log()
        assert "diverged" not in server.log(), server.log()


@pytest.mark.parametrize("durability", ["strict", "interval"])
@pytest.mark.parametrize("count", [0, 20])
def test_a_hand_over_there_and_back_leaves_one_history(pair, durability, count):
    """At any size: the old leader's log ends where the new one's begins."""
    leader, replica = pair(durability=durability)
    for number in range(count):
        assert call(leader, "SET", f"key:{number}", number) == b"OK"

    def are_same() -> bool:
        with leader.connect() as one, replica.connect() as other:
            return contents(one) == contents(other)

    for number in range(2):
        wait_until("the replica to have everything", are_same)
        assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 30_000) == b"OK"
        leader, replica = replica, leader

        def have_changed(leader=leader, replica=replica) -> bool:
            return has_role(leader, "master") and is_following(replica)

        wait_until("the roles to change", have_changed)
        if count:
            assert call(leader, "SET", "turn", number) == b"OK"
    wait_until("the replica to have everything", are_same)
    assert_nothing_parted(leader, replica)


@pytest.mark.parametrize("way", ["command", "flag", "command behind a setting"])
def test_a_server_that_holds_nothing_follows_anybody(new_server, way):
    """It was started and stopped, and its log has batches; but it never received a write, or only a setting
    that belongs to the data.
    """
    leader = new_server().start()
    write_all_types(leader, "leader")
    replica = new_server().start()
    if way == "command behind a setting":
        assert call(replica, "CONFIG", "SET", "ack-timeout", "9") == b"OK"
    assert replica.stop() == 0
    if way == "flag":
        replica.options.extra = ("--replica-of", f"127.0.0.1:{leader.port}")
    replica.start()
    if way != "flag":
        assert call(replica, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    wait_same(leader, replica)
    assert_nothing_parted(leader, replica)


def test_a_replica_without_data_does_not_fence_the_leader_of_another_group(new_server):
    """Epochs of different groups say nothing about each other."""
    first, other = new_server().start(), new_server().start()
    replica = follower_of(new_server, first)
    first.options.port = first.port
    for _ in range(2):
        assert first.stop() == 0
        first.start()
        wait_following(replica)
    assert call(other, "SET", "k", "v") == b"OK"
    assert int(info(first)["replication_epoch"]) > int(info(other)["replication_epoch"])
    # Those of the first leader: one, or one for each of its starts.
    copies = replica.log().count(INSTALLS)
    assert call(replica, "REPLICAOF", "127.0.0.1", other.port) == b"OK"
    wait_until("the replica to install its copy", lambda: replica.log().count(INSTALLS) > copies)

    def fenced_by() -> str:
        return info(other)["replication_fenced_by_epoch"]

    wait_until("the replica to follow", lambda: is_following(replica) or fenced_by() != "0")
    assert fenced_by() == "0"
    assert call(other, "SET", "k", "v2") == b"OK"
    wait_same(other, replica)


def test_a_server_that_is_told_to_stop_while_it_changes_its_role_stops(new_server):
    leader = new_server().start()
    for _ in range(5):
        server = new_server().start()
        assert call(server, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
        server.wait_for_log("stopping")
        assert server.stop() == 0


def test_a_replica_restarted_without_its_flag_stays_a_replica(new_server):
    """It remembers its leader; to lead, it must be told so."""
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_same(leader, replica)
    assert replica.stop() == 0
    replica.options.extra = ()
    replica.start()
    assert error_of(call(replica, "SET", "k", "other")).startswith("READONLY")
    assert call(leader, "SET", "k", "later") == b"OK"
    wait_same(leader, replica)
    replica.kill()
    replica.options.extra = ("--replica-of", "none")
    replica.start()
    assert has_role(replica, "master")
    assert call(replica, "SET", "k", "its own") == b"OK"


def test_a_server_with_data_of_its_own_is_refused(new_server):
    leader, other = new_server().start(), new_server().start()
    assert call(leader, "SET", "k", "leader") == b"OK"
    assert call(other, "SET", "k", "other") == b"OK"
    assert call(other, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    other.wait_for_log("the replica holds another log")
    assert call(other, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(other, "GET", "k") == b"other"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"])
def test_a_server_does_not_follow_itself(server, host):
    assert call(server, "SET", "k", "v") == b"OK"
    assert "is this server itself" in error_of(call(server, "REPLICAOF", host, server.port))
    assert call(server, "SET", "k", "w") == b"OK"
    assert call(server, "GET", "k") == b"w"


def test_a_server_does_not_follow_itself_by_another_name(server):
    """Through any address of its own, it meets its own id."""
    assert call(server, "SET", "k", "v") == b"OK"
    with CuttingProxy(server.port) as proxy:
        assert call(server, "REPLICAOF", "127.0.0.1", proxy.port) == b"OK"
        server.wait_for_log("to follow itself")
        assert info(server)["master_link_status"] == "down"
    assert call(server, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(server, "GET", "k") == b"v"


def test_an_impossible_hand_over_is_given_up(pair):
    leader, replica = pair()
    assert error_of(call(leader, "FAILOVER", "TO", "127.0.0.1", 1)).startswith("ERR FAILOVER target HOST and PORT")
    with replica.frozen():
        call(leader, "SET", "k", "v")
        assert call(leader, "FAILOVER", "TIMEOUT", 600_000) == b"OK"
        for order in (("NO", "ONE"), ("127.0.0.1", replica.port)):
            assert error_of(call(leader, "REPLICAOF", *order)) == "ERR REPLICAOF not allowed while failing over."
        assert error_of(call(leader, "SET", "k", "v2")).startswith("READONLY"), "writes have ended"
        assert call(leader, "FAILOVER", "ABORT") == b"OK"
        assert call(leader, "SET", "k", "v2") == b"OK", "writes go on when ABORT answers"
        assert info(leader)["master_failover_state"] == "no-failover"
        assert error_of(call(leader, "FAILOVER", "ABORT")).startswith("ERR No failover in progress")
        assert call(leader, "FAILOVER", "TIMEOUT", 300) == b"OK"
        wait_until("writes to go on", lambda: call(leader, "SET", "k", "v2") == b"OK")
        leader.wait_for_log("the hand-over has failed")
    wait_same(leader, replica)


def test_a_hand_over_does_not_wait_for_an_endless_script_for_long(pair):
    leader, replica = pair()
    with leader.connect() as client:
        client.send(resp.encode("EVAL", "redis.call('SET', KEYS[1], 1) while true do end", 1, "held"))
        leader.wait_for_log("busy-reply-threshold")
        assert call(leader, "FAILOVER", "TIMEOUT", 600_000) == b"OK"
        wait_until("writes to go on", lambda: call(leader, "SET", "k", "v") == b"OK")
        leader.wait_for_log("did not end in time")
        assert call(leader, "SCRIPT", "KILL") == b"OK"
        assert "Script killed" in client.read().text
    wait_same(leader, replica)


def test_a_wait_for_replicas_ends_in_time_also_while_the_server_stops(new_server):
    server = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "2")).start()
    before = int(info(server)["master_repl_offset"])
    with server.connect() as client:
        client.send(resp.encode("SET", "k", "v"))
        wait_until("it to be in the log", lambda: int(info(server)["master_repl_offset"]) > before)
        server.signal(signal.SIGTERM)
        assert error_of(client.read()).startswith("NOREPLICAS")
    assert server.wait_exit() == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_hand_over_without_a_timeout_is_given_up_as_well(pair):
    leader, replica = pair()
    with replica.frozen():
        call(leader, "SET", "k", "v")
        assert call(leader, "FAILOVER") == b"OK"
        wait_until("writes to go on", lambda: call(leader, "SET", "k", "v2") == b"OK", patience_s=2 * PATIENCE_S)
    wait_same(leader, replica)


def test_the_leader_is_not_changed_while_it_is_unknown_whether_the_replica_leads(pair):
    leader, replica = pair()
    with replica.frozen():
        # The replica does not answer, but is told to lead all the same.
        assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 100) == b"OK"
        wait_until("the replica to be told", lambda: info(leader)["replication_fenced_by_epoch"] != "0")
        for order in (("NO", "ONE"), ("127.0.0.1", replica.port)):
            assert error_of(call(leader, "REPLICAOF", *order)) == "ERR REPLICAOF not allowed while failing over."
        assert error_of(call(leader, "FAILOVER", "ABORT")).startswith("ERR FAILOVER cannot be aborted now")
    wait_until("the roles to change", lambda: has_role(replica, "master") and is_following(leader))
    assert call(replica, "SET", "k", "v") == b"OK"
    wait_same(replica, leader)


def test_a_leader_follows_a_replica_that_leads_though_it_gave_no_answer_in_time(pair):
    leader, replica = pair()
    with replica.frozen():
        assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 100) == b"OK"
        leader.wait_for_log("it is not known whether the replica leads now")
        assert info(leader)["read_only_reason"] == "deposed"
    wait_until("the roles to change", lambda: has_role(replica, "master") and is_following(leader))
    assert call(replica, "SET", "k", "v") == b"OK"
    wait_same(replica, leader)
    assert_nothing_parted(leader, replica)


def test_a_leader_leads_on_if_the_replica_was_started_again_instead_of_leading(pair):
    leader, replica = pair()
    with replica.frozen():
        call(leader, "SET", "k", "v")
        assert call(leader, "FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 100) == b"OK"
        wait_until("the replica to be told", lambda: info(leader)["replication_fenced_by_epoch"] != "0")
        replica.kill()
    leader.wait_for_log("it is not known whether the replica leads now")
    assert error_of(call(leader, "SET", "k", "w")).startswith("READONLY"), "another process may have been told"
    replica.start()
    wait_until("the leader to lead on", lambda: call(leader, "SET", "k", "w") == b"OK")
    wait_same(leader, replica)
    assert_nothing_parted(leader, replica)
    leader.kill()
    leader.start()
    assert call(leader, "SET", "k", "x") == b"OK", "that outlives a restart"


def test_a_connection_may_break_at_any_time(new_server):
    leader = new_server().start()
    write_all_types(leader, "first")
    with CuttingProxy(leader.port) as proxy:
        replica = follower_of(new_server, leader, port=proxy.port)
        for number in range(15):
            write_all_types(leader, f"cut{number}")
            proxy.cut()
        wait_same(leader, replica)
    assert replica.log().count("copying everything") == 1


def test_strangers_are_refused_and_harm_nothing(pair):
    leader, replica = pair()
    attempts = [
        b"REPLICATE\r\n",
        b"REPLICATE x\r\n",
        b"REPLICATE 2 2 3 4 5 6 7\r\n",
        b"REPLICATE 99 whatever\r\n",
        resp.encode("REPLICATE", 2, "00" * 16, 0, 4096, "00" * 8, 1, "11" * 16),
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    ]
    for attempt in attempts:
        with socket.create_connection(("127.0.0.1", leader.port)) as stranger:
            stranger.settimeout(30)
            stranger.sendall(attempt)
            answer = stranger.recv(4096)
            assert answer == b"" or answer.startswith(b"-"), (attempt, answer)
    other = follower_of_another(replica)
    assert other.startswith("+RESUME"), other
    write_all_types(leader, "still")
    wait_same(leader, replica)


def follower_of_another(server: Server) -> str:
    """Claims to be a replica with the right end of the log, then sends garbage; returns the answer."""
    fields = info(server)
    log_id, end = fields["master_replid"][:32], fields["master_repl_offset"]
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.settimeout(30)
        stranger.sendall(resp.encode("REPLICATE", 2, log_id, 0, end, "00" * 8, 1, "22" * 16))
        answer = stranger.recv(4096).split(b"\r\n")[0].decode()
        if answer.startswith("+PROBE"):
            return "+RESUME is not for who does not know the chain"
        stranger.sendall(b"\xff" * 4096)
        while stranger.recv(4096):
            pass
    return answer


def test_another_log_is_never_merged(new_server, pair):
    leader, _ = pair()
    stranger = new_server().start()
    call(stranger, "SET", "mine", "1")
    assert call(stranger, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    stranger.wait_for_log("the replica holds another log")
    assert refuses_reads(stranger), "none of it is the leader's"
    assert call(stranger, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(stranger, "GET", "mine") == b"1"
    assert call(stranger, "SET", "mine", "2") == b"OK"


def test_the_port_of_http_is_told_from_that_of_redis(new_server):
    leader = new_server().start()
    replica = new_server(extra=("--replica-of", f"127.0.0.1:{leader.http_port}")).start()
    replica.wait_for_log("this is the port of HTTP: name the port on which that server serves Redis")
    for port in (leader.port, leader.http_port):
        refused = error_of(call(leader, "REPLICAOF", "127.0.0.1", port))
        assert refused == f"ERR 127.0.0.1:{port} is this server itself", refused


def test_a_password_is_said_to_the_leader(new_server):
    leader = new_server(requirepass="secret").start()
    call(leader, "SET", "k", "v")
    extra = ("--replica-of", f"127.0.0.1:{leader.port}")
    replica = new_server(extra=extra, requirepass="secret").start()
    replica.wait_for_log("refuses")
    with Couch(replica.http_port) as couch:
        up = couch.send("GET", "/_up")
        assert (up.status, up.json["error"]) == (503, "shows_nothing"), up.json
        assert call(replica, "CONFIG", "SET", "masterauth", "secret") == b"OK"
        wait_following(replica)
        assert call(replica, "GET", "k") == b"v"
        wait_until("it to be well", lambda: couch.send("GET", "/_up").status == 200)


def test_a_client_reads_its_own_writes_on_a_replica(pair):
    leader, replica = pair()
    with leader.connect() as writer, replica.connect() as reader:
        for number in range(100):
            writer.call("SET", "k", number)
            position = writer.call("CLIENT", "LSN")
            assert reader.call("WAITLSN", position, 60_000) == 1
            assert reader.call("GET", "k") == str(number).encode()


def test_watches_and_invalidations_work_on_a_replica(pair):
    leader, replica = pair()
    with leader.connect() as writer, replica.connect() as watcher, replica.connect() as cacher:
        writer.call("SET", "k", "1")
        assert watcher.call("WAITLSN", writer.call("CLIENT", "LSN"), 60_000) == 1
        watcher.call("WATCH", "k")
        cacher.call("HELLO", 3)
        cacher.call("CLIENT", "TRACKING", "ON")
        assert cacher.call("GET", "k") == b"1"
        writer.call("SET", "k", "2")
        assert cacher.read() == [b"invalidate", [b"k"]]
        watcher.call("MULTI")
        watcher.call("GET", "k")
        assert watcher.call("EXEC") is None, "what it watched has changed"
        writer.call("FLUSHALL")
        assert cacher.read() == [b"invalidate", None]


def test_a_replaced_leader_takes_no_writes_until_it_is_told_to_lead(new_server, pair):
    leader, replica = pair()
    call(leader, "SET", "k", "1")
    wait_same(leader, replica)
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    other = follower_of(new_server, replica)
    call(replica, "SET", "k", "2")
    wait_same(replica, other)
    # The replica of the new leader is sent to the old one by mistake.
    assert call(other, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    leader.wait_for_log("another server leads in a higher epoch")
    assert error_of(call(leader, "SET", "k", "3")).startswith("READONLY")
    assert refuses_reads(leader, GIVEN_UP)
    saved = leader.directory / "replication.json"
    wait_until("it to be saved", lambda: json.loads(saved.read_bytes())["fenced_by"] > 0)
    leader.options.port = leader.port
    leader.kill()
    leader.start()
    assert error_of(call(leader, "SET", "k", "3")).startswith("READONLY"), "it remembers that"
    assert refuses_reads(leader, GIVEN_UP)
    assert call(leader, "REPLICAOF", "NO", "ONE") == b"OK"
    wait_until("it to lead in a later epoch", lambda: try_to_write(leader))
    wait_same(leader, other)
    assert call(other, "GET", "k") == b"4"


def try_to_write(server: Server) -> bool:
    """Whether a write is accepted."""
    try:
        return call(server, "SET", "k", "4") == b"OK"
    except (OSError, resp.Closed):
        return False


def test_a_role_that_cannot_be_saved_is_not_taken(pair):
    leader, replica = pair()
    state = leader.directory / "replication.json"
    saved = state.read_bytes()
    state.unlink()
    (state / "in the way").mkdir(parents=True)
    refused = call(leader, "REPLICAOF", "127.0.0.1", free_port())
    assert error_of(refused).startswith("ERR cannot write replication.json")
    assert call(leader, "SET", "k", "v") == b"OK" and has_role(leader, "master")
    (state / "in the way").rmdir()
    state.rmdir()
    state.write_bytes(saved)
    wait_same(leader, replica)
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(leader, "REPLICAOF", "127.0.0.1", replica.port) == b"OK"
    wait_until("it to follow", lambda: is_following(leader))
    wait_same(replica, leader)


def test_many_waits_that_end_early_leave_nothing_behind(pair):
    """Each has a timeout of a day. Connections share the syncs of leader and replica, so a slow disk does not matter."""
    leader, _ = pair()
    each = 100
    with ExitStack() as stack:
        connections = [stack.enter_context(leader.connect()) for _ in range(40)]

        def wait_often(count: int) -> None:
            for _ in range(count // (each * len(connections))):
                for connection in connections:
                    connection.send((resp.encode("SET", "k", "v") + resp.encode("WAIT", 1, 86_400_000)) * each)
                for connection in connections:
                    assert [connection.read() for _ in range(2 * each)] == [b"OK", 1] * each

        wait_often(20_000)
        before = resident_bytes(leader.pid)
        wait_often(60_000)
    assert resident_bytes(leader.pid) - before < 12 << 20, "a timer for each wait"


@pytest.mark.parametrize("are_saved", [False, True], ids=["first document", "later document"])
def test_a_document_that_waits_for_a_replica_does_not_keep_the_replica_from_joining(new_server, are_saved):
    """Its copy needs a snapshot, which begins where documents are saved: those that wait are not."""
    acks = ("--ack-replicas", "1", "--ack-timeout", "1")
    leader = new_server(extra=() if are_saved else acks).start()
    if are_saved:
        with Couch(leader.http_port) as couch:
            couch.ok("PUT", "/notes")
            couch.ok("PUT", "/notes/a", {"n": 1})
        # A clean stop saves documents.
        assert leader.stop() == 0
        leader.options.extra = acks
        leader.start()
    with Couch(leader.http_port) as couch:
        waiting = couch.send("PUT", "/notes/b" if are_saved else "/notes", {"n": 2} if are_saved else None)
        assert waiting.told()[:2] == (503, "not_replicated")
        assert error_of(call(leader, "SET", "k", "v")).startswith("NOREPLICAS")
        replica = follower_of(new_server, leader)
        wait_until("writes to be acknowledged", lambda: couch.send("GET", "/_up").status == 200)
        assert call(leader, "SET", "k", "w") == b"OK"
        expected = couch.ok("GET", "/notes/_all_docs?include_docs=true")
    wait_same(leader, replica)
    with Couch(replica.http_port) as couch:
        assert couch.ok("GET", "/notes/_all_docs?include_docs=true") == expected
    # The same from its files.
    assert replica.stop() == 0
    replica.start()
    wait_same(leader, replica)
    with Couch(replica.http_port) as couch:
        assert couch.ok("GET", "/notes/_all_docs?include_docs=true") == expected


@contextmanager
def endless_script(replica: Server) -> Iterator[resp.Connection]:
    """The connection of a script that holds the slot of the key `k`."""
    with replica.connect() as reader:
        reader.send(resp.encode("EVAL_RO", "redis.call('GET', KEYS[1]) while true do end", 1, "k"))
        wait_until("the script to hold its slot", lambda: error_of(call(replica, "GET", "k")).startswith("BUSY"))
        yield reader


def test_an_endless_script_on_a_replica_is_ended_for_replication(pair):
    leader, replica = pair()
    assert call(leader, "SET", "k", "v1") == b"OK"
    wait_same(leader, replica)
    with endless_script(replica) as reader:
        assert call(leader, "SET", "k", "v2") == b"OK"
        assert call(leader, "SET", "m", "v") == b"OK"
        assert error_of(reader.read()).startswith("ERR the script was ended: it kept this replica")
    wait_same(leader, replica)
    replica.wait_for_log("scripts were ended")


def test_an_endless_script_of_a_replica_keeps_nobody_from_promoting_it(pair):
    leader, replica = pair()
    assert call(leader, "SET", "k", "v1") == b"OK"
    wait_same(leader, replica)
    with endless_script(replica) as reader:
        with leader.connect() as writer:
            assert writer.call("SET", "k", "v2") == b"OK"
            # On the replica's disk; the script keeps it from being applied.
            assert writer.call("WAIT", 1, 60_000) == 1
        leader.kill()
        assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
        assert error_of(reader.read()).startswith("ERR the script was ended")
    assert call(replica, "GET", "k") == b"v2"
    assert call(replica, "SET", "k", "v3") == b"OK"


def test_a_hand_over_to_a_replica_that_a_script_holds_up_is_given_up(pair):
    leader, replica = pair()
    assert call(leader, "SET", "k", "v1") == b"OK"
    wait_same(leader, replica)
    with endless_script(replica) as reader:
        assert call(leader, "SET", "k", "v2") == b"OK"
        assert call(leader, "FAILOVER", "TIMEOUT", 300) == b"OK"
        wait_until("the hand-over to end", lambda: info(leader)["master_failover_state"] == "no-failover")
        assert call(leader, "SET", "k", "v3") == b"OK"
        leader.wait_for_log("did not apply it in time: a script there may hold it up")
        # With more time, the script is ended first.
        assert call(leader, "FAILOVER", "TIMEOUT", 60_000) == b"OK"
        assert error_of(reader.read()).startswith("ERR the script was ended")
    wait_until("the roles to change", lambda: has_role(replica, "master") and is_following(leader))
    assert call(replica, "GET", "k") == b"v3"
