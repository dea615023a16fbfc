"""Who belongs to a group: starts, mistakes in them, changes of members and addresses, and strangers."""

import contextlib
import shutil
import socket
import struct

import pytest

from harness import resp
from harness.couch import Couch
from harness.groups import (
    NAME,
    accepts_writes,
    fields,
    group_of,
    member,
    members,
    others,
    settle,
    wait_leader,
    wait_voters,
)
from harness.replicas import call, error_of, has_role, is_following
from harness.resp import UNREACHABLE
from harness.server import Server, free_port, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


def listed(server: Server, of: Server) -> dict[str, object]:
    """The line of one member."""
    return next(row for row in members(server) if row["address"] == f"127.0.0.1:{of.port}".encode())


def wait_missed(leader: Server, member_id: object) -> None:
    """Waits until the leader misses a member that is dead."""
    missed = "has not answered for a second"
    wait_until("it to be missed", lambda: missed in error_of(call(leader, "GROUP", "TRANSFER", member_id)))


def metric(server: Server, name: str) -> float:
    """A figure of /metrics."""
    with Couch(server.http_port) as couch:
        lines = couch.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def refusal_of(directory, *arguments: str, port: int = 0) -> str:
    """What a start that is refused says."""
    place = ("--dir", str(directory), "--port", str(port), "--http-port", "0", "--log-segment-bytes", "16mb")
    ended = run_sheaf("serve", *place, *arguments)
    assert ended.returncode in (1, 2), ended.stderr
    return ended.stderr


def reason_of(server: Server, method: str, path: str) -> str:
    """The reason for which a request is refused."""
    with Couch(server.http_port) as couch:
        return couch.send(method, path).json.get("reason", "")


def up_of(server: Server) -> tuple[int, str]:
    """The status of `/_up`, and the reason."""
    with Couch(server.http_port) as couch:
        answer = couch.send("GET", "/_up")
        return answer.status, answer.json.get("error")


def warnings_of(server: Server) -> list[str]:
    """The lines of its log that are worth a look."""
    return [line for line in server.log().splitlines() if " WARN " in line or " ERROR " in line]


def test_a_group_starts_without_a_warning_and_tells_about_its_members(new_server):
    servers = group_of(new_server)
    for server in others(servers, servers[0]):
        wait_until("it to follow", lambda one=server: is_following(one))
    assert call(servers[0], "SET", "k", "v") == b"OK"
    assert [warnings_of(server) for server in servers] == [[], [], []]
    names = {"id", "address", "http-port", "kind", "role", "self", "epoch", "durable", "committed", "lag-bytes"}
    for row in members(servers[0]):
        assert set(row) == names | {"heard-ms"} and row["kind"] == b"voter", row
    wait_until("all to know all", lambda: all(row["committed"] and row["epoch"] for row in members(servers[0])))
    assert metric(servers[0], "sheaf_group_quorum_seconds_count") > 0
    assert metric(servers[0], "sheaf_group_leader") == 1
    assert metric(servers[1], "sheaf_group_leader_known") == 1
    before = metric(servers[1], "sheaf_group_leaderless_seconds_total")
    servers[0].kill()
    servers[2].kill()
    wait_until("time without a leader", lambda: metric(servers[1], "sheaf_group_leaderless_seconds_total") > before)


def test_a_server_that_joins_an_idle_group_becomes_a_voter(new_server):
    # Nothing is written after it has copied everything.
    first = member(new_server).start()
    wait_leader([first])
    second = member(new_server, first).start()
    wait_voters([first], 2)
    both = [member(new_server, first), member(new_server, first)]
    for server in both:
        server.spawn()
    wait_voters([first], 4)
    for server in (second, *both):
        wait_until("it to follow", lambda one=server: is_following(one))


def test_a_member_refuses_weak_durability(new_server, tmp_path):
    for weak in ("interval", "none"):
        assert "--durability strict" in refusal_of(tmp_path / "weak", "--group", NAME, "--durability", weak)
        shutil.rmtree(tmp_path / "weak")
    server = member(new_server).start()
    wait_leader([server])
    for weak in ("interval", "none"):
        assert "--durability strict" in error_of(call(server, "CONFIG", "SET", "durability", weak))
        assert "a majority" in error_of(call(server, "CLIENT", "DURABILITY", weak))
    assert call(server, "CONFIG", "SET", "durability", "commit") == b"OK"
    assert server.stop() == 0
    assert "--durability strict" in refusal_of(server.directory, "--durability", "interval")


def test_nobody_moves_the_address_of_a_member(new_server):
    servers = group_of(new_server)
    leader, moved, other = servers
    before = listed(leader, moved)
    stranger = new_server().start()
    for port, reason in [
        (other.port, "this server is another member"),
        (stranger.port, "does not find the member"),
        (free_port(), "does not find the member"),
    ]:
        for id_ in (before["id"], b"00000000000000aa"):
            words = ("GROUP", "JOIN", 1, NAME, id_, "127.0.0.1", port, 1)
            assert reason in error_of(call(leader, *words)), (port, id_)
    assert [row["id"] for row in members(leader)] == [row["id"] for row in members(moved)]
    assert listed(leader, moved)["id"] == before["id"]
    # It does move where it is started at another port.
    assert moved.stop() == 0
    moved.options.port = free_port()
    moved.start()
    address = f"127.0.0.1:{moved.port}".encode()
    wait_until("the new address", lambda: any(row["address"] == address for row in members(leader)))
    assert listed(leader, moved)["id"] == before["id"]
    # A copy of its directory does not take its place while it runs.
    assert moved.stop() == 0
    copy = new_server(port=free_port())
    shutil.copytree(moved.directory, copy.directory)
    moved.start()
    wait_until("it to follow", lambda: is_following(moved))
    copy.start()
    copy.wait_for_log("two servers run with its directory")
    copy.kill()
    assert listed(leader, moved)["id"] == before["id"]


def test_a_mistake_in_joining_is_told_and_can_be_corrected(new_server, tmp_path):
    first = member(new_server).start()
    wait_leader([first])
    port = free_port()
    itself = ("--group", NAME, "--join", f"127.0.0.1:{port}")
    assert "is this server itself" in refusal_of(tmp_path / "itself", *itself, port=port)
    mistyped = new_server(port=free_port(), extra=("--group", "shpo", "--join", f"127.0.0.1:{first.port}")).start()
    mistyped.wait_for_log("belongs to the group 'shop', not to 'shpo'")
    assert fields(mistyped, "GROUP", "INFO")["state"] == b"joining"
    for command in (("SET", "k", "v"), ("GET", "k")):
        assert error_of(call(mistyped, *command)).startswith("CLUSTERDOWN This server is not in its group yet"), command
    with Couch(mistyped.http_port) as couch:
        assert couch.get("/_up").json["error"] == "joining"
        assert "not in its group yet" in couch.get("/_all_dbs").told()[2]
    # A start that is refused founds no group, so the corrected start can join one.
    refused = refusal_of(tmp_path / "nowhere", "--group", NAME, "--bind", "0.0.0.0")
    assert "set group-host" in refused and not (tmp_path / "nowhere" / "group.json").exists()
    shown = run_sheaf("group", f"127.0.0.1:{mistyped.port}")
    assert shown.returncode == 3 and "asks to be added" in shown.stdout, shown.stderr
    assert "its log says what keeps it out" in shown.stderr
    assert mistyped.stop() == 0
    with_data = new_server(port=free_port()).start()
    assert call(with_data, "SET", "k", "v") == b"OK"
    assert with_data.stop() == 0
    join = ("--group", NAME, "--join", f"127.0.0.1:{first.port}")
    assert "empty directory" in refusal_of(with_data.directory, *join)
    with_data.start()
    assert call(with_data, "GET", "k") == b"v", "nothing has changed"
    assert len(members(first)) == 1, "nobody was listed"
    mistyped.options.extra = join
    mistyped.start()
    wait_voters([first], 2)
    assert mistyped.stop() == 0
    assert "belongs to the group 'shop', not to 'other'" in refusal_of(mistyped.directory, "--group", "other")


def test_a_server_that_others_take_for_the_leader_does_not_ask_itself(new_server):
    with socket.create_server(("127.0.0.1", 0)) as mistaken:
        joining = new_server(port=free_port(), extra=("--group", NAME, "--join", f"127.0.0.1:{mistaken.getsockname()[1]}"))
        joining.spawn()

        def is_told() -> bool:
            connection, _ = mistaken.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"-NOTLEADER 127.0.0.1:%d leads the group: ask it\r\n" % joining.port)
            return "cannot join the group" in joining.log()

        wait_until("it to tell", is_told)
    assert "it takes this server for the leader" in joining.log()
    assert "asks to be added to the group itself" not in joining.log()


def test_a_removed_member_is_told(new_server):
    servers = group_of(new_server, 4)
    leader, running, down, last = servers
    assert call(leader, "SET", "k", "v") == b"OK"
    down.kill()
    for server in (running, down):
        assert call(leader, "GROUP", "REMOVE", listed(leader, server)["id"]) == b"OK"
    down.start()
    for server in (running, down):
        server.wait_for_log("this server was removed from its group (GROUP REMOVE)")

        def says_so(one: Server = server) -> bool:
            shown = run_sheaf("group", f"127.0.0.1:{one.port}")
            return (
                error_of(call(one, "GET", "k")).startswith("MASTERDOWN This server was")
                and "was removed" in error_of(call(one, "SET", "k", "x"))
                and fields(one, "GROUP", "INFO")["state"] == b"removed"
                and shown.returncode == 3
                and "was removed from it" in shown.stdout
                and "Ask a member of the group" in shown.stderr
                and "was removed from its group" in error_of(call(one, "FAILOVER"))
                and up_of(one) == (503, "removed")
                and f"group_term:{fields(one, 'GROUP', 'INFO')['term']}\r\n".encode() in call(one, "INFO", "replication")
                and metric(one, "sheaf_group_term") == fields(one, "GROUP", "INFO")["term"]
                and "was removed from its group" in reason_of(one, "PUT", "/notes")
                and "was removed from its group" in reason_of(one, "GET", "/_all_dbs")
            )

        wait_until("it to say that it was removed", says_so)
    lost = member(new_server, running).start()
    lost.wait_for_log("this server was removed from its group: ask a member")
    assert running.stop() == 0
    running.start()
    running.wait_for_log("To join again, start it on an empty directory")
    assert error_of(call(running, "GET", "k")).startswith("MASTERDOWN")
    assert running.stop() == 0
    running.options.extra = ("--group", "none")
    running.start()
    assert call(running, "GET", "k") == b"v" and accepts_writes(running)
    assert accepts_writes(leader) and is_following(last)


def test_the_wrong_server_names_the_right_one(new_server):
    leader, follower = group_of(new_server, 2)
    wait_until("it to follow", lambda: is_following(follower))
    refusal = f"NOTLEADER 127.0.0.1:{leader.port} leads the group: ask it"
    for words in (("FAILOVER",), ("GROUP", "TRANSFER"), ("GROUP", "REMOVE", listed(leader, follower)["id"])):
        assert error_of(call(follower, *words)) == refusal
    locked = member(new_server, requirepass="secret").start()
    member(new_server, locked).start().wait_for_log("set masterauth here to the requirepass of the group")
    http = ("--group", NAME, "--join", f"127.0.0.1:{leader.http_port}")
    new_server(extra=http).start().wait_for_log("name the port on which that server serves Redis")
    # Two that name each other: nobody is there to add them.
    first, second = (new_server(port=free_port()) for _ in range(2))
    for one, other in ((first, second), (second, first)):
        one.options.extra = ("--group", NAME, "--join", f"127.0.0.1:{other.options.port}")
        one.start()
    for one in (first, second):
        one.wait_for_log("this server asks to be added to the group itself: ask a member")


def test_a_member_that_was_away_finds_a_leader_that_it_does_not_know(new_server):
    servers = group_of(new_server)
    first, second, away = servers
    assert away.stop() == 0
    newcomer = member(new_server, first).start()
    settle([first, second, newcomer], 4)
    assert call(first, "GROUP", "TRANSFER", listed(first, newcomer)["id"]) == b"OK"
    assert wait_leader([newcomer, second]) is newcomer
    wait_until("the old leader to follow", lambda: is_following(first))
    assert call(newcomer, "GROUP", "REMOVE", listed(newcomer, first)["id"]) == b"OK"
    first.kill()
    assert call(newcomer, "SET", "k", "v") == b"OK"
    away.start()
    wait_until("it to follow", lambda: is_following(away))
    wait_until("it to have it", lambda: call(away, "GET", "k") == b"v")


def test_a_follower_that_leaves_its_group_stands_alone(new_server):
    servers = group_of(new_server)
    leader, left = servers[0], servers[1]
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_until("it to have it", lambda: call(left, "GET", "k") == b"v")
    assert left.stop() == 0
    left.options.extra = ("--group", "none")
    left.start()
    assert has_role(left, "master") and accepts_writes(left)
    assert call(left, "SET", "own", "1") == b"OK" and call(left, "GET", "k") == b"v"
    assert call(leader, "SET", "k", "w") == b"OK"
    assert call(left, "GET", "k") == b"v" and call(leader, "GET", "own") is None
    left.kill()
    left.options.extra = ()
    left.start()
    assert accepts_writes(left) and call(left, "GET", "own") == b"1"


def test_two_groups_of_the_same_name_do_not_mix(new_server):
    servers = group_of(new_server)
    founder, rest = servers[0], servers[1:]
    founder.kill()
    shutil.rmtree(founder.directory)
    # Without --join, on an address that the others know.
    founder.start()
    wait_leader([founder])
    wait_leader(rest)
    for server in servers:
        server.wait_for_log("founds a group of its own")
    assert metric(founder, "sheaf_group_messages_refused_total") > 2
    refusals = [line for line in founder.log().splitlines() if "refused what a member" in line]
    assert len(refusals) == 1, refusals
    assert fields(founder, "GROUP", "INFO")["voters"] == 1
    assert {fields(server, "GROUP", "INFO")["id"] for server in rest} != {fields(founder, "GROUP", "INFO")["id"]}
    # A directory of the one, at the address of a member of the other.
    for server in servers:
        assert server.stop() == 0
    strayed = rest[0]
    shutil.rmtree(strayed.directory)
    shutil.copytree(founder.directory, strayed.directory)
    strayed.options.extra = ("--group", NAME)
    strayed.start()
    rest[1].start()
    strayed.wait_for_log("this server belongs to another group")
    rest[1].wait_for_log("this server belongs to another group")


def test_strangers_take_no_place_of_a_member(new_server):
    servers = group_of(new_server)
    leader, follower = servers[0], servers[1]
    wait_until("it to follow", lambda: is_following(follower))
    own, to = fields(leader, "GROUP", "INFO"), listed(leader, follower)["id"]
    # The leader knows who is no member; a follower may just not have heard of it.
    refused = call(leader, "GROUP", "PEER", 1, own["id"], "0000000000000001", own["leader"])
    assert error_of(refused).startswith("REMOVED")
    with contextlib.ExitStack() as opened:
        strangers = []
        for number in range(1, 60):
            connection = opened.enter_context(follower.connect())
            assert connection.call("GROUP", "PEER", 1, own["id"], f"{number:016x}", to) == b"OK"
            strangers.append(connection)
        for connection in strangers[:50]:
            # All but the last few were closed.
            with pytest.raises(UNREACHABLE):
                connection.read()
        for connection in strangers[50:]:
            connection.send(b"x" * 88)
            with pytest.raises(UNREACHABLE):
                connection.read()
    assert metric(follower, "sheaf_group_messages_refused_total") == 9, "no more than have a place can say anything"
    assert accepts_writes(leader) and fields(follower, "GROUP", "INFO")["term"] == own["term"]
    for server in others(servers, leader):
        assert is_following(server)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def heartbeat(sender: bytes, receiver: bytes, term: int) -> bytes:
    """The bytes of a message; `consensus/src/message.rs` has the format."""
    ids = (int(sender, 16), int(receiver, 16))
    body = struct.pack("<4sBBH9QI", b"SGRP", 5, 0, 0, *ids, term, 0, 0, 0, 0, 1, 0, 0)
    return body + struct.pack("<I", crc32c(body))


def test_messages_that_no_member_sends_are_refused_counted_and_change_nothing(new_server):
    servers = group_of(new_server)
    # There is no term before the first one.
    assert call(servers[0], "FAILOVER") == b"OK"
    leader = wait_leader(others(servers, servers[0]))
    follower, other = others(servers, leader)
    wait_until("it to follow", lambda: is_following(follower))
    own = fields(leader, "GROUP", "INFO")
    to, sender = listed(leader, follower)["id"], listed(leader, other)["id"]
    for words, reason in (
        ((2, own["id"], sender, to), "version 2 of the protocol"),
        ((1, b"00" * 16, sender, to), "belongs to another group"),
        ((1, own["id"], sender, sender), "this server is another member"),
        ((1, own["id"], to, to), "no id of another member"),
        ((1, own["id"], sender), "wrong number of arguments"),
    ):
        assert reason in error_of(call(follower, "GROUP", "PEER", *words)), words
    refused = metric(follower, "sheaf_group_messages_refused_total")
    valid = heartbeat(sender, to, own["term"] + (1 << 25))
    damaged = valid[:40] + b"\1" + valid[41:]
    for number, wrong in enumerate((valid, damaged, heartbeat(to, sender, own["term"]), b"GET / HTTP/1.1\r\n" * 6)):
        with follower.connect() as connection:
            assert connection.call("GROUP", "PEER", 1, own["id"], sender, to) == b"OK"
            connection.send(wrong)
            with pytest.raises(UNREACHABLE):
                connection.read()
        assert metric(follower, "sheaf_group_messages_refused_total") == refused + number + 1
    lines = [line for line in follower.log().splitlines() if "far ahead of term" in line]
    assert len(lines) == 1, lines
    outdated = metric(follower, "sheaf_group_messages_outdated_total")
    with follower.connect() as connection:
        assert connection.call("GROUP", "PEER", 1, own["id"], sender, to) == b"OK"
        for _ in range(3):
            connection.send(heartbeat(sender, to, own["term"] - 1))
        wait_until("them to be counted", lambda: metric(follower, "sheaf_group_messages_outdated_total") == outdated + 3)
    assert follower.log().count("ignored a message of an earlier term") == 1
    assert fields(follower, "GROUP", "INFO")["term"] == own["term"]
    assert accepts_writes(leader) and all(is_following(server) for server in others(servers, leader))


def test_a_stranger_that_names_something_new_each_time_fills_no_log(new_server):
    servers = group_of(new_server)
    leader, follower, other = servers
    wait_until("it to follow", lambda: is_following(follower))
    own = fields(leader, "GROUP", "INFO")
    to, sender = listed(leader, follower)["id"], listed(leader, other)["id"]
    before = metric(follower, "sheaf_group_messages_refused_total")
    count = 30
    for number in range(count):
        stranger = f"{number + 1:016x}"
        for words in (
            (number + 2, own["id"], sender, to),
            (1, f"{number:032x}", sender, to),
            (1, own["id"], sender, stranger),
            (1, own["id"], f"no id {number}", to),
            ("x" * (number << 14), own["id"], sender, to),
            ("1\r\n2026-11-27 ERROR a line of its own", own["id"], sender, to),
        ):
            assert error_of(call(follower, "GROUP", "PEER", *words)).startswith("ERR "), words
        for message in (heartbeat(sender, to, own["term"] + (1 << 25) + number), b"x" * 88):
            with follower.connect() as connection:
                assert connection.call("GROUP", "PEER", 1, own["id"], sender, to) == b"OK"
                connection.send(message)
                with pytest.raises(UNREACHABLE):
                    connection.read()
    assert metric(follower, "sheaf_group_messages_refused_total") == before + 8 * count
    lines = [line for line in follower.log().splitlines() if "refused what a member" in line]
    # One for each cause, and as many if a minute has passed.
    assert 6 <= len(lines) <= 12 and max(map(len, lines)) < 1000, lines
    assert fields(follower, "GROUP", "INFO")["term"] == own["term"] and accepts_writes(leader)


def test_many_that_ask_to_join_are_put_off_and_keep_nobody_else_out(new_server):
    leader = member(new_server).start()
    wait_leader([leader])
    # Nobody answers there: the leader waits.
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent, contextlib.ExitStack() as opened:
        asking = [opened.enter_context(leader.connect()) for _ in range(60)]
        port = silent.getsockname()[1]
        for number, connection in enumerate(asking, 1):
            connection.send(resp.encode("GROUP", "JOIN", 1, NAME, f"{number:016x}", "127.0.0.1", port, 1))
        answers = [error_of(connection.read()) for connection in asking]
    put_off = [answer for answer in answers if answer.startswith("TRYAGAIN")]
    assert len(put_off) >= len(asking) - 2 * 16, "sixteen are served, and perhaps as many after them"
    assert all("does not find the member" in answer for answer in answers if answer not in put_off), answers
    member(new_server, leader).start()
    wait_voters([leader], 2)


def test_a_group_without_a_leader_has_an_exit_status(new_server):
    servers = group_of(new_server)
    address = f"127.0.0.1:{servers[1].port}"
    shown = run_sheaf("group", address)
    assert shown.returncode == 0 and "leader 127.0.0.1:" in shown.stdout, shown.stderr
    servers[0].kill()
    servers[2].kill()
    wait_until("it to know no leader", lambda: fields(servers[1], "GROUP", "INFO")["leader"] is None)
    shown = run_sheaf("group", address)
    assert shown.returncode == 3 and "no known leader" in shown.stdout, shown.stderr
    servers[1].kill()
    assert run_sheaf("group", address).returncode == 1


def learner_of(new_server) -> tuple[Server, Server]:
    """A dead founder, and a learner that followed it."""

    def knows_leader(one: Server) -> bool:
        with contextlib.suppress(*UNREACHABLE):
            return fields(one, "GROUP", "INFO")["leader"] is not None
        return False

    for _ in range(10):
        first = member(new_server).start()
        wait_leader([first])
        learner = member(new_server, first)
        learner.spawn()
        wait_until("it to know its leader", lambda one=learner: knows_leader(one))
        first.kill()
        # It becomes a voter soon after it has heard of its leader.
        if listed(learner, learner)["kind"] == b"learner":
            return first, learner
        learner.kill()
    raise AssertionError("every learner became a voter at once")


def test_a_learner_knows_no_leader_that_is_dead(new_server):
    _, learner = learner_of(new_server)
    before = metric(learner, "sheaf_group_leaderless_seconds_total")
    wait_until("it to know no leader", lambda: fields(learner, "GROUP", "INFO")["leader"] is None)
    assert all(row["role"] != b"leader" for row in members(learner)), members(learner)
    assert call(learner, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) is None
    assert call(learner, "SENTINEL", "MASTERS") == []
    wait_until("it to say so everywhere", lambda: up_of(learner) == (503, "no_majority"))
    assert b"group_leader_known:0" in call(learner, "INFO", "replication")
    assert metric(learner, "sheaf_group_leader_known") == 0
    assert error_of(call(learner, "GROUP", "TRANSFER")) == "NOTLEADER no leader is known, try again"
    shown = run_sheaf("group", f"127.0.0.1:{learner.port}")
    assert shown.returncode == 3 and "no known leader" in shown.stdout, shown.stdout
    wait_until("time without a leader", lambda: metric(learner, "sheaf_group_leaderless_seconds_total") > before)


def test_a_quorum_counts_voters_that_answer(new_server):
    servers = group_of(new_server)
    leader, follower, other = servers

    def usable(one: Server) -> str:
        answer = call(one, "SENTINEL", "CKQUORUM", NAME)
        return error_of(answer) or answer.decode()

    def epoch_of_other() -> object:
        return listed(leader, other)["epoch"]

    for server in servers:
        wait_until("all to answer", lambda one=server: usable(one).startswith("OK 3 usable"))
    wait_until("its epoch", lambda: epoch_of_other() is not None)
    with other.frozen():
        wait_until("one to be missed", lambda: usable(leader).startswith("OK 2 usable"))
        assert epoch_of_other() is None, "what it said last is of long ago"
    wait_until("it to answer again", lambda: usable(leader).startswith("OK 3 usable"))
    other.kill()
    for server in (leader, follower):
        wait_until("one to be missed", lambda one=server: usable(one).startswith("OK 2 usable"))
    leader.kill()
    wait_until("no majority", lambda: usable(follower).startswith("NOQUORUM 1 usable"))


def test_the_lead_goes_to_no_member_that_is_gone(new_server):
    servers = group_of(new_server)
    leader, gone, other = servers
    gone_id = listed(leader, gone)["id"]
    gone.kill()
    wait_missed(leader, gone_id)
    assert accepts_writes(leader)
    assert call(leader, "FAILOVER") == b"OK"
    assert wait_leader([leader, other]) is other


def test_a_removal_that_leaves_no_majority_needs_force(new_server):
    servers = group_of(new_server)
    leader, live, dead = servers
    live_id, dead_id = (listed(leader, one)["id"] for one in (live, dead))
    dead.kill()
    wait_missed(leader, dead_id)
    assert "only 1 of 2 voters answer" in error_of(call(leader, "GROUP", "REMOVE", live_id))
    assert accepts_writes(leader)
    assert call(leader, "GROUP", "REMOVE", dead_id) == b"OK", "the other way round it is no risk"
    wait_voters([leader, live], 2)
    assert call(leader, "GROUP", "REMOVE", live_id, "FORCE") == b"OK"
    wait_voters([leader], 1)
    assert accepts_writes(leader)


def test_a_change_of_members_that_was_acknowledged_outlives_the_leader(new_server):
    for _ in range(3):
        leader, removed = group_of(new_server, 2)
        assert call(leader, "GROUP", "REMOVE", listed(leader, removed)["id"]) == b"OK"
        leader.kill()
        removed.kill()
        leader.start()
        assert wait_leader([leader]) is leader
        leader.kill()


def test_the_data_of_a_group_that_has_lost_its_majority_go_on_in_a_new_group(new_server):
    """`docs/groups.md` has these steps, for an operator who has lost two disks of three."""
    servers = group_of(new_server)
    leader, survivor, other = servers
    for number in range(20):
        assert call(leader, "SET", f"k{number}", number) == b"OK"
    wait_until("it to have all", lambda: call(survivor, "GET", "k19") == b"19")
    for lost in (leader, other):
        lost.kill()
        shutil.rmtree(lost.directory)
    wait_until("it to refuse writes", lambda: error_of(call(survivor, "SET", "k", "v")).startswith("CLUSTERDOWN"))
    assert survivor.stop() == 0
    checked = run_sheaf("check", str(survivor.directory))
    assert checked.returncode == 0 and "log        intact" in checked.stdout, checked.stdout + checked.stderr
    survivor.options.extra = ("--group", "none")
    survivor.start()
    assert call(survivor, "GET", "k19") == b"19" and accepts_writes(survivor)
    assert survivor.stop() == 0
    survivor.options.extra = ("--group", NAME)
    survivor.start()
    wait_leader([survivor])
    for lost in (leader, other):
        lost.options.extra = ("--group", NAME, "--join", f"127.0.0.1:{survivor.port}")
        lost.start()
    settle([survivor, leader, other], 3)
    for server in (leader, other):
        wait_until("it to have all", lambda one=server: call(one, "GET", "k19") == b"19")
    survivor.kill()
    assert call(wait_leader([leader, other]), "GET", "k0") == b"0"
