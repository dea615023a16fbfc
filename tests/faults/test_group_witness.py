"""A witness: a voter that keeps the log of its group and no data, with two members that have data."""

import contextlib
import os

import pytest

from harness import procfs
from harness.couch import Couch
from harness.groups import (
    NAME,
    accepts_writes,
    fields,
    member,
    members,
    wait_leader,
    wait_voters,
)
from harness.replicas import call, error_of, is_following
from harness.server import ANY_PORTS, Server, run_sheaf
from harness.volume import MIB, Volume
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

VALUE = b"v" * 100_000


def with_witness(new_server, **options) -> tuple[Server, Server, Server]:
    """Two members with data, of which the first leads, and a witness: all of them voters that follow or lead."""
    first = member(new_server, **options).start()
    wait_leader([first])
    second = member(new_server, first, **options).start()
    witness = member(new_server, first, extra=("--witness", *options.pop("extra", ())), **options).start()
    wait_voters([first, second, witness], 3)
    for server in (second, witness):
        wait_until("it to follow", lambda one=server: is_following(one))
    return first, second, witness


def write(server: Server, count: int, first: int = 0) -> None:
    """Writes so many values of 100 KB."""
    with server.connect() as connection:
        for number in range(first, first + count):
            assert connection.call("SET", f"key:{number}", VALUE) == b"OK"


def line_of(server: Server, of: Server) -> dict[str, object]:
    """What a member says about another one."""
    return next(row for row in members(server) if row["address"] == f"127.0.0.1:{of.port}".encode())


def has_all(leader: Server, other: Server) -> bool:
    """Whether the leader knows that the other one has all of the log."""
    return line_of(leader, other)["lag-bytes"] == 0


def log_files(server: Server) -> list[str]:
    """The segments of its log."""
    return sorted(name for name in os.listdir(server.directory) if name.endswith(".seg"))


def test_a_witness_votes_and_has_no_data(new_server, tmp_path):
    first, second, witness = with_witness(new_server)
    kinds = [[row["kind"] for row in members(server)] for server in (first, second, witness)]
    assert kinds == [[b"voter", b"voter", b"witness"]] * 3
    before = procfs.resident_bytes(witness.pid)
    write(first, 600)
    wait_until("it to have the log", lambda: has_all(first, witness))
    grown = procfs.resident_bytes(witness.pid) - before
    assert grown < 30 * MIB, grown
    assert procfs.resident_bytes(second.pid) > procfs.resident_bytes(witness.pid) + 30 * MIB

    for words in (("GET", "key:1"), ("DBSIZE",), ("XSUBSCRIBE", "c", "FROM", "-"), ("XREAD", "STREAMS", "s", "0")):
        assert "This server is a witness" in error_of(call(witness, *words)), words
    assert error_of(call(witness, "SET", "k", "v")).startswith("READONLY This server is a witness")
    for words in (("SAVE",), ("BGSAVE",), ("BGREWRITEAOF",)):
        assert "has no data" in error_of(call(witness, *words)), words
    with Couch(first.http_port) as couch:
        couch.ok("PUT", "/db")
    with Couch(witness.http_port) as couch:
        for method, path, body in (("GET", "/db", None), ("GET", "/db/x", None), ("PUT", "/db/x", {"a": 1})):
            answer = couch.send(method, path, body)
            assert answer.status == 503 and "is a witness" in answer.json["reason"], (path, answer.json)
        up = couch.get("/_up")
        assert (up.status, up.json["error"]) == (503, "witness"), up.json
    copied = run_sheaf("backup", str(tmp_path / "backup"), "--from", f"http://127.0.0.1:{witness.http_port}")
    assert copied.returncode != 0 and "This server is a witness" in copied.stderr

    witness_id = line_of(first, witness)["id"]
    for words in (("GROUP", "TRANSFER", witness_id), ("FAILOVER", "TO", "127.0.0.1", witness.port)):
        assert error_of(call(first, *words)), words
    assert "is a witness" in error_of(call(first, "GROUP", "TRANSFER", witness_id))
    replicas = call(second, "SENTINEL", "REPLICAS", NAME)
    assert [row[1] for row in replicas] == [f"127.0.0.1:{second.port}".encode()]
    assert call(witness, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) == [b"127.0.0.1", str(first.port).encode()]
    shown = run_sheaf("group", f"127.0.0.1:{witness.port}")
    assert shown.returncode == 0 and " witness " in shown.stdout, shown.stdout
    assert accepts_writes(first)


def test_a_witness_that_joins_is_no_replica(new_server):
    first = member(new_server).start()
    wait_leader([first])
    witness = member(new_server, first, extra=("--witness",))
    witness.spawn()
    kinds = set()

    def is_voter() -> bool:
        kinds.update(row["kind"] for row in members(first) if not row["self"])
        assert call(first, "SENTINEL", "REPLICAS", NAME) == []
        return fields(first, "GROUP", "INFO")["voters"] == 2

    wait_until("it to vote", is_voter)
    assert kinds == {b"witness"}


def test_the_group_goes_on_without_any_one_of_them(new_server):
    servers = first, second, witness = with_witness(new_server)
    for number, gone in enumerate((witness, first, second, witness)):
        gone.kill()
        with_data = [server for server in (first, second) if server is not gone]
        leader = wait_leader(with_data)
        assert call(leader, "RPUSH", "list", number) == number + 1
        # No option says that it is a witness.
        gone.options.extra = ()
        gone.start()
        wait_until("it to follow", lambda one=gone: is_following(one))
        for server in servers:
            if server is not leader:
                wait_until("all of the log", lambda one=server, of=leader: has_all(of, one))
    assert [row["kind"] for row in members(witness)] == [b"voter", b"voter", b"witness"]
    for server in servers:
        assert server.stop() == 0
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert ("a log and no data" in checked.stdout) == (server is witness), checked.stdout


def test_a_witness_passes_on_the_newest_write_that_it_alone_has(new_server):
    first, second, witness = with_witness(new_server)
    for number, (gone, leader) in enumerate(((second, first), (first, second))):
        wait_until("it to lead", lambda one=leader: accepts_writes(one))
        gone.kill()
        write(leader, 20, first=20 * number)
        assert call(leader, "RPUSH", "list", number) == number + 1
        leader.kill()
        gone.start()
        wait_until("it to lead", lambda one=gone: accepts_writes(one))
        assert call(gone, "LRANGE", "list", 0, -1) == [str(it).encode() for it in range(number + 1)]
        assert call(gone, "GET", f"key:{20 * number + 19}") == VALUE
        assert "this server leads the group" in witness.log()
        assert error_of(call(witness, "GET", "key:1")).startswith("MASTERDOWN")
        leader.start()
        wait_until("it to follow", lambda one=leader: is_following(one))
        wait_until("the witness to follow", lambda: is_following(witness))


def test_a_witness_forgets_log_that_all_have_and_no_other(new_server):
    first, second, witness = with_witness(new_server, log_segment_bytes="1mb")
    write(first, 60)
    wait_until("it to forget", lambda: len(log_files(witness)) <= 5)
    oldest = log_files(witness)[0]
    assert len(log_files(first)) > 5, "the others keep theirs until a snapshot"
    second.kill()
    write(first, 60, first=60)
    wait_until("it to have the log", lambda: has_all(first, witness))
    assert len(log_files(witness)) >= 6, "another member lacks it"
    # What it has must do for the member that lacks it; the members are named in log that it has forgotten.
    witness.kill()
    witness.start()
    wait_until("it to follow", lambda: is_following(witness))
    first.kill()
    second.start()
    wait_until("it to lead", lambda: accepts_writes(second))
    assert call(second, "STRLEN", "key:119") == len(VALUE)
    first.start()
    wait_until("it to follow", lambda: is_following(first))
    write(second, 10, first=120)
    wait_until("it to forget", lambda: log_files(witness)[0] > oldest and len(log_files(witness)) <= 5)


def test_a_witness_with_a_full_disk_forgets_committed_log(new_server, tmp_path):
    first = member(new_server, log_segment_bytes="1mb").start()
    wait_leader([first])
    second = member(new_server, first, log_segment_bytes="1mb").start()
    with contextlib.closing(Volume(tmp_path, 60 * MIB)) as volume:
        # the server's own messages stay outside of the volume
        (volume.root / "data").mkdir()
        (tmp_path / "small").symlink_to(volume.root / "data")
        small = {"directory": tmp_path / "small", "log_segment_bytes": "1mb"}
        witness = member(new_server, first, extra=("--witness",), **small).start()
        wait_voters([first, second, witness], 3)
        wait_until("it to follow", lambda: is_following(second))
        second.kill()
        # More than its disk holds; each is acknowledged only if it has it.
        write(first, 800)
        assert "is_full=true" in witness.log()
        second.start()
        wait_until("it to have the log", lambda: has_all(first, second))
        wait_until("it to show all of it", lambda: call(second, "DBSIZE") == call(first, "DBSIZE"))


def test_a_witness_that_was_away_for_too_long_copies_the_log(new_server):
    few = ("--replica-retention-bytes", "1mb")
    first, second, witness = with_witness(new_server, log_segment_bytes="1mb", extra=few)
    witness.kill()
    for number in range(3):
        write(first, 40, first=40 * number)
        assert call(first, "SAVE") == b"OK"
    witness.start()
    wait_until("it to follow", lambda: is_following(witness))
    assert "everything was copied" in witness.log()
    assert not list((witness.directory / "snapshots").iterdir()), "the log alone"
    wait_until("it to have the log", lambda: has_all(first, witness))
    first.kill()
    wait_until("it to lead", lambda: accepts_writes(second))
    assert call(second, "STRLEN", "key:119") == len(VALUE)
    first.start()
    wait_until("it to follow", lambda: is_following(first))


def test_mistakes_with_witnesses_are_refused(new_server, tmp_path):
    def refusal(directory, *arguments: str) -> str:
        place = ("--dir", str(directory), *ANY_PORTS, "--log-segment-bytes", "1mb")
        ended = run_sheaf("serve", *place, *arguments)
        assert ended.returncode in (1, 2), ended.stderr
        return ended.stderr

    for arguments in (("--witness",), ("--witness", "--group", NAME)):
        assert "--join HOST:PORT" in refusal(tmp_path / "new", *arguments)
    first, second, witness = with_witness(new_server)
    assert second.stop() == 0
    assert witness.stop() == 0
    assert "that of a member with data" in refusal(second.directory, "--witness")
    assert "has no data: it cannot go on alone" in refusal(witness.directory, "--group", "none")
    assert first.is_running()
