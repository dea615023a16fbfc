"""Redis 7.0, Redis 8.2 and Valkey 9.1 as replicas of Sheaf, and redis-cli as a tool that speaks like one. All contents,
deadlines, groups and functions are compared, not counts.
"""

import contextlib
import random
import subprocess
import threading

import pytest
import redis

from differential.families import all_families
from differential.sequence import steps_of_round, themes
from differential.session import commands_of, payloads_of
from harness.cutting_proxy import CuttingProxy
from harness.everything import DETAILS, Writer, all_data, difference, expires_soon, has, write_everything
from harness.importing import BINARIES, SourceOptions
from harness.resp import Connection, ErrorReply
from harness.server import Server, free_port
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

# Random commands of one theme.
COMMANDS = 150
# Between two pipelines of the writer, so that replicas keep up on two cores.
PAUSE_S = 0.02
# As it stands in the stream.
PING = b"*1\r\n$4\r\nPING\r\n"
# Makes Redis 8.2 one that has deadlines of fields, but not the command that sets a field and keeps its deadline: like
# Redis 7.4.
WITHOUT_HSETEX = ("--rename-command", "HSETEX", "")
# A replica has times of its own.
COMPARED = frozenset(("delivery-time", "entries-read"))


@pytest.fixture
def new_replica(tmp_path):
    """Starts replicas: `new_replica("redis-8.2", port of the master, "--requirepass", "x", ...)`."""
    replicas: list[Server] = []

    def start(server: str, master: int, *settings: str) -> Server:
        options = SourceOptions(server=server, settings=("--replicaof", f"127.0.0.1 {master}", *settings))
        replicas.append(Server(tmp_path / f"{server}-{len(replicas)}", options))
        return replicas[-1].start()

    yield start
    for replica in replicas:
        replica.close()


def info(server: Server, section: str = "replication") -> dict:
    """A section of INFO."""
    with redis.Redis(port=server.port) as client:
        return client.info(section)


def data(server: Server, without_field_deadlines: bool) -> dict:
    """All that a server holds, as far as a replica has it."""
    found = all_data(server.port, COMPARED & DETAILS)
    return {name: it for name, it in found.items() if not (without_field_deadlines and name[-1] == "fields")}


def wait_until_same(master: Server, replica: Server) -> None:
    """Waits until the replica has all that the master has."""
    with Connection(master.port) as connection, Connection(replica.port) as other:
        connection.call("INCR", "written-last")
        last = connection.call("GET", "written-last")
        wait_until("the last write", lambda: other.call("GET", "written-last") == last)
    # Redis 7.0 has no deadlines of fields: they live until the master deletes them.
    without = replica.options.server == "redis-7.0"
    found: list[str | None] = [None]

    def is_same() -> bool:
        try:
            found[0] = difference(data(master, without), data(replica, without))
        except (KeyError, AttributeError) as gone:
            found[0] = f"a key that expired between two commands that read it: {gone}"
        return found[0] is None

    try:
        wait_until("the same data", is_same)
    except AssertionError as failure:
        raise AssertionError(f"{replica.options.server}: {found[0]}") from failure
    assert "CRITICAL" not in replica.log(), replica.log()


@contextlib.contextmanager
def writing(port: int, seed: int):
    """Writes of all kinds in the background."""
    stop, failures = threading.Event(), []

    def write() -> None:
        try:
            with contextlib.closing(Writer(port, 1, random.Random(seed), "w")) as writer:
                while not stop.wait(PAUSE_S):
                    writer.write()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    with redis.Redis(port=port) as client:
        wait_until("what expires soon to be removed", lambda: not expires_soon(client))


def try_to_save(client: redis.Redis) -> bool:
    """SAVE, unless a snapshot is being taken."""
    try:
        return client.save()
    except redis.ResponseError:
        return False


def write_rarely_used(port: int) -> None:
    """Changes for which Redis has no command of its own, or one with other rules."""
    with redis.Redis(port=port) as client, redis.Redis(port=port, db=3) as other:
        client.rpush("list", "a", "b", "a", "b", "a")
        client.linsert("list", "before", "b", "x")
        client.eval("redis.call('LSET', KEYS[1], 4, 'm') redis.call('LINSERT', KEYS[1], 'AFTER', 'm', 'a')", 1, "list")
        client.linsert("list", "after", "x", "a")
        client.lrem("list", -1, "a")
        client.zadd("scores", {"minus": -0.0, "inf": float("inf"), "ninf": float("-inf"), "third": 1 / 3, "least": 5e-324})
        client.zincrby("scores", 0.1, "third")
        client.set("text", "x" * 3_000_000)
        client.setrange("text", 2_999_999, "yz")
        client.rename("text", "renamed")
        other.rpush("large", *range(20_000))
        other.execute_command("MOVE", "large", 0)
        client.rename("large", "large:new")
        client.xadd("rare", {"f": "v"}, id="5-1")
        client.xadd("rare", {"f": "v"}, id="6-1")
        client.xdel("rare", "6-1")
        client.xgroup_create("rare", "g", "0")
        client.xreadgroup("g", "c", {"rare": ">"})
        client.restore("rare:restored", 0, client.dump("rare"))
        client.copy("rare", "rare:copy")
        # Entries that are pending, and gone: below, between and above the others, of two groups and consumers.
        for number in range(7, 14):
            client.xadd("rare", {"f": number}, id=f"{number}-0")
        client.xgroup_create("rare", "h", "0")
        client.xreadgroup("g", "d", {"rare": ">"})
        client.xreadgroup("h", "c", {"rare": ">"}, count=5)
        client.xdel("rare", "5-1", "9-0", "13-0")
        for name in ("rare", "rare:gone"):
            client.copy(name, f"{name}:copy", replace=True)
            client.restore(f"{name}:restored", 10**9, client.dump(name), replace=True)
            with client.pipeline(transaction=True) as transaction:
                transaction.copy(name, f"{name}:more").xadd(f"{name}:more", {"f": "v"}, id="20-0")
                transaction.xreadgroup("g", "e", {f"{name}:more": ">"}).execute()
            client.xtrim("rare", maxlen=0, approximate=False)
            client.copy("rare", "rare:gone")
        client.swapdb(3, 5)
        other.set("gone", 1)
        other.flushdb()
        client.function_load("#!lua name=mine\nredis.register_function('mine', function() return 1 end)")
        client.function_load("#!lua name=other\nredis.register_function('other', function() return 1 end)")
        client.function_delete("other")
        client.hset("hash", mapping={"a": 1, "b": 2, "c": 3})
        if has(client, "hpexpire"):
            client.execute_command("HPEXPIRE", "hash", 10**9, "FIELDS", 2, "a", "b")
            client.hincrby("hash", "a", 5)
            client.execute_command("HPERSIST", "hash", "FIELDS", 1, "b")
            client.execute_command("HSETEX", "hash", "PXAT", 2 * 10**12, "FIELDS", 1, "d", 4)


def test_replicas_have_everything_while_it_is_written(server, new_replica, pytestconfig):
    seed = pytestconfig.getoption("seed")
    write_everything(server.port, random.Random(seed))
    with writing(server.port, seed):
        replicas = [new_replica(kind, server.port) for kind in BINARIES]
        replicas.append(new_replica("redis-8.2", server.port, *WITHOUT_HSETEX))
        for replica in replicas:
            wait_until("the link to the master", lambda: info(replica)["master_link_status"] == "up")
        write_rarely_used(server.port)
    for replica in replicas:
        wait_until_same(server, replica)
    names = [f"slave{number}" for number in range(len(replicas))]

    def are_level() -> bool:
        shown = info(server)
        return all((shown[name]["state"], shown[name]["offset"]) == ("online", shown["master_repl_offset"]) for name in names)

    wait_until("the acknowledgements", are_level)
    with redis.Redis(port=server.port) as client:
        assert client.execute_command("WAIT", 1, 1) == 0, "they do not count: what they have, they have in memory"
        assert [it["flags"] for it in client.client_list(_type="replica")] == ["S"] * len(replicas)
        ports = sorted(int(address[1]) for address in client.execute_command("ROLE")[2])
        assert ports == sorted(replica.port for replica in replicas)


def test_random_commands_have_the_same_effects_on_replicas(server, new_replica, pytestconfig):
    payloads, available = payloads_of(server), commands_of(server)
    replicas, families = [new_replica(kind, server.port) for kind in BINARIES], all_families()
    for theme in themes(families):
        seed = f"{pytestconfig.getoption('seed')}/{theme}"
        steps = steps_of_round(families, available, payloads, seed, theme, COMMANDS)
        with Connection(server.port) as first, Connection(server.port) as second:
            for step in steps:
                for command in step.commands:
                    (first, second)[step.connection].call(*command.arguments)
    for replica in replicas:
        wait_until_same(server, replica)


def test_a_replica_whose_connection_is_cut_goes_on(server, new_replica, pytestconfig):
    seed = pytestconfig.getoption("seed")
    with CuttingProxy(server.port) as proxy, writing(server.port, seed):
        replica = new_replica("redis-7.0", proxy.port)
        acknowledged = 0
        for number in range(1, 4):
            wait_until("more of the stream", lambda: info(server).get("slave0", {}).get("offset", 0) > acknowledged)
            acknowledged = info(server)["slave0"]["offset"]
            proxy.cut()
            wait_until("the return", lambda count=number: info(server, "stats")["sync_partial_ok"] >= count)
    wait_until_same(server, replica)
    assert info(server, "stats")["sync_full"] == 1


def test_a_replica_that_was_stopped_goes_on_where_it_was(server, new_replica):
    with redis.Redis(port=server.port) as client:
        client.set("before", 1)
        replica = new_replica("valkey-9.1", server.port)
        wait_until_same(server, replica)
        wait_until("an acknowledgement", lambda: info(server).get("slave0", {}).get("state") == "online")
        client.set("more", 1)
        wait_until_same(server, replica)
        with redis.Redis(port=replica.port) as other, contextlib.suppress(redis.ConnectionError):
            other.shutdown(save=True)
        replica.wait_exit()
        client.rpush("meanwhile", *range(1000))
    replica.start()
    wait_until_same(server, replica)
    figures = info(server, "stats")
    assert [figures[name] for name in ("sync_full", "sync_partial_ok", "sync_partial_err")] == [1, 1, 0]


def test_all_replicas_in_one_stream_are_served(server, new_replica, pytestconfig):
    first = new_replica("redis-7.0", server.port)
    with redis.Redis(port=server.port) as client:
        client.set("before", 1)
    wait_until_same(server, first)
    # They have the stream of the first one.
    others = [new_replica(kind, first.port) for kind in BINARIES]
    for replica in others:
        wait_until_same(server, replica)
    with writing(server.port, pytestconfig.getoption("seed")):
        for replica in others:
            with redis.Redis(port=replica.port) as other:
                other.execute_command("REPLICAOF", "127.0.0.1", server.port)
        names = [f"slave{number}" for number in range(1 + len(others))]
        begun = info(server)["master_repl_offset"]

        def have_some() -> bool:
            shown = info(server)
            return all(name in shown and shown[name]["offset"] > begun for name in names)

        wait_until("all to get what is written", have_some)
    for replica in (first, *others):
        wait_until_same(server, replica)
    figures = info(server, "stats")
    assert [figures[name] for name in ("sync_full", "sync_partial_ok", "sync_partial_err")] == [1, len(others), 0]
    assert "a Redis replica has left" not in server.log()


def test_a_replica_of_a_server_that_restarts_copies_again(new_server, new_replica):
    server = new_server(port=free_port()).start()
    with redis.Redis(port=server.port) as client:
        client.set("key", 1)
        replica = new_replica("redis-8.2", server.port)
        wait_until_same(server, replica)
    server.kill()
    server.start()
    with redis.Redis(port=server.port) as client:
        client.set("key", 2)
    wait_until_same(server, replica)


def test_a_transaction_is_one_on_the_replica(server, new_replica):
    with redis.Redis(port=server.port) as client:
        client.mset({"a": 0, "b": 0})
        replica = new_replica("redis-7.0", server.port)
        wait_until_same(server, replica)
        with redis.Redis(port=replica.port) as reader:
            for number in range(1, 200):
                client.pipeline(transaction=True).set("a", number).select(2).set("b", number).select(0).set("b", number).execute()
                a, b = reader.mget("a", "b")
                assert a == b
    wait_until_same(server, replica)


def test_a_slow_replica_is_served_from_the_log_and_copies_again_once_that_is_cut(new_server, new_replica):
    master = new_server(extra=("--replica-retention-bytes", "64mb")).start()
    replica = new_replica("redis-7.0", master.port)
    with redis.Redis(port=master.port) as client:
        client.set("key", 1)
        wait_until_same(master, replica)
        text = b"x" * (1 << 20)
        with replica.frozen():
            for number in range(30):
                client.set("text", text + b"%d" % number)
        wait_until_same(master, replica)
        assert info(master, "stats")["sync_full"] == 1
        with replica.frozen():
            for number in range(150):
                client.set("text", text + b"%d" % number)
            for _ in range(2):
                client.set("text", text)
                wait_until("a snapshot", lambda: try_to_save(client))
    wait_until_same(master, replica)


def consumers(port: int, key: str) -> dict:
    """What XINFO shows of a stream: its highest deleted id, and of each consumer its times and pending entries."""
    def named(pairs: list) -> dict:
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    with Connection(port) as connection:
        shown = named(connection.call("XINFO", "STREAM", key, "FULL"))
    found = {"deleted": shown[b"max-deleted-entry-id"]}
    for group in map(named, shown[b"groups"]):
        for consumer in map(named, group[b"consumers"]):
            pending = [entry[0] for entry in consumer.get(b"pel", consumer.get(b"pending"))]
            found[group[b"name"], consumer[b"name"]] = [consumer[b"seen-time"], consumer.get(b"active-time"), pending]
    return found


def test_streams_keep_times_of_consumers_and_references_to_what_is_gone(server, new_replica):
    replicas = [new_replica(kind, server.port) for kind in BINARIES]
    for replica in replicas:
        wait_until("the link to the master", lambda it=replica: info(it)["master_link_status"] == "up")
    with redis.Redis(port=server.port) as client:
        for number in range(1, 7):
            client.xadd("stream", {"f": number}, id=f"{number}-0")
        client.xgroup_create("stream", "g", "0")
        client.xreadgroup("g", "c", {"stream": ">"}, count=2)
        client.xreadgroup("g", "idle", {"stream": "7-0"})
        # The first two are acknowledged; trimming is no deletion.
        client.xack("stream", "g", "1-0", "2-0")
        assert client.execute_command("XTRIM", "stream", "MAXLEN", 4, "ACKED") == 2
        client.xreadgroup("g", "c", {"stream": ">"}, count=2)
        client.rename("stream", "trimmed")
        client.copy("trimmed", "deleted")
        client.xdel("deleted", "3-0")
        client.rename("deleted", "renamed")
        client.move("renamed", 1)
        client.execute_command("SWAPDB", 0, 1)
        client.move("renamed", 1)
        client.execute_command("SWAPDB", 0, 1)
    for replica in replicas:
        wait_until_same(server, replica)
        for key in ("trimmed", "renamed"):
            expected, found = consumers(server.port, key), consumers(replica.port, key)
            if replica.options.server == "redis-7.0":
                for name in expected.keys() - {"deleted"}:
                    expected[name][1] = None
            assert found == expected, replica.options.server
    assert consumers(server.port, "trimmed")["deleted"] == b"0-0"


def test_pings_come_as_often_as_is_set(server, new_replica):
    with redis.Redis(port=server.port) as client:
        client.set("key", 1)
        replica = new_replica("redis-7.0", server.port)
        wait_until_same(server, replica)
        client.config_set("repl-ping-replica-period", 1)
        assert client.config_get("repl-ping-slave-period") == {"repl-ping-slave-period": "1"}

        def offset() -> int:
            return info(replica)["master_repl_offset"]

        wait_until("signs of life", lambda before=offset(): offset() >= before + 3 * len(PING))
        # They are not longer apart than the replica is patient.
        with redis.Redis(port=replica.port) as other:
            other.config_set("repl-timeout", 3)
            wait_until("signs of life", lambda before=offset(): offset() >= before + 6 * len(PING))
            assert other.info("replication")["master_link_status"] == "up"
    assert info(server, "stats")["sync_partial_ok"] == 0


def test_client_list_shows_what_a_replica_does(server, new_replica):
    with redis.Redis(port=server.port) as client:
        replica = new_replica("valkey-9.1", server.port)
        client.set("key", "x" * 10_000)
        wait_until_same(server, replica)

        def is_true() -> bool:
            [shown] = client.client_list(_type="replica")
            moved = int(shown["tot-net-out"]) > 10_000 and int(shown["tot-net-in"]) > 0
            # It acknowledges every second.
            return shown["cmd"] == "replconf" and int(shown["age"]) > int(shown["idle"]) + 1 and moved

        wait_until("figures of the replica", is_true)


def test_redis_cli_takes_files_of_keys_and_of_functions(server, new_replica, tmp_path):
    write_rarely_used(server.port)
    for option, name in (("--rdb", "all.rdb"), ("--functions-rdb", "functions.rdb")):
        ran = subprocess.run(
            ["redis-cli", "-p", str(server.port), option, str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        loaded = Server(tmp_path / f"of-{name}", SourceOptions(settings=("--dbfilename", name)))
        loaded.directory.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).rename(loaded.directory / name)
        with contextlib.closing(loaded.start()):
            expected = data(server, without_field_deadlines=True)
            if option == "--functions-rdb":
                expected = {"functions": expected["functions"]}
            assert expected["functions"]
            assert difference(expected, data(loaded, without_field_deadlines=True)) is None


def test_rights_and_refusals(server, new_replica):
    with redis.Redis(port=server.port) as client:
        client.execute_command("ACL", "SETUSER", "copy", "on", ">word", "-@all", "+psync", "+replconf", "+ping")
        client.execute_command("ACL", "SETUSER", "stranger", "on", ">word", "-@all", "+ping")
        with Connection(server.port) as connection:
            connection.call("AUTH", "stranger", "word")
            for command in (("PSYNC", "?", "-1"), ("SYNC",), ("REPLCONF", "capa", "eof")):
                assert str(connection.call(*command)).find("NOPERM") >= 0
        replica = new_replica("redis-7.0", server.port, "--masteruser", "copy", "--masterauth", "word")
        wait_until_same(server, replica)
        with Connection(server.port) as connection:
            assert isinstance(connection.call("REPLCONF", "rdb-channel", "1"), ErrorReply)
            assert connection.call("MULTI") == b"OK"
            assert isinstance(connection.call("PSYNC", "?", "-1"), ErrorReply)
        assert client.client_list(_type="replica")[0]["user"] == "copy"
        assert client.client_kill_filter(_type="replica") == 1
        client.set("after", 1)
        wait_until_same(server, replica)
        client.execute_command("ACL", "SETUSER", "copy", "-psync")
        wait_until("the replica to be disconnected", lambda: info(server)["connected_slaves"] == 0)
        client.execute_command("ACL", "SETUSER", "copy", "+psync")
        client.set("later", 1)
    wait_until_same(server, replica)
