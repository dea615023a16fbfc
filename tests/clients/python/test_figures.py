"""INFO: figures that tools compute with."""

import pytest
import redis

from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


def test_errors_are_counted_by_their_codes(client):
    client.config_resetstat()
    client.rpush("l", "a")
    for words in (("GET", "l"), ("INCR", "l"), ("NOSUCH",), ("SET",), ("EVALSHA", "0" * 40, 0)):
        with pytest.raises(redis.ResponseError):
            client.execute_command(*words)
    counts = client.info("errorstats")
    assert {code: it["count"] for code, it in counts.items()} == {"errorstat_ERR": 2, "errorstat_NOSCRIPT": 1, "errorstat_WRONGTYPE": 2}
    assert client.info("stats")["total_error_replies"] == 5
    client.config_resetstat()
    assert client.info("stats")["total_error_replies"] == 0


def test_rates_are_those_of_the_last_second(client):
    def busy() -> bool:
        for _ in range(100):
            client.get("k")
        stats = client.info("stats")
        return stats["instantaneous_ops_per_sec"] > 0 and float(stats["instantaneous_input_kbps"]) > 0

    wait_until("a rate", busy)


def test_a_fresh_server_does_not_look_fragmented(client):
    wait_until("the first look at the memory", lambda: client.info("memory")["mem_fragmentation_ratio"] > 0)
    memory = client.info("memory")
    assert 0.5 < memory["mem_fragmentation_ratio"] < 1.5
    assert memory["used_memory"] == memory["used_memory_overhead"] + memory["used_memory_dataset"]
    assert memory["used_memory_peak_perc"].endswith("%")


def test_values_that_are_freed_aside_are_counted(client):
    client.config_resetstat()
    client.rpush("l", *["x" * 1000] * 10_000)
    client.delete("l")

    def freed() -> bool:
        memory = client.info("memory")
        return memory["lazyfreed_objects"] > 0 and memory["lazyfree_pending_objects"] == 0

    wait_until("the list to be freed", freed)


def test_watched_and_awaited_keys_are_counted(client, connect):
    watching, waiting = connect().client(), connect().client()
    watching.execute_command("WATCH", "a", "b", "a")
    client.xgroup_create("s", "g", mkstream=True)
    waiting.connection.send_command("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    fields = ("watching_clients", "total_watched_keys", "total_blocking_keys", "total_blocking_keys_on_nokey")
    wait_until("the wait", lambda: client.info("clients")["blocked_clients"] == 1)
    clients = client.info("clients")
    assert [clients[name] for name in fields] == [1, 2, 1, 1]
    assert client.client_list(client_id=[watching.client_id()])[0]["watch"] == "2"
    watching.execute_command("UNWATCH")
    assert client.info("clients")["watching_clients"] == 0


def test_percentiles_are_shown_on_request(client):
    client.config_set("slowlog-log-slower-than", 0)
    client.set("k", "v")
    shown = client.info("latencystats")["latency_percentiles_usec_set"]
    assert 0 < shown["p50"] <= shown["p99"] <= shown["p99.9"]
    assert "latency_percentiles_usec_set" not in client.info()
