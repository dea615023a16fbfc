"""Groups of servers that fail over by votes, real processes: no acknowledged write is lost, no read is old."""

import contextlib
import shutil
import threading
from pathlib import Path

import pytest
import redis
from redis.sentinel import Sentinel

from harness import procfs, resp
from harness.couch import Couch
from harness.group_writers import wait_more, writing
from harness.groups import (
    NAME,
    accepts_writes,
    fields,
    group_of,
    member,
    members,
    others,
    wait_leader,
    wait_voters,
)
from harness.replicas import call, error_of, has_role, info, is_following
from harness.resp import UNREACHABLE
from harness.server import ANY_PORTS, Server, free_port, run_sheaf
from harness.volume import MIB, Volume
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

RESTARTING = "restarting within the process"
STEPPED_DOWN = "it follows from now on"


@pytest.mark.oracle
def test_no_acknowledged_write_is_lost_when_leaders_are_killed(new_server, request):
    servers = group_of(new_server)
    with writing(servers) as writers:
        for _ in range(request.config.getoption("group_rounds")):
            wait_more(writers)
            leader = wait_leader(servers)
            leader.kill()
            wait_leader(others(servers, leader))
            wait_more(writers)
            leader.start()
            wait_until("it to follow", lambda killed=leader: is_following(killed))
    lists = {call(server, "LLEN", "list:0") for server in servers}
    for server in servers:
        wait_until("all to have the same", lambda one=server: call(one, "LLEN", "list:0") == max(lists))
    for server in servers:
        assert server.stop() == 0
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_lead_is_handed_over_under_load_without_loss(new_server, request):
    servers = group_of(new_server)
    with writing(servers) as writers:
        for _ in range(request.config.getoption("group_rounds")):
            wait_more(writers)
            leader = wait_leader(servers)
            term = fields(leader, "GROUP", "INFO")["term"]
            assert call(leader, "FAILOVER") == b"OK"

            def is_over(before: int = term) -> bool:
                infos = [fields(server, "GROUP", "INFO") for server in servers]
                return all(info["term"] > before and info["leader"] for info in infos)

            wait_until("the next term", is_over)


def test_a_paused_leader_answers_nothing_old(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    assert call(leader, "SET", "k", "old") == b"OK"
    with leader.connect() as connection:
        assert connection.call("GET", "k") == b"old"
        with leader.frozen():
            new = wait_leader(others(servers, leader))
            assert call(new, "SET", "k", "new") == b"OK"
            connection.send(resp.encode("GET", "k") * 100)
        answers = []
        with contextlib.suppress(*UNREACHABLE):
            answers.extend(connection.read() for _ in range(100))
        assert b"old" not in answers, answers[:3]
    wait_until("it to follow", lambda: is_following(leader))
    # A follower may be a moment behind.
    wait_until("it to have the new value", lambda: call(leader, "GET", "k") == b"new")
    assert error_of(call(leader, "SET", "k", "x")).startswith("READONLY")


def test_without_a_majority_writes_are_refused_and_reads_may_go_on(new_server):
    servers = group_of(new_server, extra=("--stale-reads", "yes"))
    leader = servers[0]
    assert call(leader, "SET", "k", "v") == b"OK"
    follower, last = others(servers, leader)
    wait_until("it to have it", lambda: call(follower, "GET", "k") == b"v")
    # In this order: with the last one alive, the follower might become the leader in between.
    last.kill()
    leader.kill()
    wait_until(
        "it to know no leader", lambda: error_of(call(follower, "SET", "k", "x")).startswith("CLUSTERDOWN")
    )
    assert call(follower, "GET", "k") == b"v"
    assert fields(follower, "GROUP", "INFO")["leader"] is None
    paths = ("/_all_dbs", "/_dbs_info", "/_db_updates?timeout=1")
    with Couch(follower.http_port) as couch:
        assert [couch.send("GET", path).status for path in paths] == [200, 200, 200]
        assert call(follower, "CONFIG", "SET", "stale-reads", "no") == b"OK"
        assert error_of(call(follower, "GET", "k")).startswith("CLUSTERDOWN")
        assert [couch.send("GET", path).status for path in paths] == [503, 503, 503]
    last.start()
    new = wait_leader([follower, last])
    assert call(new, "GET", "k") == b"v"


def test_a_follower_without_a_leader_shows_no_link_to_one(new_server):
    leader, follower, third = group_of(new_server)
    third.kill()
    with leader.frozen():
        # Its connection to the former leader may last: that one is only paused.
        wait_until("the leader to be missed", lambda: info(follower)["group_leader_known"] == "0")
        assert info(follower)["master_link_status"] == "down"
        assert call(follower, "ROLE")[3] == b"connect"
    wait_until("it to follow again", lambda: info(follower)["master_link_status"] == "up")


def test_a_leader_without_a_majority_acknowledges_nothing(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    acknowledged = [0]
    assert call(leader, "SET", "k", 0) == b"OK"

    def count_up() -> None:
        with contextlib.suppress(*UNREACHABLE), leader.connect() as connection:
            while connection.call("SET", "k", acknowledged[-1] + 1) == b"OK":
                acknowledged.append(acknowledged[-1] + 1)

    # Some write is on its way whenever the majority is lost.
    writer = threading.Thread(target=count_up)
    writer.start()
    for server in others(servers, leader):
        server.kill()
    before = len(acknowledged)
    writer.join(PATIENCE_S)
    # The majority may have had one whose answer was on its way.
    assert len(acknowledged) <= before + 1
    # Writes that it has and no majority had must leave its memory.
    wait_until("it to restart", lambda: RESTARTING in leader.log())
    for server in others(servers, leader):
        server.start()
    new = wait_leader(servers)
    assert int(call(new, "GET", "k")) in (acknowledged[-1], acknowledged[-1] + 1)
    for server in others(servers, new):
        wait_until("all to have the same", lambda one=server: call(one, "GET", "k") == call(new, "GET", "k"))
    assert STEPPED_DOWN not in leader.log()


def uptime_s(server: Server) -> int:
    return int(call(server, "INFO", "server").split(b"uptime_in_seconds:")[1].split()[0])


def test_documents_that_no_majority_has_are_not_saved_in_files(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    with Couch(leader.http_port) as couch:
        assert couch.send("PUT", "/notes").status == 201
        assert couch.send("PUT", "/notes/all", {}).status == 201
        # On the disk of the leader alone: it still leads, for the others were stopped a moment ago.
        with contextlib.ExitStack() as stopped:
            for server in others(servers, leader):
                stopped.enter_context(server.frozen())
            with contextlib.suppress(*UNREACHABLE):
                assert couch.send("PUT", "/notes/one", {}).status != 201
            leader.kill()
            for server in others(servers, leader):
                server.kill()
    leader.start()
    # After ten seconds changes of documents are due to be saved.
    wait_until("a save to be due", lambda: uptime_s(leader) > 12)
    with leader.frozen():
        for server in others(servers, leader):
            server.start()
        new = wait_leader(others(servers, leader))
        with Couch(new.http_port) as couch:
            assert couch.send("PUT", "/notes/two", {}).status == 201
    wait_until("it to follow", lambda: is_following(leader))
    # The tail of its log is cut, and its files go on with the rest.
    assert "its tail is cut" in leader.log() and "copying everything" not in leader.log()
    with Couch(leader.http_port) as couch:
        wait_until("the new document", lambda: couch.send("GET", "/notes/two").status == 200)
        assert [couch.send("GET", f"/notes/{name}").status for name in ("all", "one")] == [200, 404]


def test_a_leader_whose_log_is_committed_goes_on_with_its_memory(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    # After all else is committed, whoever joins as a voter included.
    starts = [server.log().count(RESTARTING) for server in servers]
    with Couch(leader.http_port) as couch:
        assert couch.send("PUT", "/notes").status == 201
    for number in range(6):
        with leader.connect() as connection, Couch(leader.http_port) as couch:
            assert connection.call("SET", "k", number) == b"OK"
            assert couch.send("PUT", f"/notes/{number}", {"n": number}).status == 201
            target = next(one["id"] for one in members(leader) if _is_at(one, servers[1 - number % 2]))
            assert call(leader, "GROUP", "TRANSFER", target) == b"OK"
            assert connection.read_to_end() == b"", "its connections are closed once"
        new = wait_leader(others(servers, leader))
        assert call(new, "SET", "l", number) == b"OK"
        wait_until("it to follow", lambda old=leader: is_following(old))
        wait_until("it to show it", lambda old=leader, want=str(number).encode(): call(old, "GET", "l") == want)
        assert call(leader, "GET", "k") == str(number).encode()
        assert error_of(call(leader, "SET", "k", "x")).startswith("READONLY")
        with Couch(leader.http_port) as couch:
            assert couch.send("GET", f"/notes/{number}").json["n"] == number
        leader = new
    assert [server.log().count(RESTARTING) for server in servers] == starts
    assert [server.log().count(STEPPED_DOWN) for server in servers] == [3, 3, 0]
    for server in servers:
        assert server.stop() == 0
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr


def _is_at(listed: dict[str, object], server: Server) -> bool:
    return str(server.port) in str(listed["address"])


def test_the_leader_may_be_killed_once_three_voters_are_shown(new_server, request):
    """A voter is shown when a majority knows of it: before that, the two that are left might find no majority."""
    for _ in range(request.config.getoption("group_rounds")):
        first = member(new_server).start()
        wait_leader([first])
        joiners = [member(new_server, first).start() for _ in range(2)]
        with first.connect() as connection:

            def sees_three(asking=connection) -> bool:
                answer = asking.call("GROUP", "INFO")
                return dict(zip(answer[::2], answer[1::2], strict=True))[b"voters"] == 3

            while not sees_three():
                pass
        first.kill()
        wait_leader(joiners)
        for server in joiners:
            server.kill()


def test_settings_libraries_and_messages_go_with_the_group(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    library = "#!lua name=lib\nredis.register_function('f', function(keys, args) return args[1] end)"
    assert call(leader, "FUNCTION", "LOAD", library) == b"lib"
    assert call(leader, "CONFIG", "SET", "durable-channels", "log:*") == b"OK"
    for number in range(3):
        call(leader, "PUBLISH", "log:a", number)
    assert call(leader, "XADD", "stream", "1-1", "f", "v") == b"1-1"
    assert call(leader, "SET", "expires", "v", "PX", 3_600_000) == b"OK"
    leader.kill()
    new = wait_leader(others(servers, leader))
    assert call(new, "FCALL", "f", 0, "it") == b"it"
    assert call(new, "CONFIG", "GET", "durable-channels") == [b"durable-channels", b"log:*"]
    assert call(new, "XRANGE", "stream", "-", "+") == [[b"1-1", [b"f", b"v"]]]
    assert 0 < call(new, "PTTL", "expires") <= 3_600_000
    assert call(new, "PUBLISH", "log:a", 3) == 0
    with new.connect() as reader:
        assert reader.call("XSUBSCRIBE", "log:a", "FROM", "-")[3] == 1
        found = [reader.read() for _ in range(4)]
    assert [message[-1] for message in found] == [b"0", b"1", b"2", b"3"], found
    (follower,) = others(others(servers, leader), new)
    wait_until("the follower to have it", lambda: call(follower, "FCALL_RO", "f", 0, "it") != b"")
    setting = [b"durable-channels", b"log:*"]
    wait_until("it to be in force", lambda: call(follower, "CONFIG", "GET", "durable-channels") == setting)


def test_documents_and_transactions_go_with_the_group(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    with Couch(leader.http_port) as couch:
        assert couch.send("PUT", "/notes").status == 201
        assert couch.send("PUT", "/notes/a", {"text": "hello"}).status == 201
    with leader.connect() as connection:
        for words in (("MULTI",), ("DOC.PUT", "notes", "b", '{"n": 1}'), ("SET", "with", "it")):
            connection.call(*words)
        assert connection.call("EXEC")[1] == b"OK"
    leader.kill()
    new = wait_leader(others(servers, leader))
    with Couch(new.http_port) as couch:
        assert couch.send("GET", "/notes/a").json["text"] == "hello"
        assert couch.send("GET", "/notes/b").json["n"] == 1
        assert couch.send("PUT", "/notes/c", {}).status == 201
    assert call(new, "GET", "with") == b"it"
    (follower,) = others(others(servers, leader), new)
    with Couch(follower.http_port) as couch:
        assert couch.send("PUT", "/notes/d", {}).status == 503


def test_redis_py_follows_the_leader_through_sentinel(new_server):
    servers = group_of(new_server)
    sentinel = Sentinel([("127.0.0.1", server.port) for server in servers], socket_timeout=5)
    master = sentinel.master_for(NAME, socket_timeout=5)
    assert master.set("k", "before")
    assert sentinel.discover_master(NAME)[1] == servers[0].port
    wait_until("it to see two replicas", lambda: len(sentinel.discover_slaves(NAME)) == 2)
    servers[0].kill()

    def is_written() -> bool:
        try:
            return bool(master.set("k", "after"))
        except redis.RedisError:
            return False

    wait_until("the client to find the new leader", is_written)
    assert master.get("k") == b"after"
    assert sentinel.discover_master(NAME)[1] != servers[0].port


def test_a_member_is_replaced(new_server):
    servers = group_of(new_server)
    leader, lost = servers[0], servers[1]
    old_id = fields(lost, "GROUP", "INFO")
    assert old_id["members"] == 3
    lost.kill()
    shutil.rmtree(lost.directory)
    old = next(one for one in members(leader) if one["address"] == f"127.0.0.1:{lost.port}".encode())
    lost.options.extra = ("--group", NAME, "--join", f"127.0.0.1:{leader.port}")
    lost.start()
    lost.wait_for_log(f"GROUP REMOVE {old['id'].decode()}")
    assert fields(leader, "GROUP", "INFO")["members"] == 3, "there is no fourth voter"
    assert call(leader, "GROUP", "REMOVE", old["id"]) == b"OK"
    wait_voters([leader], 3)
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_until("it to have it", lambda: call(lost, "GET", "k") == b"v")
    assert error_of(call(leader, "GROUP", "REMOVE", old["id"])).startswith("ERR no member")
    own = fields(leader, "GROUP", "INFO")["leader"]
    assert "TRANSFER first" in error_of(call(leader, "GROUP", "REMOVE", own))


def test_a_standalone_server_founds_a_group_with_its_data_and_can_leave_it(new_server):
    server = new_server(port=free_port()).start()
    assert call(server, "SET", "k", "v") == b"OK"
    assert error_of(call(server, "GROUP", "INFO")).startswith("ERR this server belongs to no group")
    assert server.stop() == 0
    server.options.extra = ("--group", NAME)
    server.start()
    wait_leader([server])
    assert call(server, "GET", "k") == b"v"
    assert error_of(call(server, "REPLICAOF", "127.0.0.1", 1)).startswith("ERR this server belongs to a group")
    assert call(server, "REPLICAOF", "NO", "ONE") == b"OK", "it leads"
    server.kill()
    server.options.extra = ()
    server.start()
    wait_leader([server])
    assert fields(server, "GROUP", "INFO")["voters"] == 1, "a forgotten flag changes nothing"
    assert server.stop() == 0
    server.options.extra = ("--group", "none")
    server.start()
    assert accepts_writes(server) and call(server, "GET", "k") == b"v"


def test_a_member_that_has_lost_group_json_does_not_start(new_server):
    servers = group_of(new_server, 2)
    leader, follower = servers
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_until("it to have it", lambda: call(follower, "GET", "k") == b"v")
    for server in servers:
        server.kill()
        (server.directory / "group.json").unlink()
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode != 0 and "group.json is missing" in checked.stderr, checked.stderr
        for extra in ((), ("--group", NAME)):
            server.options.extra = extra
            before = len(server.log())
            server.spawn()
            assert server.wait_exit() != 0
            said = server.log()[before:]
            assert "group.json is missing" in said and "--join" in said and "--group none" in said, said
            assert not (server.directory / "group.json").exists()
        for extra in (("--group", "none"), ()):
            server.options.extra = extra
            server.start()
            assert accepts_writes(server) and call(server, "GET", "k") == b"v"
            assert server.stop() == 0


def test_invalid_members_are_refused(new_server, tmp_path):
    first = member(new_server).start()
    wait_leader([first])
    other = new_server(port=free_port(), extra=("--group", "other", "--join", f"127.0.0.1:{first.port}"))
    other.start()
    other.wait_for_log("belongs to the group 'shop', not to 'other'")
    for arguments, reason in [
        (("--group", "a b"), "not a name of a group"),
        (("--join", "127.0.0.1:1"), "--join needs the name of the group"),
        (("--group", "x", "--join", "nowhere"), "join is not HOST:PORT"),
        (("--group", "x", "--replica-of", "127.0.0.1:1"), "exclude each other"),
    ]:
        ports = (*ANY_PORTS, "--dir", str(tmp_path / "refused"))
        refused = run_sheaf("serve", *ports, *arguments)
        assert refused.returncode != 0 and reason in refused.stderr, refused.stderr
        shutil.rmtree(tmp_path / "refused", ignore_errors=True)
    with first.connect() as connection:
        for words, reason in [
            (("GROUP", "JOIN", 2, NAME, "00000000000000aa", "h", 1, 2), "version 2"),
            (("GROUP", "JOIN", 1, NAME, "0000000000000000", "h", 1, 2), "no id of a member"),
            (("GROUP", "JOIN", 1, NAME, fields(first, "GROUP", "INFO")["leader"], "h", 1, 2), "copy of this server's directory"),
            (("GROUP", "JOIN", 1, "other", "00000000000000aa", "h", 1, 2), "not to 'other': join it with --group shop"),
            (("GROUP", "REMOVE", "00000000000000aa"), "no member has this id"),
            (("GROUP", "TRANSFER"), "no other voter"),
        ]:
            assert reason in error_of(connection.call(*words)), words
    own = fields(first, "GROUP", "INFO")
    for version, group, sender, receiver, reason in [
        (9, own["id"], "00000000000000aa", own["leader"], "version 9"),
        (1, "00" * 16, "00000000000000aa", own["leader"], "another group"),
        (1, own["id"], "00000000000000aa", "00000000000000bb", "another member"),
        (1, own["id"], own["leader"], own["leader"], "no id of another member"),
    ]:
        assert reason in error_of(call(first, "GROUP", "PEER", version, group, sender, receiver))
    # The leader knows that it is no member; test_group_members.py speaks to a follower, which may not know.
    assert error_of(call(first, "GROUP", "PEER", 1, own["id"], "00000000000000aa", own["leader"])).startswith("REMOVED")
    assert accepts_writes(first) and has_role(first, "master")


def test_a_vote_is_saved_only_when_it_changes(new_server):
    servers = group_of(new_server)
    leader = wait_leader(servers)
    for server in servers:
        wait_until("it to follow", lambda one=server: one is leader or is_following(one))
    # a saved file replaces the one before
    before = [(server.directory / "group.json").stat().st_ino for server in servers]
    with leader.connect() as connection:
        for number in range(50):
            assert connection.call("SET", "k", number) == b"OK"
    assert [(server.directory / "group.json").stat().st_ino for server in servers] == before


@contextlib.contextmanager
def endless_reads(servers: list[Server]):
    """An endless script that only reads the key `held`, on each of these servers."""
    script = "redis.call('GET', KEYS[1]) while true do end"
    with contextlib.ExitStack() as stack:
        for server in servers:
            client = stack.enter_context(server.connect())
            client.send(resp.encode("EVAL_RO", script, 1, "held"))
            wait_until("the script to hold its key", lambda one=server: is_held(one))
        yield


def is_held(server: Server) -> bool:
    """Whether a script holds the key `held`."""
    with resp.Connection(server.port, timeout_s=0.2) as client:
        try:
            client.call("GET", "held")
        except TimeoutError:
            return True
    return False


def test_a_leader_hands_over_only_once_the_other_member_has_applied_its_log(new_server):
    servers = group_of(new_server)
    leader, followers = servers[0], others(servers, servers[0])
    assert call(leader, "SET", "held", "1") == b"OK"
    with endless_reads(followers):
        assert call(leader, "SET", "held", "2") == b"OK"
        assert call(leader, "FAILOVER") == b"OK"
        wait_until("another leader", lambda: any(info(one)["role"] == "master" for one in followers))
    new = wait_leader(followers)
    assert call(new, "GET", "held") == b"2"
    assert "the lead was not handed over" not in leader.log()


def test_a_promotion_ends_scripts_that_it_waits_for(new_server):
    servers = group_of(new_server)
    leader, followers = servers[0], others(servers, servers[0])
    assert call(leader, "SET", "held", "1") == b"OK"
    with endless_reads(followers):
        assert call(leader, "SET", "held", "2") == b"OK"
        leader.kill()
        new = wait_leader(followers)
    assert call(new, "GET", "held") == b"2"
    assert "scripts were ended: they kept this replica from applying the log for 500 ms" in new.log()


def test_a_group_is_founded_while_others_ask_to_join(new_server):
    founder = member(new_server).start()
    with founder.frozen():
        # Their requests wait in its sockets, and arrive while it founds the group.
        joining = [member(new_server, founder) for _ in range(4)]
        for server in joining:
            server.spawn()
        for server in joining:
            wait_until("its request", lambda one=server: procfs.has_connection_to(one.pid, founder.port))
    wait_voters([founder, *joining], 5)


@contextlib.contextmanager
def small_volume(place: Path, size_bytes: int):
    """A volume with a directory `data`, and a link to that: a server's own messages stay outside of the volume."""
    place.mkdir()
    with contextlib.closing(Volume(place, size_bytes)) as volume:
        (volume.root / "data").mkdir()
        (place / "data").symlink_to(volume.root / "data")
        yield volume, place / "data"


def fill_leaving(volume: Volume, left_bytes: int) -> None:
    """Leaves about so much room; none at all: not one block."""
    volume.fill_leaving(left_bytes or MIB)
    if left_bytes == 0:
        volume.fill()


def test_a_new_leader_commits_with_a_member_that_must_copy_everything_first(new_server):
    small = ("--replica-retention-bytes", "1mb", "--replica-retention-seconds", "1")
    servers = group_of(new_server, log_segment_bytes="1mb", extra=small)
    leader = servers[0]
    away, other = others(servers, leader)
    away.kill()

    def has_cut_its_log(server: Server) -> bool:
        # A snapshot is taken only if something was written since the last one.
        assert call(leader, "SET", "changed", "x") == b"OK"
        assert call(server, "SAVE") == b"OK"
        return len(list(server.directory.glob("log-*.seg"))) < 5

    for number in range(70):
        assert call(leader, "SET", f"k{number}", "x" * 100_000) == b"OK"
    wait_until("the log that the member lacks to be gone", lambda: all(map(has_cut_its_log, (leader, other))))
    assert call(leader, "SET", "k", "v") == b"OK"
    leader.kill()
    away.start()
    # The new leader has committed nothing yet: for a majority it needs the member that has no log of use.
    new = wait_leader([away, other])
    assert new is other and call(new, "GET", "k") == b"v"
    assert "copying everything from the leader" in away.log()
    wait_until("the copy to be shown", lambda: call(away, "GET", "k") == b"v")


@pytest.mark.parametrize("left_bytes", [3 * MIB, 0])
def test_a_follower_with_a_full_disk_lives_on_and_follows_again(new_server, tmp_path, left_bytes):
    first = member(new_server, log_segment_bytes="1mb").start()
    wait_leader([first])
    with small_volume(tmp_path / "small", 100 * MIB) as (volume, directory):
        full = member(new_server, first, directory=directory).start()
        third = member(new_server, first).start()
        wait_voters([first, full, third], 3)
        wait_until("it to follow", lambda: is_following(full))
        pid, starts = full.pid, full.log().count(RESTARTING)
        fill_leaving(volume, left_bytes)
        with first.connect() as connection, full.connect() as reader:
            for number in range(200):
                # Nobody waits for the reply: the follower has batches that it does not yet know to be committed.
                for key in (f"k{number}", "k"):
                    connection.send(resp.encode("SET", key, "x" * 100_000))
                # What the follower has applied, and its disk does not take, is refused in the end.
                reader.send(resp.encode("GET", f"k{number}"))
            full.wait_for_log("the disk has no room for the log")
            for _ in range(200):
                reader.read()
                assert connection.read() == connection.read() == b"OK"
        wait_until("it to say that it does not follow", lambda: info(full)["master_link_status"] == "down")
        assert call(first, "SET", "k", "newer") == b"OK"
        wait_until("it to show no old data", lambda: error_of(call(full, "GET", "k")).startswith("MASTERDOWN"))
        assert error_of(call(full, "SET", "k", "v")).startswith("READONLY"), "its role comes before its disk"
        with Couch(full.http_port) as couch:
            assert couch.send("GET", "/notes/d").status == 503
            answer = couch.send("PUT", "/notes/d", {})
            assert (answer.status, answer.headers["retry-after"]) == (503, "1"), answer
        if left_bytes:
            assert call(full, "CONFIG", "SET", "stale-reads", "yes") == b"OK"
            # Also the last change that it has applied: it hears of the commit without a connection for the log.
            shown = [call(full, "GET", f"k{number}") for number in range(200)]
            assert len(shown[0]) == 100_000 and shown[-1] is None
            assert len(call(full, "GET", "k")) == 100_000
            assert call(full, "CONFIG", "SET", "stale-reads", "no") == b"OK"
        assert full.is_running()
        volume.release()
        assert call(full, "WAITLSN", int(info(first)["master_repl_offset"]), 60_000) == 1
        wait_until("it to follow again", lambda: is_following(full))
        wait_until("it to show the newest data", lambda: call(full, "GET", "k") == b"newer")
        assert full.pid == pid and full.is_running()
        assert full.log().count(RESTARTING) == starts, "it never lost what it had"


def refuses(server: Server, *words) -> bool:
    """Whether it answers with an error, or closes the connection."""
    with contextlib.suppress(resp.Closed, ConnectionResetError):
        return error_of(call(server, *words)) != ""
    return True


@pytest.mark.parametrize("left_bytes", [8 * MIB, 0])
def test_a_leader_with_a_full_disk_hands_over_to_a_member_with_room(new_server, tmp_path, left_bytes):
    with small_volume(tmp_path / "small", 200 * MIB) as (volume, directory):
        full = member(new_server, directory=directory).start()
        wait_leader([full])
        with_room = [member(new_server, full).start() for _ in range(2)]
        wait_voters([full, *with_room], 3)
        assert call(full, "SET", "k", "v") == b"OK"
        fill_leaving(volume, left_bytes)
        with full.connect() as connection, contextlib.suppress(*UNREACHABLE):
            # until the next segment of the log has no room, or another one leads
            while not isinstance(connection.call("SET", "big", "x" * 1_000_000), resp.ErrorReply):
                pass
        new = wait_leader(with_room)
        assert call(new, "GET", "k") == b"v"
        assert call(new, "SET", "k", "w") == b"OK"
        # What a follower has to write fits into its reserve.
        full.wait_for_log(STEPPED_DOWN)
        wait_until("writes to be refused", lambda: refuses(full, "SET", "k", "x"))
        assert full.is_running() and RESTARTING not in full.log()
        volume.release()
        wait_until("it to follow", lambda: is_following(full), 60)
        wait_until("it to have it", lambda: call(full, "GET", "k") == b"w")


def test_a_group_whose_disks_are_all_full_has_a_leader_and_shows_its_data(new_server, tmp_path):
    with contextlib.ExitStack() as stack:
        volumes = [stack.enter_context(small_volume(tmp_path / name, 100 * MIB)) for name in ("one", "two", "three")]
        servers = []
        for _, directory in volumes:
            join = servers[0] if servers else None
            servers.append(member(new_server, join, directory=directory, log_segment_bytes="1mb").start())
            wait_leader(servers)
        wait_voters(servers, 3)
        for server in servers:
            wait_until("it to have its reserve", lambda one=server: (one.directory / "reserve").exists())
        assert call(servers[0], "SET", "k", "v") == b"OK"

        def shows(one: Server) -> bool:
            with contextlib.suppress(*UNREACHABLE):
                return has_role(one, "master") and call(one, "GET", "k") == b"v"
            return False

        def wait_shown(candidates: list[Server]) -> Server:
            return wait_until("data to be shown", lambda: next((one for one in candidates if shows(one)), None))

        for volume, _ in volumes:
            fill_leaving(volume, 0)
        for _ in range(3):
            # Each election writes a vote on every disk, and what a deposed leader has to write.
            lost = wait_shown(servers)
            with lost.frozen():
                wait_shown(others(servers, lost))
            wait_until("it to be deposed", lambda one=lost: not shows(one))
            wait_shown(servers)
        assert all(server.is_running() for server in servers)
        for volume, _ in volumes:
            # None of that costs the leader.
            volume.release()
            wait_shown(servers)
        new = wait_leader(servers)
        assert call(new, "GET", "k") == b"v"


def error_or_closed(server: Server, *words) -> str:
    """The error of a command; none if the connection was closed."""
    try:
        return error_of(call(server, *words))
    except UNREACHABLE:
        return ""


def test_a_new_leader_that_commits_nothing_refuses_clients(new_server, tmp_path):
    first = member(new_server, log_segment_bytes="1mb").start()
    wait_leader([first])
    with small_volume(tmp_path / "small", 100 * MIB) as (volume, directory):
        full = member(new_server, first, directory=directory, log_segment_bytes="1mb").start()
        third = member(new_server, first, log_segment_bytes="1mb").start()
        wait_voters([first, full, third], 3)
        assert call(first, "CONFIG", "SET", "ack-timeout", "1") == b"OK"
        fill_leaving(volume, 3 * MIB)
        with first.connect() as connection:
            while "the disk has no room for the log" not in full.log():
                assert connection.call("SET", "k", "x" * 100_000) == b"OK"
            assert connection.call("SET", "k", "v") == b"OK"
        end = int(info(first)["master_repl_offset"])
        wait_until("the third to have it", lambda: int(info(third)["slave_repl_offset"]) >= end)
        first.kill()
        third.wait_for_log("this server leads the group")
        # The other voter hears it, and takes nothing: it commits nothing in its term, and has no lease.
        refused = "CLUSTERDOWN The group commits nothing"
        for words in (("GET", "k"), ("SET", "k", "w"), ("GET", "k")):
            wait_until("an error", lambda one=words: error_or_closed(third, *one).startswith(refused))
        with Couch(third.http_port) as couch:
            assert couch.send("GET", "/notes/d").status == 503
        assert "writes and reads are refused" in third.log()
        volume.release()
        wait_until("it to be shown", lambda: call(third, "GET", "k") == b"v")
        wait_until("writes to be accepted", lambda: call(third, "SET", "k", "w") == b"OK")


def test_a_member_whose_directory_was_rolled_back_is_told(new_server, tmp_path):
    servers = group_of(new_server)
    leader, follower = servers[0], servers[1]
    wait_until("it to follow", lambda: is_following(follower))
    assert follower.stop() == 0
    shutil.copytree(follower.directory, tmp_path / "older")
    follower.start()
    wait_until("it to follow again", lambda: is_following(follower))
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_until("it to have it", lambda: call(follower, "GET", "k") == b"v")
    assert follower.stop() == 0
    assert "lost a part of the log" not in leader.log(), "a restart alone loses nothing"
    shutil.rmtree(follower.directory)
    shutil.copytree(tmp_path / "older", follower.directory)
    follower.start()
    leader.wait_for_log("a member has lost a part of the log that it had acknowledged")


@pytest.mark.parametrize("durability", ["strict", "commit"])
def test_a_leader_shows_nothing_that_no_majority_has(new_server, durability):
    servers = group_of(new_server, durability=durability)
    leader = servers[0]
    followers = others(servers, leader)
    with contextlib.ExitStack() as stack:
        writer, reader, watcher = (stack.enter_context(leader.connect()) for _ in range(3))
        reader.call("CLIENT", "SETNAME", "reader")
        for follower in followers:
            stack.enter_context(follower.frozen())
        writer.send(resp.encode("SET", "k", "v"))

        def clients() -> list[bytes] | None:
            """None once a leader that was deposed meanwhile has closed all connections: it has shown nothing, either."""
            try:
                return watcher.call("CLIENT", "LIST").splitlines()
            except UNREACHABLE:
                return None

        def is_running(command: bytes, client: bytes) -> bool:
            lines = clients()
            return lines is None or any(client in line and b"cmd=%b" % command in line for line in lines)

        wait_until("the write to be executed", lambda: is_running(b"set", b""))
        with contextlib.suppress(*UNREACHABLE):
            reader.send(resp.encode("GET", "k"))
        wait_until("the read to be executed", lambda: is_running(b"get", b"name=reader"))
        leader.kill()
        assert b"v" not in reader.read_to_end()


def test_a_leader_whose_followers_take_no_log_refuses_writes_until_they_do(new_server, tmp_path):
    leader = member(new_server, log_segment_bytes="1mb").start()
    wait_leader([leader])
    with contextlib.ExitStack() as stack:
        volumes = [stack.enter_context(small_volume(tmp_path / name, 100 * MIB)) for name in ("one", "two")]
        followers = [member(new_server, leader, directory=directory).start() for _, directory in volumes]
        wait_voters([leader, *followers], 3)
        for follower in followers:
            wait_until("it to follow", lambda one=follower: is_following(one))
        couch = stack.enter_context(Couch(leader.http_port))
        assert couch.send("PUT", "/notes").status == 201
        assert call(leader, "CONFIG", "SET", "ack-timeout", "1") == b"OK"
        assert call(leader, "SET", "other", "v") == b"OK"
        for volume, _ in volumes:
            fill_leaving(volume, 0)
        answers = []
        enough = threading.Event()

        def write() -> None:
            """Writes on after a refusal: a slow disk may have caused it, while the followers still had room."""
            with leader.connect() as connection:
                while not enough.is_set():
                    answers.append(connection.call("SET", "k", "x" * 100_000))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        for follower in followers:
            follower.wait_for_log("the disk has no room for the log")
        seen = []

        def refuses_behind_a_write_that_waits() -> bool:
            seen.append(len(answers))
            return couch.send("GET", "/_up").status == 503 and len(answers) == seen[-1] == seen[-2:][0]

        wait_until("the leader to refuse writes", refuses_behind_a_write_that_waits)
        leader.wait_for_log("no majority of the members takes the log")
        taken = len(answers)
        term, end = fields(leader, "GROUP", "INFO")["term"], info(leader)["master_repl_offset"]
        for _ in range(3):
            assert error_of(call(leader, "SET", "k", "v")).startswith("CLUSTERDOWN The group commits nothing")
        answer = couch.send("PUT", "/notes/a", {"text": "hello"})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert couch.send("GET", "/_up").status == 503
        assert call(leader, "GET", "other") == b"v", "what is committed is shown"
        assert info(leader)["master_repl_offset"] == end, "the log does not grow"
        assert all(server.is_running() for server in (leader, *followers)) and len(answers) == taken
        for volume, _ in volumes:
            volume.release()
        wait_until("it to take writes again", lambda: call(leader, "SET", "k", "v") == b"OK")
        wait_until("the write that has waited to be answered", lambda: len(answers) > taken)
        assert answers[taken] == b"OK"
        enough.set()
        writer.join()
        assert fields(leader, "GROUP", "INFO")["term"] == term, "nobody was elected"
        assert call(leader, "DEL", "k") == 1


def test_failover_in_a_group_ends_at_its_timeout(new_server):
    """The other member stands still when it is to have everything: nobody waits longer than TIMEOUT says."""
    servers = group_of(new_server)
    leader = wait_leader(servers)
    stopped = others(servers, leader)[0]
    wait_until("it to follow", lambda: is_following(stopped))

    def is_timed_out() -> bool:
        with stopped.frozen():
            refused = error_of(call(leader, "FAILOVER", "TO", "127.0.0.1", stopped.port, "TIMEOUT", 100))
        return refused.startswith("ERR the lead was not handed over within TIMEOUT: ")

    wait_until("it to be given up", is_timed_out)
    assert call(leader, "SET", "k", "v") == b"OK", "the old leader leads on"
    shown = info(leader)
    assert (shown["role"], shown["master_failover_state"]) == ("master", "no-failover")
    assert call(leader, "FAILOVER", "TO", "127.0.0.1", stopped.port, "TIMEOUT", 60_000) == b"OK"
    assert wait_leader(servers) is stopped
    assert call(stopped, "GET", "k") == b"v"
