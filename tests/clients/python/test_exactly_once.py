"""IDEMP and LEASE over real connections, in both versions of the protocol."""

import threading

import pytest
import redis

from harness.resp import Connection, encode
from harness.server import run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

MINUTE_MS = 60_000


class TestIdemp:
    """A command that is sent again."""

    def test_a_repeated_command_gets_its_first_reply(self, client):
        for _ in range(3):
            assert client.execute_command("IDEMP", "order:1", MINUTE_MS, "INCR", "orders") == 1
        assert client.get("orders") == b"1"
        with pytest.raises(redis.ResponseError, match="IDEMPMISMATCH"):
            client.execute_command("IDEMP", "order:1", MINUTE_MS, "INCRBY", "orders", 5)
        assert client.execute_command("IDEMP", "order:2", MINUTE_MS, "INCR", "orders") == 2

    def test_a_kept_reply_has_the_protocol_of_its_reader(self, server):
        with server.connect() as two, server.connect() as three:
            three.call("HELLO", 3)
            two.call("RPUSH", "queue", "a", "b")
            assert two.call("IDEMP", "take", MINUTE_MS, "LPOP", "queue", 2) == [b"a", b"b"]
            assert three.call("IDEMP", "take", MINUTE_MS, "LPOP", "queue", 2) == [b"a", b"b"]
            assert three.call("IDEMP", "nothing", MINUTE_MS, "LPOP", "queue") is None
            assert two.call("IDEMP", "nothing", MINUTE_MS, "LPOP", "queue") is None

    def test_of_many_concurrent_calls_one_runs(self, server, client):
        replies: list[list[int]] = [[] for _ in range(8)]

        def work(own: list[int]) -> None:
            with server.connect() as connection:
                commands = [encode("IDEMP", f"once:{number}", MINUTE_MS, "INCR", "counter") for number in range(200)]
                connection.send(b"".join(commands))
                own += [connection.read() for _ in commands]

        threads = [threading.Thread(target=work, args=(own,)) for own in replies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.get("counter") == b"200"
        assert all(own == replies[0] for own in replies)
        assert sorted(replies[0]) == list(range(1, 201))

    def test_a_script_and_a_transaction(self, client):
        script = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LLEN', KEYS[1])"
        for _ in range(2):
            assert client.execute_command("IDEMP", "once", MINUTE_MS, "EVAL", script, 1, "list", "x") == 1
        for _ in range(2):
            pipeline = client.pipeline(transaction=True)
            pipeline.execute_command("IDEMP", "pay", MINUTE_MS, "DECRBY", "account", 5)
            pipeline.execute_command("IDEMP", "ship", MINUTE_MS, "RPUSH", "shipments", "order")
            assert pipeline.execute() == [-5, 1]

    def test_kept_replies_survive_a_stop_a_kill_and_a_restore(self, server, new_server, tmp_path):
        command = ("IDEMP", "once", MINUTE_MS, "INCR", "counter")
        with server.connect() as connection:
            assert connection.call(*command) == 1
            connection.call("INCR", "counter")
        backup = tmp_path / "backup"
        done = run_sheaf("backup", str(backup), "--from", f"http://127.0.0.1:{server.http_port}")
        assert done.returncode == 0, done.stderr
        server.kill()
        server.start()
        with server.connect() as connection:
            assert connection.call(*command) == 1
        assert server.stop() == 0
        server.start()
        with server.connect() as connection:
            assert connection.call(*command) == 1
        restored = new_server()
        done = run_sheaf("restore", str(backup), "--dir", str(restored.directory))
        assert done.returncode == 0, done.stderr
        with restored.start().connect() as connection:
            assert connection.call(*command) == 1
            assert connection.call("GET", "counter") == b"2"


class TestLease:
    """A key that belongs to a connection."""

    def test_a_lease_is_taken_renewed_and_given_back(self, client):
        first = client.execute_command("LEASE", "job", MINUTE_MS, "worker-1")
        assert client.execute_command("LEASE", "job", MINUTE_MS, "worker-1") > first
        assert client.execute_command("LEASE", "job", MINUTE_MS, "worker-2") is None
        assert client.get("job") == b"worker-1"
        assert client.execute_command("UNLEASE", "job", "worker-2") == 0
        assert client.execute_command("UNLEASE", "job", "worker-1") == 1
        assert client.exists("job") == 0

    def test_a_lease_ends_with_its_connection(self, server, client):
        holder = server.connect()
        token = holder.call("LEASE", "job", MINUTE_MS, "worker-1")
        assert client.execute_command("LEASE", "job", MINUTE_MS, "worker-2") is None
        holder.close()
        lease = ("LEASE", "job", MINUTE_MS, "worker-2")
        assert wait_until("the lease to be free", lambda: client.execute_command(*lease)) > token

    def test_a_lease_ends_when_its_connection_is_killed(self, server, client):
        with server.connect() as holder:
            holder.call("LEASE", "job", MINUTE_MS, "worker-1")
            assert client.client_kill_filter(_id=holder.call("CLIENT", "ID")) == 1
            wait_until("the lease to be free", lambda: client.exists("job") == 0)

    def test_changed_leases_are_not_released(self, server, client):
        with server.connect() as first, server.connect() as second:
            for key in ("renewed", "set", "left"):
                first.call("LEASE", key, MINUTE_MS, "worker")
            second.call("LEASE", "renewed", MINUTE_MS, "worker")
            client.set("set", "worker")
            first.close()
            wait_until("what is left to be released", lambda: client.exists("left") == 0)
            assert client.mget("renewed", "set") == [b"worker", b"worker"]
        wait_until("the other connection to release it", lambda: client.exists("renewed") == 0)
        assert client.get("set") == b"worker"

    def test_leases_notify_listeners(self, server, client):
        client.config_set("notify-keyspace-events", "KA")
        with Connection(server.port) as listener:
            listener.call("SUBSCRIBE", "__keyspace@0__:job")
            holder = server.connect()
            holder.call("LEASE", "job", MINUTE_MS, "worker")
            holder.call("UNLEASE", "job", "worker")
            holder.call("LEASE", "job", MINUTE_MS, "worker")
            holder.close()
            told = [listener.read()[2] for _ in range(4)]
            assert told == [b"lease", b"unlease", b"lease", b"leaselost"]

    def test_a_stop_of_the_server_ends_leases(self, server):
        with server.connect() as holder:
            token = holder.call("LEASE", "job", MINUTE_MS, "worker-1")
            assert server.stop() == 0
        server.start()
        with server.connect() as connection:
            assert connection.call("LEASE", "job", MINUTE_MS, "worker-2") > token

    def test_after_a_kill_of_the_server_a_lease_ends_at_its_deadline(self, server):
        with server.connect() as holder:
            token = holder.call("LEASE", "job", MINUTE_MS, "worker-1")
            server.kill()
        server.start()
        with server.connect() as connection:
            assert connection.call("LEASE", "job", MINUTE_MS, "worker-2") is None
            assert 0 < connection.call("PTTL", "job") <= MINUTE_MS
            assert connection.call("LEASE", "job", 1, "worker-1") > token
            wait_until("its deadline", lambda: connection.call("LEASE", "job", MINUTE_MS, "worker-2"))
