"""Groups with a wrong time of day: a member whose clock is years off says so, and steps of a clock lose nothing."""

import contextlib

import pytest

from harness import resp
from harness.group_writers import wait_more, writing
from harness.groups import group_of, member, members, others, wait_leader, wait_voters
from harness.replicas import call, info, is_following
from harness.server import Server, run_sheaf
from harness.storm import contents
from harness.time_of_day import YEAR_S
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

BEHIND = "is behind the clock here"
AHEAD = "is ahead of the clock here"
# Also to a time before 1970.
OFFSETS_S = (10 * YEAR_S, -70 * YEAR_S, 3600.0, -1.5)


def shown_s(server: Server) -> int:
    """Its time of day."""
    return int(call(server, "TIME")[0])


@pytest.mark.parametrize(("offset_s", "told"), [(10 * YEAR_S, BEHIND), (-10 * YEAR_S, AHEAD)])
def test_a_member_whose_clock_is_years_off_says_so(new_server, new_time, offset_s, told):
    servers = group_of(new_server, 2)
    wrong = member(new_server, servers[0], extra_environment=new_time(offset_s).environment).start()
    assert abs(shown_s(wrong) - shown_s(servers[0]) - offset_s) < YEAR_S
    wait_voters([servers[0]], 3)
    assert call(servers[0], "SET", "k", "v") == b"OK"
    wrong.wait_for_log(told)
    assert "Set the time of both machines" in wrong.log()
    for server in servers:
        assert "the clock here" not in server.log(), "theirs are right"
    if offset_s < 0:
        # It has said so itself. The time in the log never goes back, so the others would need a minute to notice.
        return
    wait_until("it to follow", lambda: is_following(wrong))
    own_id = next(row["id"] for row in members(wrong) if row["self"])
    assert call(servers[0], "GROUP", "TRANSFER", own_id) == b"OK"
    assert wait_leader([wrong]) is wrong
    for server in servers:
        server.wait_for_log(AHEAD)


def test_a_clock_that_went_back_is_told_at_the_start_though_nothing_is_written(new_server, new_time):
    servers = group_of(new_server)
    time = new_time()
    follower = servers[1]
    # A new port would be written down by the group.
    follower.options.http_port = follower.http_port
    assert follower.stop() == 0
    # A log that has become idle is closed with a batch of its own: after that, nothing is written.
    assert call(servers[0], "SET", "k", "v") == b"OK"
    end = info(servers[0])["master_repl_offset"]
    wait_until("the log to be closed", lambda: info(servers[0])["master_repl_offset"] != end)
    time.set(-YEAR_S)
    follower.options.extra_environment = time.environment
    follower.start()
    follower.wait_for_log(AHEAD)
    assert all("the clock here" not in server.log() for server in others(servers, follower))


@pytest.mark.oracle
def test_steps_of_the_clock_of_one_member_lose_nothing(new_server, new_time):
    times = [new_time() for _ in range(3)]
    first = member(new_server, extra_environment=times[0].environment).start()
    wait_leader([first])
    rest = [member(new_server, first, extra_environment=time.environment).start() for time in times[1:]]
    servers = [first, *rest]
    wait_voters(servers, 3)
    told: list[bytes] = []
    with writing(servers) as writers:
        for offset_s in OFFSETS_S:
            for server, time in zip(servers, times, strict=True):
                time.set(offset_s)
                wait_more(writers, 5)
                # Streams must not depend on a time of day that goes on.
                told.append(at_leader(servers, "XADD", "stream", "*", "n", len(told)))
                if call(server, "ROLE")[0] == b"master":
                    at_leader(servers, "FAILOVER")
                    wait_more(writers, 5)
                time.set(0)
        found = [entry for entry, _ in at_leader(servers, "XRANGE", "stream", "-", "+")]
        assert set(told) <= set(found) and told == sorted(told, key=position) and found == sorted(found, key=position)
    leader = wait_leader(servers)
    for server in others(servers, leader):
        wait_until("it to follow", lambda one=server: is_following(one))
        wait_until("all to have the same", lambda one=server: same(leader, one))
    for server in servers:
        assert server.stop() == 0
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr


def at_leader(servers: list[Server], *words):
    """The answer of whoever leads, once it is no error: on a busy machine another one may be elected at any time."""

    def answer():
        found = call(wait_leader(servers), *words)
        return None if isinstance(found, resp.ErrorReply) else (found,)

    [found] = wait_until("an answer", answer)
    return found


def position(entry: bytes) -> tuple[int, ...]:
    """The order of the ids of a stream."""
    return tuple(map(int, entry.split(b"-")))


def same(leader: Server, follower: Server) -> bool:
    """Whether their keys and values are equal."""
    with contextlib.ExitStack() as opened:
        one, other = (opened.enter_context(server.connect()) for server in (leader, follower))
        return contents(one) == contents(other)
