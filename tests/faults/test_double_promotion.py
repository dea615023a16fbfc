"""Two operators promote at the same time: one of the two logs wins entirely, and no part of the other is
taken for it.

`--promotions N` sets the number of rounds (default 3).
"""

import threading

import pytest

from harness.replicas import call, error_of, follower_of, has_role, info, wait_following, wait_same
from harness.server import Server, run_sheaf
from harness.storm import contents
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

KEYS = 60


def write_in_lock_step(servers: list[Server], round_number: int) -> None:
    """A client per server sets the same keys at the same time, to different values of the same length."""
    step = threading.Barrier(len(servers))
    failures: list[str] = []

    def write(server: Server, name: str) -> None:
        with server.connect() as connection:
            for number in range(KEYS):
                step.wait(60)
                reply = connection.call("SET", f"key:{number:02}", f"{name}:{round_number:06}:{number:02}")
                if reply != b"OK":
                    failures.append(f"{name}: {reply!r}")

    threads = [threading.Thread(target=write, args=(server, name)) for server, name in zip(servers, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def all_of(server: Server) -> dict:
    """The keys and values of the server."""
    with server.connect() as connection:
        return contents(connection)


def promote(servers: list[Server]) -> None:
    """Promotes all of them at the same time."""
    begin = threading.Barrier(len(servers))
    answers: list[object] = []

    def run(server: Server) -> None:
        with server.connect() as connection:
            begin.wait(60)
            answers.append(connection.call("REPLICAOF", "NO", "ONE"))

    threads = [threading.Thread(target=run, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"OK"] * len(servers)


def follow(server: Server, leader: Server) -> None:
    """Makes it a replica, and waits until it follows: a former leader restarts in its process first."""
    assert call(server, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"
    wait_until("it to be a replica", lambda: has_role(server, "slave"))
    wait_same(leader, server)


def test_one_of_two_leaders_of_an_epoch_wins_with_its_whole_log(new_server, request):
    leader = new_server().start()
    others = [follower_of(new_server, leader) for _ in range(2)]
    for round_number in range(request.config.getoption("--promotions")):
        assert call(leader, "SET", "round", round_number) == b"OK"
        for other in others:
            wait_same(leader, other)
        leader.kill()
        checked = run_sheaf("check", str(leader.directory))
        assert checked.returncode == 0, checked.stderr
        promote(others)
        winner, loser = others
        epochs = [info(server)["replication_epoch"] for server in others]
        assert epochs[0] == epochs[1], "nothing but their reigns tells them apart"
        write_in_lock_step(others, round_number)
        wanted = all_of(winner)
        assert all_of(loser) != wanted
        follow(loser, winner)
        assert call(winner, "SET", "after", round_number) == b"OK"
        with winner.connect() as connection:
            assert connection.call("SET", "waited", round_number) == b"OK"
            assert connection.call("WAIT", 1, 60_000) == 1
        wanted = all_of(winner)
        wait_same(winner, loser)
        assert all_of(loser) == wanted
        leader.start()
        follow(leader, winner)
        assert error_of(call(winner, "FAILOVER", "TO", "127.0.0.1", loser.port, "TIMEOUT", 60_000)) == ""
        wait_until("the hand-over", lambda loser=loser: has_role(loser, "master"))
        assert all_of(loser) == wanted, "whoever is handed over to has what the leader had"
        wait_until("the old leader to follow", lambda winner=winner: has_role(winner, "slave"))
        wait_following(winner)
        follow(leader, loser)
        assert all_of(winner) == all_of(leader) == wanted
        leader, others = loser, [winner, leader]
    servers = [leader, *others]
    for server in servers:
        server.stop()
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stderr
