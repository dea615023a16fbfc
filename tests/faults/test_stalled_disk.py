"""A disk that does not answer: what waits for it waits, the server says why, and a group goes on without it."""

import pytest

from harness.couch import Couch
from harness.groups import member, settle, wait_leader
from harness.replicas import call, is_following, wait_same
from harness.resp import encode
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def volume(tmp_path):
    volume = Volume(tmp_path, 300 * MIB)
    yield volume
    volume.close()


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


def test_a_leader_whose_disk_does_not_answer_loses_the_lead(new_server, volume):
    leader = member(new_server, directory=volume.root / "data").start()
    wait_leader([leader])
    others = [member(new_server, leader).start() for _ in range(2)]
    settle([leader, *others], 3)
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
