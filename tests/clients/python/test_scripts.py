"""Scripts through redis-py: registered scripts, locks, pipelines, and the ways to end an endless script."""

import threading

import pytest
import redis


def test_a_registered_script_is_loaded_when_it_is_needed(client):
    double = client.register_script("redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])")
    assert double(keys=["n"], args=[5]) == b"5"
    client.script_flush()
    assert double(keys=["n"], args=[5]) == b"10"
    assert client.script_exists(double.sha) == [True]


def test_scripts_in_a_pipeline(client):
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('SET', KEYS[1], ARGV[1])}")
    with client.pipeline() as pipeline:
        script(keys=["k"], args=["v"], client=pipeline)
        pipeline.get("k")
        assert pipeline.execute() == [[b"k", b"v", b"OK"], b"v"]


def test_a_lock_is_released_by_its_owner_only(client):
    with client.lock("resource", timeout=30) as lock:
        assert lock.owned()
        lock.extend(10)
        lock.reacquire()
        assert not client.lock("resource", timeout=30).acquire(blocking=False)
    assert client.exists("resource") == 0
    stranger = client.lock("resource", timeout=30)
    client.set("resource", "somebody else")
    stranger.local.token = b"token"
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        stranger.release()


def test_an_error_names_the_script_and_the_line(client):
    with pytest.raises(redis.ResponseError, match=r"raised script: [0-9a-f]{40}, on @user_script:2\.$"):
        client.eval("\nerror('raised')", 0)
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha("f" * 40, 0)


def test_a_script_that_does_not_end_is_killed_and_leaves_nothing(client, connect):
    client.set("kept", "before")
    client.config_set("busy-reply-threshold", 50)
    errors = []

    def run():
        try:
            connect().eval("redis.call('SET', KEYS[1], 'after') while true do end", 1, "kept")
        except redis.ResponseError as error:
            errors.append(str(error))

    # Some of them are on the worker that runs the script.
    others = [connect(socket_timeout=1) for _ in range(8)]
    for other in others:
        other.ping()
    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        for other in others:
            try:
                other.script_kill()
            except redis.ResponseError as error:
                assert "NOTBUSY" in str(error)
            except redis.TimeoutError:
                pass
            thread.join(0.05)
    assert "Script killed by user with SCRIPT KILL" in errors[0]
    assert client.get("kept") == b"before"


@pytest.mark.sheaf_only
def test_info_shows_the_memory_of_scripts(client):
    client.eval("return 1", 0)
    client.script_load("return 2")
    told = client.info("memory")
    assert told["number_of_cached_scripts"] == 2
    assert told["used_memory_scripts"] == told["used_memory_scripts_eval"] == len("return 1" + "return 2")
    assert told["used_memory_lua"] == told["used_memory_vm_eval"] > 0
    client.script_flush()
    assert client.info("memory")["number_of_cached_scripts"] == 0
