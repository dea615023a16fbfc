"""Backups of members of a group: what a majority has, or none at all."""

import contextlib
import threading
from pathlib import Path

import pytest

from harness.groups import group_of, member, wait_leader
from harness.replicas import call, wait_following
from harness.resp import UNREACHABLE
from harness.server import Server, run_sheaf
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only


def backup(server: Server, dest: Path) -> str:
    """`sheaf backup` of this server; what it says if it is refused, or nothing."""
    done = run_sheaf("backup", str(dest), "--from", f"http://127.0.0.1:{server.http_port}")
    assert (done.returncode == 0) == (dest / "backup.json").exists(), done.stderr
    return "" if done.returncode == 0 else done.stderr


def test_ack_replicas_that_a_group_ignores_is_told_where_it_takes_effect(new_server, tmp_path):
    server = member(new_server).start()
    wait_leader([server])
    assert call(server, "CONFIG", "SET", "ack-replicas", 1) == b"OK"
    server.wait_for_log("ack-replicas has no effect in a group")
    assert call(server, "SET", "k", "v") == b"OK"
    assert backup(server, tmp_path / "backup") == ""
    restored = run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(tmp_path / "restored"))
    assert restored.returncode == 0 and "ack-replicas is 1: " in restored.stdout, restored.stdout
    assert server.stop() == 0
    server.options.extra = ("--group", "none")
    server.start()
    server.wait_for_log("ack-replicas, which had no effect in the group, takes effect now")
    assert call(server, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
    assert call(server, "GET", "k") == b"v"


def test_a_member_without_a_majority_gives_no_backup(new_server, tmp_path):
    servers = group_of(new_server)
    leader, follower, last = servers
    assert call(leader, "SET", "k", "v") == b"OK"
    for number, server in enumerate(servers):
        wait_until("it to have it", lambda one=server: call(one, "GET", "k") == b"v")
        assert backup(server, tmp_path / f"whole-{number}") == ""

    def count_up() -> None:
        with contextlib.suppress(*UNREACHABLE), leader.connect() as connection:
            while isinstance(connection.call("INCR", "lost"), int):
                pass

    # Some write is on its way whenever the majority is lost. A leader that has none steps down without a restart, and
    # then knows that all of its data is committed.
    writer = threading.Thread(target=count_up)
    writer.start()
    follower.kill(), last.kill()
    # At first it still leads, and then it restarts.
    assert backup(leader, tmp_path / "of-a-leader")
    wait_until("it to say why", lambda: "of its data is committed" in backup(leader, tmp_path / "of-a-leader"))
    writer.join(PATIENCE_S)
    leader.kill()
    follower.start(), last.start()
    new = wait_leader([follower, last])
    other = last if new is follower else follower
    wait_following(other)
    assert call(new, "SET", "k", "v") == b"OK"
    new.kill()
    wait_until("it to know no leader", lambda: backup(other, tmp_path / "alone").find("majority") > 0)
    new.start()
    assert call(wait_leader([new, other]), "SET", "k2", "v2") == b"OK"
    for number, server in enumerate((new, other)):
        wait_until("it to have it", lambda one=server: call(one, "GET", "k2") == b"v2")
        dest, restored = tmp_path / f"again-{number}", new_server()
        assert backup(server, dest) == ""
        done = run_sheaf("restore", str(dest), "--dir", str(restored.directory))
        assert done.returncode == 0, done.stderr
        restored.start()
        assert [call(restored, "GET", key) for key in ("k", "k2")] == [b"v", b"v2"], "alone, and with all of it"
