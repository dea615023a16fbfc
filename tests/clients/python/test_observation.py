"""Commands for operators: MONITOR, SLOWLOG, LATENCY, MEMORY, HOTKEYS."""

import pytest
import redis

from harness.waiting import wait_until


def shown(monitor, count: int) -> list[str]:
    """The next commands that a monitor sees."""
    return [monitor.next_command()["command"] for _ in range(count)]


def test_a_monitor_sees_the_commands_of_all_clients_in_order(connect):
    one, other = connect(), connect()
    one.ping(), other.ping()
    with connect(db=2).monitor() as monitor:
        for client, key in ((one, "a"), (other, "b"), (one, "c")):
            client.set(key, 'x "y"\n\x00')
            command = monitor.next_command()
            assert command["command"].startswith(f"SET {key} "), command
            assert command["db"] == 0
            own_id = client.client_id()
            address = next(other["addr"] for other in client.client_list() if int(other["id"]) == own_id)
            assert f"{command['client_address']}:{command['client_port']}" == address
            assert shown(monitor, 1) == ["CLIENT ID"], "what administrators do is not shown"
        with pytest.raises(redis.ResponseError):
            one.execute_command("GET", "a", "b")
        one.get("last")
        assert shown(monitor, 1) == ["GET last"], "what is refused was not executed"


def test_a_monitor_sees_pipelines_whole(connect):
    client = connect()
    client.ping()
    with connect().monitor() as monitor:
        pipeline = client.pipeline(transaction=False)
        for number in range(2000):
            pipeline.get(f"key:{number}")
        pipeline.execute()
        assert shown(monitor, 2000) == [f"GET key:{number}" for number in range(2000)]


def test_a_monitor_sees_no_passwords(server, connect):
    with connect().monitor() as monitor, server.connect() as connection:
        connection.call("AUTH", "secret")
        connection.call("AUTH", "user", "secret")
        connection.call("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "n")
        connection.call("CONFIG", "SET", "requirepass", "")
        connection.call("ECHO", "end")
        assert shown(monitor, 4) == [
            "AUTH (redacted)",
            "AUTH (redacted) (redacted)",
            "HELLO 3 AUTH (redacted) (redacted) SETNAME n",
            "ECHO end",
        ]


def test_reset_ends_monitoring(server, client):
    client.ping()
    with server.connect() as connection:
        assert connection.call("MONITOR") == b"OK"
        assert connection.call("SET", "a", "1").text == "ERR Replica can't interact with the keyspace"
        client.echo("seen")
        assert connection.read().endswith(b'"ECHO" "seen"')
        assert connection.call("RESET") == b"RESET"
        client.echo("unseen")
        assert connection.call("PING") == b"PONG"


@pytest.mark.sheaf_only
def test_a_monitor_that_does_not_read_is_disconnected(server, client):
    with server.connect() as connection:
        monitor_id = connection.call("CLIENT", "ID")
        connection.call("MONITOR")
        value = "x" * 1_000_000

        def is_gone() -> bool:
            client.set("k", value)
            return all(int(other["id"]) != monitor_id for other in client.client_list())

        wait_until("the monitor to be disconnected", is_gone)
    assert client.get("k") in (value, value.encode())


def test_slow_commands_are_logged(client):
    client.config_set("slowlog-log-slower-than", 0)
    client.client_setname("worker")
    client.set("k", "v" * 200)
    client.config_set("slowlog-log-slower-than", -1)
    entries = client.slowlog_get(-1)
    commands = [entry["command"] for entry in entries]
    assert commands[:2] == [b"SET k " + b"v" * 128 + b"... (72 more bytes)", b"CLIENT SETNAME worker"]
    assert [entry["id"] for entry in entries] == sorted((entry["id"] for entry in entries), reverse=True)
    assert entries[0]["client_name"] == b"worker"
    assert entries[0]["duration"] >= 0
    assert client.slowlog_len() == len(entries)
    assert client.slowlog_reset()
    assert client.slowlog_len() == 0
    assert client.slowlog_get() == []


def test_the_slow_log_keeps_the_newest(client):
    client.execute_command("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "3")
    for number in range(10):
        client.echo(str(number))
    client.config_set("slowlog-log-slower-than", -1)
    assert [entry["command"] for entry in client.slowlog_get(2)] == [b"ECHO 9", b"ECHO 8"]
    assert client.slowlog_len() == 3


def test_latency_is_distributed(client):
    client.config_set("slowlog-log-slower-than", 0)
    for _ in range(50):
        client.echo("x")
    [name, histogram] = flat(client.execute_command("LATENCY", "HISTOGRAM", "echo", "nosuch"))
    assert name == b"echo"
    fields = dict(pairs(histogram))
    assert fields[b"calls"] >= 50
    counts = [count for _, count in pairs(fields[b"histogram_usec"])]
    assert counts == sorted(counts) and counts[-1] == fields[b"calls"]


def flat(reply):
    """A map of either protocol as names and values in turn."""
    return [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply


def pairs(reply):
    """A map of either protocol as pairs."""
    parts = flat(reply)
    return list(zip(parts[::2], parts[1::2]))


def test_latency_events(client):
    assert client.execute_command("LATENCY", "LATEST") == []
    assert client.execute_command("LATENCY", "HISTORY", "command") == []
    assert client.execute_command("LATENCY", "RESET") == 0
    assert b"latency-monitor-threshold" in client.execute_command("LATENCY", "DOCTOR")
    with pytest.raises(redis.ResponseError, match="No samples available for event 'command'"):
        client.execute_command("LATENCY", "GRAPH", "command")


def test_memory_of_a_key(client):
    assert client.memory_usage("k") is None
    client.set("k", "x" * 100_000)
    assert 100_000 <= client.memory_usage("k") <= 130_000
    assert client.memory_usage("k", samples=0) == client.memory_usage("k")


def test_memory_figures(client):
    before = client.memory_stats()
    client.set("k", "x" * 1_000_000)
    after = client.memory_stats()
    assert after["keys.count"] == before["keys.count"] + 1
    assert after["dataset.bytes"] >= before["dataset.bytes"] + 1_000_000
    assert after["total.allocated"] >= before["total.allocated"] + 1_000_000
    assert {"peak.allocated", "startup.allocated", "clients.normal", "overhead.total", "fragmentation"} <= set(after)
    assert client.memory_purge() is True
    assert client.memory_malloc_stats()
    assert client.execute_command("MEMORY", "DOCTOR")


@pytest.mark.sheaf_only
def test_hot_keys_are_named(connect, server):
    clients = [connect() for _ in range(2)]
    clients[0].set("hot", "1")
    for client in clients:
        pipeline = client.pipeline(transaction=False)
        for number in range(5000):
            pipeline.get("hot")
            pipeline.get(f"cold:{number}")
        pipeline.execute()
    with server.connect() as connection:
        connection.call("HELLO", "3")
        hottest = connection.call("HOTKEYS", "COUNT", "3")[0]
    assert hottest[b"key"] == b"hot"
    assert hottest[b"type"] == b"string"
    assert hottest[b"accesses-per-second"] > 0
    assert 0.3 < float(hottest[b"share"]) < 0.7
