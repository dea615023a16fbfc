"""Snapshots that a replica takes while its leader moves large values."""

import random

import pytest

from harness import resp
from harness.replicas import call, follower_of, wait_same
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

LARGE = [f"large:{number}" for number in range(24)]


def persistence(server: Server, field: str) -> int:
    """A figure of INFO persistence."""
    with server.connect() as connection:
        lines = connection.call("INFO", "persistence").decode().split("\r\n")
    return int(dict(line.split(":", 1) for line in lines if ":" in line)[field])


def fill(server: Server, draw: random.Random) -> None:
    """Large values of all types in slots far apart, among others that make a snapshot take its time."""
    with server.connect() as connection:
        for number in range(60):
            connection.call("SET", f"other:{number}", draw.randbytes(100_000))
        for number, key in enumerate(LARGE):
            items = [f"{key}:{item:05}" for item in range(2000)]
            match number % 5:
                case 0:
                    connection.call("SET", key, key * 10_000)
                case 1:
                    connection.call("RPUSH", key, *items)
                case 2:
                    connection.call("SADD", key, *items)
                case 3:
                    connection.call("HSET", key, *[word for item in items for word in (item, "value")])
                case 4:
                    connection.call("ZADD", key, *[word for item in items for word in (1, item)])


def move_some(connection: resp.Connection, draw: random.Random) -> None:
    """One transaction in which values change places, one goes there and back, and one to another database."""
    one, other, there, away = draw.sample(LARGE, 4)
    commands = [
        ("RENAME", one, "meanwhile"),
        ("RENAME", other, one),
        ("RENAME", "meanwhile", other),
        ("RENAME", there, "elsewhere"),
        ("RENAME", "elsewhere", there),
        ("MOVE", away, 1),
        ("SELECT", 1),
        ("RENAME", away, "new name"),
        ("MOVE", "new name", 0),
        ("SELECT", 0),
        ("RENAME", "new name", away),
    ]
    connection.call("MULTI")
    for command in commands:
        connection.call(*command)
    replies = connection.call("EXEC")
    assert all(reply in (b"OK", 1) for reply in replies), replies


@pytest.mark.parametrize("snapshots", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_replica_takes_snapshots_while_large_values_move(new_server, snapshots):
    draw = random.Random(30)
    leader = new_server().start()
    fill(leader, draw)
    replica = follower_of(new_server, leader)
    wait_same(leader, replica)
    for _ in range(snapshots):
        assert call(replica, "CONFIG", "SET", "snapshot-rate-bytes", "1mb") == b"OK"
        with replica.connect() as saver, leader.connect() as mover:
            before = persistence(replica, "snapshot_written_bytes")
            saver.send(resp.encode("SAVE"))
            wait_until("the snapshot to begin", lambda: persistence(replica, "rdb_bgsave_in_progress"))
            while persistence(replica, "snapshot_written_bytes") < before + (2 << 20):
                move_some(mover, draw)
            assert call(replica, "CONFIG", "SET", "snapshot-rate-bytes", "0") == b"OK"
            assert saver.read() == b"OK"
        assert persistence(replica, "rdb_last_cow_size") > 0, "values were captured before they moved"
        assert persistence(replica, "snapshot_failures") == 0
        replica.kill()
        replica.start()
        wait_same(leader, replica)
