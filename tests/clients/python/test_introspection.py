"""Queries of tools about the server: INFO, CONFIG, COMMAND, TIME, DEBUG; errors that they recognise."""

import time

import pytest
import redis


def test_info_has_the_fields_that_tools_parse(client, server):
    info = client.info()
    assert tuple(int(part) for part in info["redis_version"].split(".")) >= (7, 0, 0)
    assert info["redis_mode"] == "standalone"
    assert info["role"] == "master"
    assert info["tcp_port"] == server.port
    assert info["process_id"] == server.pid
    assert info["connected_clients"] >= 1
    assert info["used_memory"] > 0
    assert info["used_memory_rss"] > 0
    assert info["maxmemory"] == 0
    assert info["maxmemory_policy"] == "noeviction"
    assert info["loading"] == 0
    assert info["connected_slaves"] == 0
    assert info["cluster_enabled"] == 0
    assert info["arch_bits"] == 64
    for field in ("used_memory_human", "master_repl_offset", "executable", "config_file", "uptime_in_seconds"):
        assert field in info, field
    assert any(name.startswith("rdb_") for name in info)
    assert any(name.startswith("aof_") for name in info)


def test_info_counts(client):
    before = client.info("stats")
    client.set("k", "v")
    client.get("k")
    client.get("missing")
    after = client.info("stats")
    assert after["total_commands_processed"] >= before["total_commands_processed"] + 3
    assert after["keyspace_hits"] == before["keyspace_hits"] + 1
    assert after["keyspace_misses"] == before["keyspace_misses"] + 1
    assert client.config_resetstat() is True
    assert client.info("stats")["keyspace_hits"] == 0


def test_info_by_section(client):
    assert "redis_version" in client.info("server")
    assert "used_memory" not in client.info("server")
    assert "used_memory" in client.info("memory")
    assert "cmdstat_info" in client.info("commandstats")
    assert client.info("nothing") == {}
    assert "redis_version" in client.info("everything")
    client.set("k", "v", ex=1000)
    keyspace = client.info("keyspace")["db0"]
    assert (keyspace["keys"], keyspace["expires"]) == (1, 1)


def test_config(client):
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    assert {"maxmemory", "maxmemory-policy", "maxclients"} <= set(client.config_get("max*"))
    assert {"port", "maxclients"} <= set(client.config_get("port", "maxclients"))
    assert client.config_get("no-such-setting") == {}
    assert client.config_set("maxmemory", "100mb") is True
    assert client.config_get("maxmemory") == {"maxmemory": str(100 * 1024 * 1024)}
    client.execute_command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "allkeys-lru")
    assert client.config_get("maxmemory*")["maxmemory-policy"] == "allkeys-lru"


def test_config_set_is_all_or_nothing(client):
    with pytest.raises(redis.ResponseError, match="CONFIG SET failed"):
        client.execute_command("CONFIG", "SET", "maxmemory", "5mb", "maxmemory-policy", "never")
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    with pytest.raises(redis.ResponseError, match="no-such-setting"):
        client.config_set("no-such-setting", "1")
    with pytest.raises(redis.ResponseError, match="The server is running without a config file"):
        client.config_rewrite()


def test_command_tables(client):
    names = {str(name).lower() for name in client.command()}
    assert {"get", "set", "mget", "expire", "scan", "info", "client", "config", "hello"} <= names
    assert client.command_count() == len(names)


def test_command_rows(server):
    with server.connect() as connection:
        [get, unknown, mset] = connection.call("COMMAND", "INFO", "get", "nosuch", "mset")
        assert unknown is None
        assert get[:2] == [b"get", 2]
        assert {b"readonly", b"fast"} <= set(get[2])
        assert get[3:6] == [1, 1, 1]
        assert mset[:2] == [b"mset", -3]
        assert {b"write", b"denyoom"} <= set(mset[2])
        assert mset[3:6] == [1, -1, 2]
        assert connection.call("COMMAND", "LIST", "FILTERBY", "PATTERN", "getr*") == [b"getrange"]
        assert b"mset" in connection.call("COMMAND", "LIST")


def test_command_keys(server):
    with server.connect() as connection:
        assert connection.call("COMMAND", "GETKEYS", "MSET", "a", "1", "b", "2") == [b"a", b"b"]
        assert connection.call("COMMAND", "GETKEYS", "SET", "k", "v", "EX", "1") == [b"k"]
        for command, text in (
            (("PING", "x"), "ERR The command has no key arguments"),
            (("NOSUCH", "k"), "ERR Invalid command specified"),
            (("GET", "a", "b"), "ERR Invalid number of arguments specified for command"),
        ):
            assert connection.call("COMMAND", "GETKEYS", *command).text == text


def test_command_docs_describe_arguments(server):
    with server.connect() as connection:
        connection.call("HELLO", "3")
        docs = connection.call("COMMAND", "DOCS", "set", "nosuch", "getrange")
        assert set(docs) == {b"set", b"getrange"}
        assert {b"summary", b"since", b"group", b"complexity", b"arguments"} <= set(docs[b"set"])
        assert [argument[b"name"] for argument in docs[b"getrange"][b"arguments"]] == [b"key", b"start", b"end"]
        whole = connection.call("COMMAND", "DOCS")
        assert len(whole) == connection.call("COMMAND", "COUNT")


def test_time_and_lastsave(client):
    seconds, microseconds = client.time()
    assert abs(seconds - time.time()) < 3600
    assert 0 <= microseconds < 1_000_000
    assert client.lastsave().timestamp() > 0


def test_debug_sleep_blocks_its_caller(client):
    assert client.execute_command("DEBUG", "SLEEP", "0.01") in (b"OK", "OK")


def test_unknown_commands_and_wrong_arity(server):
    expected = {
        ("NOSUCH", "a", "b c"): "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b c' ",
        ("NOSUCH",): "ERR unknown command 'NOSUCH', with args beginning with: ",
        ("GET",): "ERR wrong number of arguments for 'get' command",
        ("get", "a", "b"): "ERR wrong number of arguments for 'get' command",
        ("CLIENT",): "ERR wrong number of arguments for 'client' command",
        ("CLIENT", "GETNAME", "x"): "ERR wrong number of arguments for 'client|getname' command",
        ("CLIENT", "NOSUCH"): "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.",
        ("CONFIG", "nosuch", "x"): "ERR unknown subcommand 'nosuch'. Try CONFIG HELP.",
        ("OBJECT", "ENCODING"): "ERR wrong number of arguments for 'object|encoding' command",
    }
    with server.connect() as connection:
        for command, text in expected.items():
            assert connection.call(*command).text == text, command
        assert connection.call("PING") == b"PONG"
