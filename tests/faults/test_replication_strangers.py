"""Peers that are neither leader nor replica, or send false data: a clear line in the log, the connection
closed, no harm.
"""

import socket

import pytest

from harness import resp
from harness.couch import Couch
from harness.false_leader import ACK, FENCED, HEARTBEAT, LOG, Claim, FalseLeader, frame
from harness.replicas import call, error_of, follower_of, info, wait_following, wait_same
from harness.server import free_port
from harness.storm import contents
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

POSITION_MAX = (1 << 62) - 1
EPOCH_MAX = (1 << 32) - 1


# -- strangers to a leader -----------------------------------------------------------------------------------


def claim_of(end: int, epoch: int = 0, version: int = 2, log_id: str = "00" * 16) -> bytes:
    """REPLICATE with these arguments."""
    return resp.encode("REPLICATE", version, log_id, epoch, end, "00" * 8, 1, "11" * 16)


def test_huge_and_impossible_claims_and_marks_are_refused(new_server):
    leader = new_server().start()
    call(leader, "SET", "k", "v")
    with leader.connect() as connection:
        for position in (POSITION_MAX, POSITION_MAX - 4096, 1):
            assert connection.call("REPLICATE", "MARKS", position, "ff" * 8) == -1
        marks = [word for number in range(256) for word in (POSITION_MAX - number, "00" * 8)]
        assert connection.call("REPLICATE", "MARKS", *marks) == -1
        impossible = [
            (),
            (1,),
            (1 << 62, "00" * 8),
            (1 << 64, "00" * 8),
            (-1, "00" * 8),
            (1, "0" * 15),
            (1, "0" * 15 + "x"),
            (*marks, 1, "00" * 8),
            ("x" * 100_000, "y" * 100_000),
        ]
        for words in impossible:
            assert error_of(connection.call("REPLICATE", "MARKS", *words)).startswith("ERR"), words[:3]
        assert connection.call("GET", "k") == b"v", "the connection goes on"
    huge = (claim_of(1 << 62), claim_of(1 << 64), claim_of(4096, epoch=1 << 32))
    for attempt in (*huge, claim_of(POSITION_MAX), claim_of(1)):
        answer = answer_to(leader, attempt)
        assert answer.startswith(b"-ERR"), (attempt, answer)
    log_id = info(leader)["master_replid"][:32]
    answer = answer_to(leader, claim_of(4096, epoch=EPOCH_MAX, log_id=log_id))
    assert answer.startswith(b"-ERR the replica has seen epoch 4294967295, too far ahead of"), answer
    assert call(leader, "SET", "k", "v2") == b"OK", "nobody has fenced it"
    follower = follower_of(new_server, leader)
    wait_same(leader, follower)


def answer_to(server, request: bytes) -> bytes:
    """The server's answer to a request before it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.settimeout(30)
        stranger.sendall(request)
        answer = b""
        while piece := stranger.recv(4096):
            answer += piece
    return answer


def test_a_transaction_cannot_become_a_replica(new_server):
    leader = new_server().start()
    with leader.connect() as connection:
        for request in (claim_of(0), resp.encode("REPLICATE", "MARKS", 1, "00" * 8)):
            assert connection.call("MULTI") == b"OK"
            connection.send(request)
            assert error_of(connection.read()) == "ERR Command not allowed inside a transaction"
            assert error_of(connection.call("EXEC")).startswith("EXECABORT")
        assert connection.call("SET", "k", "v") == b"OK"


def test_a_replica_needs_the_password(new_server):
    leader = new_server(requirepass="secret").start()
    for attempt in (claim_of(0), claim_of(4096), resp.encode("REPLICATE", "MARKS", 1, "00" * 8)):
        with resp.Connection(leader.port) as stranger:
            stranger.send(attempt)
            assert error_of(stranger.read()).startswith("NOAUTH")
    assert "a replica" not in leader.log()


# -- strangers to a replica ----------------------------------------------------------------------------------


def resume(claim: Claim, *frames: bytes, epoch: int | None = None, end: int | None = None) -> bytes:
    """Accepts the replica's position, or another one, and sends these frames."""
    words = (claim.end if end is None else end, claim.epoch if epoch is None else epoch)
    return b"+RESUME %d %d\r\n" % words + b"".join(frames)


def heartbeat(claim: Claim, epoch: int) -> bytes:
    """A heartbeat of a leader that has shipped nothing."""
    return frame(HEARTBEAT, epoch, claim.end, claim.end)


def log_of(claim: Claim, payload: bytes) -> bytes:
    """These bytes as the next ones of the log."""
    return frame(LOG, claim.epoch, claim.end, claim.end, payload)


# The replica's log line, and the leader's answer.
LIES = [
    ("this is the port of HTTP", lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ("the other end is not a Sheaf server", lambda _: b"x" * 100_000),
    ("refuses: -ERR I am something else", lambda _: b"-ERR I am something else\r\n"),
    ("refuses: +RESUME", lambda claim: resume(claim, end=claim.end + 4096)),
    ("leads in epoch 0, epoch 1 has begun", lambda claim: resume(claim, heartbeat(claim, 0), epoch=0)),
    ("the leader of epoch 0 is deposed", lambda claim: resume(claim, heartbeat(claim, 0))),
    ("too far ahead of epoch 1 to be believed", lambda claim: resume(claim, epoch=EPOCH_MAX)),
    ("epoch 4294967295 is too far ahead", lambda claim: resume(claim, heartbeat(claim, EPOCH_MAX))),
    ("the bytes are not a frame of replication", lambda claim: resume(claim, b"\xff" * 4096)),
    ("the checksum of a frame does not match", lambda claim: resume(claim, heartbeat(claim, 1)[:-1] + b"\xff")),
    ("a frame of unknown kind 9", lambda claim: resume(claim, frame(9, claim.epoch, claim.end, 0))),
    ("a frame that does not come from this side", lambda claim: resume(claim, frame(ACK, 1, claim.end, 0))),
    ("a frame of 2147483648 bytes", lambda claim: resume(claim, frame(LOG, 1, claim.end, 0, length=1 << 31))),
    ("a frame with impossible fields", lambda claim: resume(claim, log_of(claim, b""))),
    ("comes next", lambda claim: resume(claim, frame(LOG, 1, claim.end + 4096, 0, b"x" * 4096))),
    ("do not continue the log", lambda claim: resume(claim, log_of(claim, b"x" * 4096))),
    ("do not continue the log", lambda claim: resume(claim, log_of(claim, bytes(8192)))),
    (f"the frame is for lsn {POSITION_MAX}", lambda claim: resume(claim, frame(HEARTBEAT, 1, POSITION_MAX, 0))),
    ("the leader of epoch 1 is deposed", lambda claim: resume(claim, frame(FENCED, 1, 0, 0))),
    ("refuses: :what", lambda claim: b":what\r\n" if claim.is_marks else b"+PROBE\r\n"),
    ("names lsn 4097, where no batch ends here", lambda claim: b":4097\r\n" if claim.is_marks else b"+PROBE\r\n"),
    ("the copy from the leader is not complete", lambda _: b"+FULL 1\r\n"),
]


def test_a_false_leader_harms_nothing(new_server):
    leader = new_server(port=free_port()).start()
    replica = follower_of(new_server, leader)
    for number in range(50):
        call(leader, "SET", f"key:{number}", "x" * number)
    wait_same(leader, replica)
    with replica.connect() as connection:
        before = contents(connection)
    leader.kill()
    for text, answer in LIES:
        said = replica.log().count(text)
        with FalseLeader(leader.port, answer) as false:
            wait_until(f"{text!r} in the log", lambda text=text, said=said: replica.log().count(text) > said)
            wait_until("the replica to hang up", lambda false=false: false.closed > 0)
        with replica.connect() as connection:
            assert contents(connection) == before, text
    leader.start()
    wait_following(replica)
    assert call(leader, "SET", "after", "all of them") == b"OK"
    wait_same(leader, replica)
    assert replica.log().count("everything was copied") == 1
    replica.kill()
    replica.start()
    wait_same(leader, replica)


# -- rings ---------------------------------------------------------------------------------------------------


def up_of(server) -> tuple[int, str | None]:
    """The status of `/_up`, and the reason."""
    with Couch(server.http_port) as couch:
        answer = couch.send("GET", "/_up")
        return answer.status, answer.json.get("error")


@pytest.mark.parametrize("count", [2, 3])
def test_servers_that_follow_each_other_say_that_nobody_leads(new_server, count):
    first = new_server().start()
    assert call(first, "SET", "k", "v") == b"OK"
    ring = [first]
    while len(ring) < count:
        ring.append(follower_of(new_server, ring[-1]))
    outside = follower_of(new_server, ring[-1])
    servers = [*ring, outside]
    assert call(first, "REPLICAOF", "127.0.0.1", ring[-1].port) == b"OK"
    for server in servers:
        wait_until("it to say so", lambda server=server: up_of(server) == (503, "ring"))
        shown = info(server)
        assert (shown["role"], shown["master_link_status"], shown["read_only_reason"]) == ("slave", "down", "ring")
        assert int(shown["master_link_down_since_seconds"]) >= 0
        assert call(server, "ROLE")[3] == b"connect"
        server.wait_for_log("follow each other in a ring")
        assert error_of(call(server, "SET", "k", "w")).startswith("READONLY")
        assert call(server, "GET", "k") == b"v", "reads go on"
    assert call(first, "REPLICAOF", "NO", "ONE") == b"OK"
    wait_until("a write", lambda: call(first, "SET", "k", "w") == b"OK")
    for server in servers[1:]:
        wait_until("it to follow", lambda server=server: up_of(server)[0] == 200)
        wait_same(first, server)
        assert server.log().count("follow each other in a ring") == 1
        assert info(server)["master_link_status"] == "up"
