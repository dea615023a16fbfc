"""Functions through redis-py, and their durability: over restarts, snapshots, replicas, backups and RDB
files.
"""

import pytest
import redis

from harness.replicas import call, error_of, follower_of, wait_same
from harness.server import run_sheaf

CODE = """#!lua name=queue
local function push(keys, args)
  return redis.call('RPUSH', keys[1], args[1])
end
redis.register_function('push', push)
redis.register_function{function_name='size', flags={'no-writes'}, description='How many there are.',
                        callback=function(keys) return redis.call('LLEN', keys[1]) end}
"""


def code(name: str, function: str, value: int) -> str:
    """A library with one function that returns a number."""
    return f"#!lua name={name}\nredis.register_function('{function}', function() return {value} end)"


def test_a_library_is_loaded_called_and_removed(client):
    assert client.function_load(CODE) == b"queue"
    with pytest.raises(redis.ResponseError, match="Library 'queue' already exists"):
        client.function_load(CODE)
    assert client.function_load(CODE, replace=True) == b"queue"
    assert client.fcall("push", 1, "jobs", "a") == 1
    assert client.fcall_ro("size", 1, "jobs") == 1
    with pytest.raises(redis.ResponseError, match="Can not execute a script with write flag"):
        client.fcall_ro("push", 1, "jobs", "b")
    with client.pipeline() as pipeline:
        pipeline.fcall("push", 1, "jobs", "b")
        pipeline.fcall_ro("size", 1, "jobs")
        assert pipeline.execute() == [2, 2]
    payload = client.function_dump()
    assert client.function_delete("queue") in (True, b"OK")
    with pytest.raises(redis.ResponseError, match="Function not found"):
        client.fcall("size", 1, "jobs")
    client.function_restore(payload)
    assert client.fcall("size", 1, "jobs") == 2
    client.flushall()
    assert client.fcall("size", 1, "jobs") == 0
    client.function_flush("SYNC")
    assert client.function_list() == []


@pytest.mark.sheaf_only
def test_libraries_last(server):
    """kill -9 right after the reply; then with a snapshot and log behind it; then after a FLUSHALL."""
    assert call(server, "FUNCTION", "LOAD", code("one", "f", 1)) == b"one"
    assert call(server, "FUNCTION", "LOAD", code("two", "g", 1)) == b"two"
    server.kill()
    server.start()
    assert (call(server, "FCALL", "f", 0), call(server, "FCALL", "g", 0)) == (1, 1)
    assert call(server, "SAVE") == b"OK"
    assert call(server, "FUNCTION", "LOAD", "REPLACE", code("one", "f", 2)) == b"one"
    assert call(server, "FUNCTION", "DELETE", "two") == b"OK"
    assert call(server, "FUNCTION", "LOAD", code("three", "h", 3)) == b"three"
    server.kill()
    server.start()
    assert (call(server, "FCALL", "f", 0), call(server, "FCALL", "h", 0)) == (2, 3)
    assert error_of(call(server, "FCALL", "g", 0)) == "ERR Function not found"
    assert call(server, "FLUSHALL") == b"OK"
    server.kill()
    server.start()
    assert (call(server, "FCALL", "f", 0), call(server, "DBSIZE")) == (2, 0)
    assert call(server, "SAVE") == b"OK"
    assert call(server, "FUNCTION", "FLUSH") == b"OK"
    server.kill()
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    server.start()
    assert call(server, "FUNCTION", "LIST") == []


@pytest.mark.sheaf_only
def test_replicas_have_libraries(new_server):
    """A replica that copies a snapshot, then follows, and is promoted."""
    leader = new_server().start()
    assert call(leader, "FUNCTION", "LOAD", code("one", "f", 1)) == b"one"
    assert call(leader, "SAVE") == b"OK"
    replica = follower_of(new_server, leader)
    assert call(replica, "FCALL", "f", 0).text.startswith("READONLY"), "it has not said that it writes nothing"
    assert call(leader, "FUNCTION", "LOAD", "REPLACE", CODE) == b"queue"
    assert call(leader, "FCALL", "push", 1, "jobs", "a") == 1
    wait_same(leader, replica)
    assert call(replica, "FCALL_RO", "size", 1, "jobs") == 1
    assert error_of(call(replica, "FUNCTION", "DELETE", "one")).startswith("READONLY")
    assert call(leader, "FUNCTION", "DELETE", "one") == b"OK"
    wait_same(leader, replica)
    assert error_of(call(replica, "FCALL", "f", 0)) == "ERR Function not found"
    assert call(leader, "FUNCTION", "DUMP") == call(replica, "FUNCTION", "DUMP")
    leader.kill()
    assert call(replica, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(replica, "FCALL", "push", 1, "jobs", "b") == 2


@pytest.mark.sheaf_only
def test_backups_and_files_have_libraries(new_server, tmp_path):
    server = new_server().start()
    assert call(server, "FUNCTION", "LOAD", CODE) == b"queue"
    assert call(server, "FUNCTION", "LOAD", code("one", "f", 1)) == b"one"
    backup, file = tmp_path / "backup", tmp_path / "dump.rdb"
    made = run_sheaf("backup", str(backup), "--from", f"http://127.0.0.1:{server.http_port}")
    assert made.returncode == 0, made.stderr
    dump = call(server, "FUNCTION", "DUMP")
    server.kill()
    exported = run_sheaf("export", str(file), "--dir", str(server.directory))
    assert exported.returncode == 0, exported.stderr
    restored, imported = new_server(), new_server()
    for done in (
        run_sheaf("restore", str(backup), "--dir", str(restored.directory)),
        run_sheaf("import", str(file), "--dir", str(imported.directory)),
    ):
        assert done.returncode == 0, done.stdout + done.stderr
    for other in (restored.start(), imported.start()):
        assert call(other, "FUNCTION", "DUMP") == dump
        assert call(other, "FCALL", "f", 0) == 1
