"""SAVE, BGSAVE and their like, and a restart from a snapshot."""

import os

import pytest
import redis

from harness.server import ANY_PORTS, run_sheaf
from harness.waiting import wait_until


def fill(client) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(2000):
        pipeline.set(f"string:{number}", "v" * (number % 300))
        pipeline.hset(f"hash:{number % 50}", f"field:{number}", number)
        pipeline.zadd("scores", {f"member:{number}": number / 7})
        pipeline.rpush("queue", number)
        pipeline.sadd("tags", f"tag:{number}")
    pipeline.expire("hash:1", 10_000)
    pipeline.execute()


def contents(client) -> dict:
    return {
        "strings": client.mget([f"string:{number}" for number in range(2000)]),
        "hashes": [client.hgetall(f"hash:{number}") for number in range(50)],
        "scores": client.zrange("scores", 0, -1, withscores=True),
        "queue": client.lrange("queue", 0, -1),
        "tags": client.smembers("tags"),
        "expires": client.expiretime("hash:1"),
        "size": client.dbsize(),
    }


def wait_for_snapshot(client) -> None:
    wait_until("the snapshot is taken", lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 0)
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"


@pytest.mark.sheaf_only
def test_bgsave_and_its_figures(new_server):
    client = redis.Redis(port=new_server().start().port)
    client.set("k", "v")
    assert client.info("persistence")["rdb_changes_since_last_save"] >= 1
    before = client.lastsave()
    assert client.bgsave() is True
    wait_for_snapshot(client)
    assert client.lastsave() >= before
    assert client.info("persistence")["rdb_changes_since_last_save"] == 0
    assert client.info("persistence")["rdb_last_bgsave_time_sec"] >= 0
    with pytest.raises(redis.ResponseError, match="syntax error"):
        client.execute_command("BGSAVE", "NOW")
    assert client.bgrewriteaof() is True


@pytest.mark.sheaf_only
def test_save_replies_when_the_snapshot_is_taken(new_server):
    server = new_server().start()
    client = redis.Redis(port=server.port)
    fill(client)
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("SAVE")
    pipeline.get("string:7")
    assert pipeline.execute() == [True, b"v" * 7]
    assert list((server.directory / "snapshots").glob("*.manifest"))
    assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"
    (server.directory / "snapshots").rename(server.directory / "elsewhere")
    (server.directory / "snapshots").write_text("in the way of the directory")
    client.set("string:7", "another")
    with pytest.raises(redis.ResponseError, match="the snapshot failed"):
        client.save()
    assert client.get("string:7") == b"another"


@pytest.mark.sheaf_only
def test_others_are_served_while_one_waits_for_save(new_server):
    server = new_server().start()
    client = redis.Redis(port=server.port)
    client.config_set("snapshot-rate-bytes", 400_000)
    for number in range(40):
        client.set(f"noise:{number}", os.urandom(100_000))
    waiting = redis.Connection(port=server.port)
    waiting.connect()
    waiting.send_command("SAVE")
    wait_until("SAVE has begun", lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 1)
    with pytest.raises(redis.ResponseError, match="Background save already in progress"):
        client.save()
    assert client.set("other", "value")
    assert not waiting.can_read(timeout=0)
    client.config_set("snapshot-rate-bytes", 0)
    assert waiting.read_response() == b"OK"
    assert client.info("clients")["blocked_clients"] == 0


@pytest.mark.sheaf_only
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_a_restart_from_a_snapshot(new_server, kill):
    server = new_server().start()
    client = redis.Redis(port=server.port)
    fill(client)
    client.bgsave()
    wait_for_snapshot(client)
    client.rpush("queue", "after the snapshot")
    client.delete("string:7")
    client.rename("scores", "ranks")
    client.rename("ranks", "scores")
    expected = contents(client)
    if kill:
        server.kill()
    else:
        assert server.stop() == 0
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "snapshot" in checked.stdout + checked.stderr
    server.start()
    client = redis.Redis(port=server.port)
    assert client.info("persistence")["loading_rows"] > 2000
    assert contents(client) == expected


@pytest.mark.sheaf_only
def test_a_second_snapshot_lets_the_log_go(new_server):
    server = new_server(log_segment_bytes="1mb").start()
    client = redis.Redis(port=server.port)
    for number in range(3):
        for index in range(300):
            client.set(f"{number}:{index}", "x" * 10_000)
        client.bgsave()
        wait_for_snapshot(client)
    snapshots = list((server.directory / "snapshots").glob("*.manifest"))
    assert len(snapshots) == 2
    assert client.info("log")["log_start_lsn"] not in (0, "0")
    server.kill()
    server.start()
    assert redis.Redis(port=server.port).dbsize() == 900


@pytest.mark.sheaf_only
def test_shutdown_save_takes_a_snapshot(new_server):
    server = new_server().start()
    client = redis.Redis(port=server.port)
    client.set("k", "v")
    client.shutdown(save=True)
    wait_until("the server has stopped", lambda: not server.is_running())
    assert list((server.directory / "snapshots").glob("*.manifest"))
    server.start()
    client = redis.Redis(port=server.port)
    assert client.get("k") == b"v"
    assert client.info("persistence")["loading_rows"] == 1


@pytest.mark.sheaf_only
def test_a_damaged_snapshot_refuses_to_start(new_server):
    server = new_server().start()
    client = redis.Redis(port=server.port)
    fill(client)
    client.bgsave()
    wait_for_snapshot(client)
    server.kill()
    part = next((server.directory / "snapshots").glob("*.part"))
    damaged = bytearray(part.read_bytes())
    damaged[4096 + 100] ^= 1
    part.write_bytes(damaged)
    refused = run_sheaf("serve", "--dir", str(server.directory), *ANY_PORTS)
    assert refused.returncode == 1
    assert part.name in refused.stderr
    assert "offset" in refused.stderr
    assert "--recover-from 0" in refused.stderr, "the log holds everything still"
