"""A group is upgraded as docs/groups.md says, one member at a time under load: nothing is lost, and members of two
versions work together.

`SHEAF_EARLIER_BINARY` names the version to begin with. Without it the members run the same version before and
after, which tests the order of the steps.
"""

import os
import time

import pytest

from harness.couch import Couch
from harness.group_clients import DATABASE, Load
from harness.groups import group_of, others, settle, wait_leader
from harness.history import verdict
from harness.replicas import call, is_following
from harness.server import Server
from harness.waiting import wait_until

pytestmark = [pytest.mark.sheaf_only, pytest.mark.slow]


def upgrade(server: Server) -> None:
    """Stops it in order, and starts the newer version on its directory."""
    assert server.stop() == 0
    server.options.binary = None
    server.start()
    wait_until("it to follow", lambda: is_following(server))


def test_a_group_is_upgraded_one_member_at_a_time(new_server, checker, tmp_path):
    servers = group_of(new_server, binary=os.environ.get("SHEAF_EARLIER_BINARY"))
    leader, *followers = servers
    with Couch(leader.http_port) as couch:
        assert couch.send("PUT", f"/{DATABASE}").status == 201
    with Load(servers, None, tmp_path / "history.jsonl", "upgrade") as load:
        for follower in followers:
            load.wait_acknowledged(20)
            upgrade(follower)
        load.wait_acknowledged(20)
        since = time.monotonic()
        assert call(leader, "FAILOVER") == b"OK"
        new = wait_leader(followers)
        load.wait_acknowledged(5)
        print(f"without an acknowledged write for {1000 * load.probe.gap_s(since):.0f} ms", flush=True)
        upgrade(leader)
        load.wait_acknowledged(20)
    print(verdict(checker, load.history), flush=True)
    settle([new, *others(servers, new)], len(servers))
