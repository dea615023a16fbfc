"""A disk that does not answer: what waits for it waits, the server says why, and a group goes on without it."""

import contextlib
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import procfs
from harness.couch import Couch
from harness.groups import NAME, member, settle, wait_leader
from harness.replicas import call, follower_of, info, is_following, wait_same
from harness.resp import Closed, Connection, encode
from harness.server import Server
from harness.volume import MIB, Volume
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def volume(tmp_path):
    volume = Volume(tmp_path, 300 * MIB)
    yield volume
    volume.close()


def doors(server) -> dict[str, object]:
    """What each door says; all of them answer, whichever thread serves the connection."""
    assert [call(server, "PING") for _ in range(4)] == [b"PONG"] * 4
    fields = info(server)
    with Couch(server.http_port) as couch:
        up, metrics = couch.get("/_up"), couch.get("/metrics").body.decode().splitlines()
    return {
        "role": fields["role"],
        "ROLE": call(server, "ROLE")[0],
        "link": fields.get("master_link_status"),
        "leader known": fields.get("group_leader_known"),
        "leads": "sheaf_replication_leader 1" in metrics,
        "leads the group": "sheaf_group_leader 1" in metrics,
        "knows a leader": "sheaf_group_leader_known 1" in metrics,
        "reason": fields["read_only_reason"],
        "up": up.json.get("error"),
    }


def answer(server, *words):
    """What one of the workers answers: another one may be writing the batch of its only client to the disk."""
    for _ in range(60):
        with contextlib.suppress(TimeoutError), Connection(server.port, timeout_s=1) as connection:
            return connection.call(*words)
    raise AssertionError(f"no worker answers {words}")


def wait_doors(server, **expected) -> None:
    """Waits until the doors say what is expected, all of them."""
    said: dict[str, object] = {}

    def agree() -> bool:
        said.update(doors(server))
        return expected.items() <= said.items()

    wait_until(f"{expected}", agree)


def test_the_server_says_that_the_disk_does_not_answer(new_server, volume):
    server = new_server(directory=volume.root / "data").start()
    try:
        with Couch(server.http_port) as couch, server.connect() as writer:
            assert couch.send("PUT", "/db").status == 201
            with volume.stalled():
                # The reply of this write, and perhaps all replies of its worker, wait for the disk.
                writer.send(encode("SET", "key", "value"))
                wait_until("the reason", lambda: couch.get("/_up").json.get("error") == "disk_stalled")
                assert couch.get("/_up").status == 503
                server.wait_for_log("The disk takes too long to write the log")
                assert couch.send("PUT", "/db/doc", {}).status == 503
            assert writer.read() == b"OK"
            wait_until("the end of the stall", lambda: couch.get("/_up").status == 200)
            assert couch.send("PUT", "/db/doc", {}).status == 201
        assert call(server, "GET", "key") == b"value"
    finally:
        server.close()


def test_new_connections_are_served_while_a_worker_waits_for_the_disk(new_server, volume):
    server = new_server(directory=volume.root / "data").start()
    try:
        with Couch(server.http_port) as couch, server.connect() as writer, volume.stalled():
            writer.send(encode("SET", "key", "value"))
            wait_until("the reason", lambda: couch.get("/_up").json.get("error") == "disk_stalled")
            # The worker of the writer waits for the disk; none of these connections is given to it.
            assert [call(server, "PING") for _ in range(8)] == [b"PONG"] * 8
            assert info(server)["read_only_reason"] == "disk_stalled"
            assert call(server, "SET", "other", "value").text.startswith("BUSY")
            assert call(server, "CONFIG", "SET", "ack-timeout", "9").text.startswith("BUSY")
    finally:
        server.close()


CHANGES_OF_FILES = {
    "a setting": [("CONFIG", "SET", "timeout", "7")],
    "a setting in a transaction": [("MULTI",), ("CONFIG", "SET", "timeout", "7"), ("EXEC",)],
    "users": [("ACL", "SAVE")],
    "the configuration file": [("CONFIG", "REWRITE")],
}


@pytest.mark.parametrize("change", CHANGES_OF_FILES)
def test_a_command_that_writes_a_file_keeps_no_other_client_waiting(new_server, volume, change):
    extra = []
    if change == "users":
        users = volume.root / "users.acl"
        users.write_text("user anna on nopass ~* +@all\nuser default on nopass ~* &* +@all\n")
        extra = ["--aclfile", str(users)]
    elif change == "the configuration file":
        config = volume.root / "sheaf.toml"
        config.write_text("timeout = 5\n")
        extra = ["--config", str(config)]
    server = new_server(directory=volume.root / "data", extra=extra).start()
    try:
        clients = [server.connect() for _ in range(4)]
        assert [client.call("PING") for client in clients] == [b"PONG"] * 4
        if change == "the configuration file":
            assert call(server, "CONFIG", "SET", "timeout", "7") == b"OK"
        with server.connect() as changer, Couch(server.http_port) as couch:
            with volume.stalled():
                changer.send(b"".join(encode(*words) for words in CHANGES_OF_FILES[change]))
                for _ in range(20):
                    assert [client.call("PING") for client in clients] == [b"PONG"] * 4
                    assert clients[0].call("INFO", "server") and clients[1].call("CONFIG", "GET", "timeout")
                    assert [call(server, "GET", f"key:{number}") for number in range(4)] == [None] * 4
                if change.startswith("a setting"):
                    wait_until("the reason", lambda: couch.get("/_up").json.get("error") == "disk_stalled")
                    # Another change waits behind it, keeps nobody waiting either, and is given up.
                    with server.connect() as second:
                        second.send(encode("CONFIG", "SET", "slowlog-max-len", "5"))
                        assert [client.call("PING") for client in clients] == [b"PONG"] * 4
                        assert "earlier change" in second.read().text
            replies = [changer.read() for _ in CHANGES_OF_FILES[change]]
            assert replies[-1] in (b"OK", [b"OK"]), replies
        wait_until("the end", lambda: call(server, "CONFIG", "GET", "timeout") == [b"timeout", b"7"] or change == "users")
    finally:
        server.close()


def test_settings_of_the_data_change_while_the_configuration_file_is_not_written(new_server, volume):
    config = volume.root / "sheaf.toml"
    config.write_text("timeout = 5\n")
    # The log is on another disk.
    server = new_server(extra=["--config", str(config)]).start()
    try:
        assert call(server, "CONFIG", "SET", "timeout", "7") == b"OK"
        with server.connect() as rewriter:
            with volume.stalled():
                rewriter.send(encode("CONFIG", "REWRITE"))
                for seconds in range(20, 40):
                    assert call(server, "CONFIG", "SET", "ack-timeout", str(seconds)) == b"OK"
                    assert call(server, "CONFIG", "GET", "ack-timeout") == [b"ack-timeout", str(seconds).encode()]
            assert rewriter.read() == b"OK"
        assert "timeout = 7" in config.read_text()
    finally:
        server.close()


def test_a_setting_over_http_keeps_no_other_client_waiting(new_server, volume):
    server = new_server(directory=volume.root / "data").start()
    try:
        with ThreadPoolExecutor() as threads, Couch(server.http_port) as changer, Couch(server.http_port) as couch:
            with volume.stalled():
                changed = threads.submit(changer.send, "PUT", "/_node/_local/_config/log/level", "warn")
                wait_until("the reason", lambda: couch.get("/_up").json.get("error") == "disk_stalled")
                for _ in range(8):
                    with Couch(server.http_port) as other:
                        assert other.get("/").status == 200
            assert changed.result().status == 200
    finally:
        server.close()


def group_on(volume: Volume, new_server) -> tuple[Server, list[Server]]:
    """A leader whose data are on the volume, and two others."""
    leader = member(new_server, directory=volume.root / "data").start()
    wait_leader([leader])
    others = [member(new_server, leader).start() for _ in range(2)]
    settle([leader, *others], 3)
    return leader, others


def test_a_leader_whose_disk_does_not_answer_loses_the_lead(new_server, volume):
    leader, others = group_on(volume, new_server)
    try:
        with leader.connect() as writer, volume.stalled():
            writer.send(encode("SET", "unknown", "outcome"))
            elected = wait_leader(others)
            assert call(elected, "SET", "key", "value") == b"OK"
        wait_until("it to follow", lambda: is_following(leader))
        wait_same(elected, leader)
        assert call(elected, "GET", "key") == b"value"
    finally:
        leader.close()


def test_a_leader_whose_disk_does_not_answer_names_itself_at_no_door(new_server, volume):
    leader, others = group_on(volume, new_server)
    try:
        with leader.connect() as writer, volume.stalled():
            writer.send(encode("SET", "unknown", "outcome"))
            wait_leader(others)
            wait_until("its silence", lambda: answer(leader, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) is None)
            assert answer(leader, "ROLE")[0] == b"slave"
            fields = answer(leader, "INFO", "replication").decode().splitlines()
            assert "role:slave" in fields and "group_leader_known:0" in fields
            with Couch(leader.http_port) as couch:
                assert couch.get("/_up").json["error"] in ("no_majority", "disk_stalled")
                metrics = couch.get("/metrics").body.decode()
            for name in ("sheaf_replication_leader", "sheaf_group_leader", "sheaf_group_leader_known"):
                assert f"\n{name} 0\n" in metrics
        wait_until("it to follow", lambda: is_following(leader))
    finally:
        leader.close()


def test_a_leader_whose_disk_does_not_answer_keeps_no_client_waiting(new_server, volume):
    leader, others = group_on(volume, new_server)
    try:
        with contextlib.ExitStack() as stack:
            couch = stack.enter_context(Couch(leader.http_port))
            waiting = stack.enter_context(leader.connect())
            threads = stack.enter_context(ThreadPoolExecutor(1))
            assert couch.send("PUT", "/db").status == 201
            waiting.send(encode("BLPOP", "queue", 0))
            with volume.stalled():
                # The thread of the log writes it, so that no worker waits for the disk itself.
                writing = threads.submit(couch.send, "PUT", "/db/doc", {})
                wait_until("no lease", lambda: call(leader, "ROLE")[0] == b"slave")
                with pytest.raises(Closed):
                    waiting.read()
                for words in (("GET", "key"), ("SET", "key", "value"), ("BLPOP", "queue", 0)):
                    assert call(leader, *words).text.startswith("CLUSTERDOWN"), words
                assert call(leader, "PING") == b"PONG"
                assert call(wait_leader(others), "SET", "key", "value") == b"OK"
            with pytest.raises(ConnectionError):
                writing.result()
        wait_until("it to follow", lambda: is_following(leader))
    finally:
        leader.close()


def test_a_leader_that_nobody_can_replace_leads_on_after_a_stall(new_server, volume):
    leader = member(new_server, directory=volume.root / "data").start()
    wait_leader([leader])
    # Just elected, a leader saves the members. A stall during that blocks the thread that would notice the stall.
    settle([leader], 1)
    try:
        with leader.connect() as writer:
            for number in range(2):
                with volume.stalled():
                    writer.send(encode("SET", "key", number))
                    wait_until(
                        "it to be silent", lambda number=number: leader.log().count("the disk here does not answer") == number + 1
                    )
                assert writer.read() == b"OK"
                assert [call(leader, "SET", f"key:{more}", more) for more in range(5)] == [b"OK"] * 5
    finally:
        leader.close()


def test_a_follower_whose_disk_does_not_answer_at_an_election_answers(new_server, volume):
    leader = member(new_server).start()
    wait_leader([leader])
    stalled = member(new_server, leader, directory=volume.root / "data").start()
    other = member(new_server, leader).start()
    settle([leader, stalled, other], 3)
    try:
        with volume.stalled():
            leader.kill()
            # Its vote, which has to be on disk, is asked for, and again and again.
            wait_doors(stalled, role="slave", link="down", up="disk_stalled", reason="disk_stalled", **{"leader known": "0"})
            assert call(stalled, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) is None
            assert call(stalled, "GROUP", "INFO")
            assert call(stalled, "GET", "key").text.startswith("CLUSTERDOWN")
        elected = wait_leader([stalled, other])
        assert call(elected, "SET", "key", "value") == b"OK"
    finally:
        stalled.close()


def test_a_leader_is_told_to_follow_while_its_disk_does_not_answer(new_server, volume):
    other = new_server().start()
    leader = new_server(directory=volume.root / "data").start()
    try:
        with leader.connect() as told:
            with volume.stalled():
                told.send(encode("REPLICAOF", other.host, other.port))
                # Nobody is told of a role that the disk does not have.
                wait_doors(leader, role="master", leads=True, up="disk_stalled", reason="disk_stalled")
                error = call(leader, "FAILOVER")
                assert error.text == "ERR FAILOVER requires connected replicas."
            assert told.read() == b"OK"
        wait_same(other, leader)
    finally:
        leader.close()


def test_a_replica_is_told_to_lead_while_its_disk_does_not_answer(new_server, volume):
    leader = new_server().start()
    replica = follower_of(new_server, leader, directory=volume.root / "data")
    try:
        with replica.connect() as told:
            with volume.stalled():
                told.send(encode("REPLICAOF", "NO", "ONE"))
                wait_doors(replica, role="slave", leads=False, up="disk_stalled", reason="disk_stalled")
                assert call(replica, "SET", "key", "value").text.startswith("READONLY")
            assert told.read() == b"OK"
        wait_until("it to lead", lambda: call(replica, "SET", "key", "value") == b"OK")
    finally:
        replica.close()


def is_turned_away(port: int, request: bytes) -> bool:
    """Whether a new connection is closed or refused without an answer."""
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(("127.0.0.1", port))
            connection.sendall(request)
            return connection.recv(100) == b""
        except ConnectionError:
            return True


def test_a_replica_that_stops_while_its_disk_does_not_answer_turns_new_clients_away(new_server, volume):
    leader = new_server().start()
    replica = follower_of(new_server, leader, directory=volume.root / "data")
    try:
        with volume.stalled():
            assert call(leader, "SET", "key", "value") == b"OK"
            wait_doors(replica, reason="disk_stalled")
            replica.signal(signal.SIGTERM)
            wait_until("the log to be closed", lambda: "scrubber" not in procfs.thread_names(replica.pid))
            assert is_turned_away(replica.port, encode("PING"))
            assert is_turned_away(replica.http_port, b"GET /_up HTTP/1.1\r\nHost: x\r\n\r\n")
        assert replica.wait_exit() == 0
    finally:
        replica.close()


def test_an_order_to_lead_behind_one_that_waits_for_the_disk_is_refused(new_server, volume):
    other = new_server().start()
    leader = new_server(directory=volume.root / "data").start()
    try:
        with leader.connect() as told:
            with volume.stalled():
                told.send(encode("REPLICAOF", other.host, other.port))
                wait_doors(leader, role="master", up="disk_stalled")
                # It leads still, and is about to follow: an OK would be a lie.
                refused = call(leader, "REPLICAOF", "NO", "ONE")
                assert "earlier change" in refused.text and "nothing was changed" in refused.text
            assert told.read() == b"OK"
        wait_same(other, leader)
    finally:
        leader.close()


def test_an_order_that_the_disk_does_not_take_is_answered(new_server, volume):
    leader = new_server().start()
    replica = follower_of(new_server, leader, directory=volume.root / "data")
    try:
        with replica.connect() as told, volume.stalled():
            told.send(encode("REPLICAOF", "NO", "ONE"))
            assert "it is not done yet" in told.read().text
            assert call(replica, "ROLE")[0] == b"slave"
        wait_until("it to lead", lambda: call(replica, "SET", "key", "value") == b"OK")
    finally:
        replica.close()


@pytest.mark.parametrize("ending", ["TIMEOUT", "ABORT"])
def test_a_failover_ends_although_the_disk_of_the_leader_does_not_answer(new_server, volume, ending):
    leader = new_server(directory=volume.root / "data").start()
    replica = follower_of(new_server, leader)
    failover = ("FAILOVER", "TIMEOUT", 2000) if ending == "TIMEOUT" else ("FAILOVER",)

    def state(connection) -> str:
        fields = connection.call("INFO", "replication").decode().splitlines()
        return next(field.partition(":")[2] for field in fields if field.startswith("master_failover_state:"))

    try:
        assert call(leader, "SET", "key", "value") == b"OK"
        with Couch(leader.http_port) as couch, leader.connect() as operator, ThreadPoolExecutor(1) as threads:
            assert couch.send("PUT", "/db").status == 201
            with volume.stalled():
                # The thread of the log writes it and waits, not a worker, so no command is in progress. The log
                # cannot end behind it.
                writing = threads.submit(couch.send, "PUT", "/db/doc", {})
                leader.wait_for_log("The disk takes too long to write the log")
                assert operator.call(*failover) == b"OK"
                assert state(operator) == "waiting-for-sync"
                if ending == "ABORT":
                    assert operator.call("FAILOVER", "ABORT") == b"OK"
                wait_until("the end of the hand-over", lambda: state(operator) == "no-failover")
                assert operator.call("ROLE")[0] == b"master"
            assert writing.result().status == 201
        # The end of the log that was requested comes now, or has come: it is in nobody's way.
        wait_until("writes", lambda: call(leader, "SET", "key", "newer") == b"OK")
        assert call(leader, "FAILOVER") == b"OK"
        wait_until("the replica to lead", lambda: call(replica, "SET", "other", "value") == b"OK")
        wait_same(replica, leader)
        assert call(leader, "GET", "key") == b"newer"
        with Couch(leader.http_port) as couch:
            assert couch.get("/db/doc").status == 200
    finally:
        leader.close()


def test_a_transfer_in_a_group_ends_although_the_disk_of_the_leader_does_not_answer(new_server, volume):
    leader, _ = group_on(volume, new_server)
    try:
        with leader.connect() as told:
            with volume.stalled():
                told.send(encode("GROUP", "TRANSFER"))
                assert told.read().text.startswith("ERR ")
    finally:
        leader.close()
