"""Moving in from each of the servers that users come from: Redis 7.0, Redis 8.2, Valkey 9.1. All contents, deadlines,
groups and functions are compared, not counts.

    pytest tests/clients/python/test_import_sources.py -k writes_a_second --import-seconds 300
"""

import contextlib
import random
import socket
import threading
import time

import pytest
import redis

from harness.cutting_proxy import CuttingProxy
from harness.everything import DATABASES, DETAILS, Writer, all_data, difference, expires_soon, write_everything
from harness.importing import BINARIES, SourceOptions
from harness.server import Server, run_sheaf
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

WRITERS = 2
RATE = 10_000


@pytest.fixture
def new_source(tmp_path):
    """Starts servers to be copied: `new_source("redis-8.2", "--requirepass", "x", ...)`."""
    servers: list[Server] = []

    def start(server: str, *settings: str, requirepass: str | None = None) -> Server:
        password = () if requirepass is None else ("--requirepass", requirepass)
        options = SourceOptions(server=server, settings=(*settings, *password), requirepass=requirepass)
        servers.append(Server(tmp_path / f"{server}-{len(servers)}", options))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture(params=BINARIES)
def each_source(request: pytest.FixtureRequest, new_source) -> Server:
    """Each of the servers: what is in their files differs."""
    return new_source(request.param)


@pytest.fixture(params=["redis-8.2", *(pytest.param(name, marks=pytest.mark.slow) for name in BINARIES if name != "redis-8.2")])
def source(request: pytest.FixtureRequest, new_source) -> Server:
    """One of the servers, or each with --all."""
    return new_source(request.param)


def assert_same(source: Server, target: Server, details: frozenset[str] = DETAILS) -> None:
    """Both hold the same data."""
    if source.options.server == "redis-7.0":
        # It does not have this time.
        details -= {"active-time"}
    expected = all_data(source.port, details)
    assert len(expected) > len(DATABASES) * 40
    found = difference(expected, all_data(target.port, details))
    assert found is None, found


def test_everything_in_a_file_arrives(each_source, new_server, pytestconfig):
    source = each_source
    write_everything(source.port, random.Random(pytestconfig.getoption("seed")))
    with redis.Redis(port=source.port) as client:
        client.save()
    target = new_server()
    done = run_sheaf("import", str(source.directory / "dump.rdb"), "--dir", str(target.directory))
    assert done.returncode == 0, done.stderr
    target.start()
    assert_same(source, target)


def test_everything_arrives_live_with_idle_times(each_source, server, new_import, tmp_path, pytestconfig):
    everything_arrives_live(each_source, server, new_import, tmp_path, pytestconfig, "allkeys-lru")


def test_everything_arrives_live_with_frequencies(source, server, new_import, tmp_path, pytestconfig):
    everything_arrives_live(source, server, new_import, tmp_path, pytestconfig, "allkeys-lfu")


def everything_arrives_live(source, server, new_import, tmp_path, pytestconfig, policy: str) -> None:
    """The policy decides what the file says of the use of keys."""
    with redis.Redis(port=source.port) as client:
        client.config_set("maxmemory-policy", policy)
    write_everything(source.port, random.Random(pytestconfig.getoption("seed")))
    copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    copying.wait_for("in sync")
    status, out = copying.finish()
    assert status == 0 and "has all of it" in out, out + copying.said()
    assert_same(source, server)
    server.kill()
    server.start()
    assert_same(source, server)


@pytest.mark.soak
def test_a_source_with_10_000_writes_a_second_is_copied(source, server, new_import, tmp_path, pytestconfig):
    """Before, during and after the copy of the keys; some keys and fields expire on the way."""
    seed, seconds = pytestconfig.getoption("seed"), pytestconfig.getoption("import_seconds")
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-backlog-size", "256mb")
        client.config_set("client-output-buffer-limit", "replica 0 0 0")
    write_everything(source.port, random.Random(seed))
    written, failures, has_begun = [0] * WRITERS, [], threading.Event()
    prepared = [
        Writer(source.port, DATABASES[number], random.Random(seed + number), f"w{number}") for number in range(WRITERS)
    ]

    def write(number: int) -> None:
        try:
            with contextlib.closing(prepared[number]) as writer:
                started, goal = time.monotonic(), RATE * seconds // WRITERS
                while written[number] < goal:
                    written[number] += writer.write()
                    if written[number] > goal // 4:
                        has_begun.set()
                    # Not faster, so that the copy is compared at the rate that is promised.
                    ahead_s = written[number] * WRITERS / RATE - (time.monotonic() - started)
                    if ahead_s > 0:
                        time.sleep(ahead_s)
        except BaseException as failure:
            failures.append(failure)
            has_begun.set()

    writers = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(WRITERS)]
    started = time.monotonic()
    for writer in writers:
        writer.start()
    assert has_begun.wait(PATIENCE_S + seconds)
    copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    for writer in writers:
        writer.join(PATIENCE_S + 10 * seconds)
        assert not writer.is_alive()
    assert not failures, failures
    print(f"{sum(written) / (time.monotonic() - started):.0f} commands a second")
    copying.wait_for("in sync")
    with redis.Redis(port=source.port) as client:
        wait_until("what expires soon to be removed", lambda: not expires_soon(client))
    status, out = copying.finish()
    assert status == 0 and "has all of it" in out, out + copying.said()
    sends_entries_read = source.options.server != "redis-7.0"
    assert_same(source, server, frozenset(["entries-read"] if sends_entries_read else []))


@pytest.mark.parametrize("rights", [("+info",), ()], ids=["with info", "without info"])
def test_a_user_with_the_rights_of_a_replica_is_enough(source, server, new_import, tmp_path, rights):
    write_everything(source.port, random.Random(1))
    with redis.Redis(port=source.port) as client:
        client.execute_command("ACL", "SETUSER", "copy", "on", ">word", "-@all", "+psync", "+replconf", *rights)
        client.execute_command("ACL", "SETUSER", "stranger", "on", ">word", "-@all", "+ping")
    place = ("--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    copying = new_import(source.port, *place, user="stranger:word@")
    assert copying.wait_exit()[0] == 1
    assert "NOPERM" in copying.said() and "The user needs the rights of a replica" in copying.said(), copying.said()
    copying = new_import(source.port, *place, user="copy:word@")
    copying.wait_for("in sync" if rights else "the writes since then follow")
    status, out = copying.finish()
    assert status == 0, out + copying.said()
    assert ("did not say how far it is" in out) == (not rights)
    assert_same(source, server)


def test_a_source_that_renames_a_command_is_told(new_source, new_server, new_import, tmp_path):
    for name in ("redis-7.0", "valkey-9.1"):
        source, target = new_source(name, "--rename-command", "SET", "STORE-IT"), new_server().start()
        with redis.Redis(port=source.port) as client:
            client.execute_command("STORE-IT", "before", 1)
            copying = new_import(source.port, "--into", f"127.0.0.1:{target.port}", "--spool", tmp_path)
            copying.wait_for("in sync")
            client.rpush("list", 1)
            client.execute_command("STORE-IT", "key", 1)
            assert copying.wait_exit()[0] == 1
        assert 'STORE-IT on "key"' in copying.said() and "rename-command" in copying.said(), copying.said()
        assert "is the source" not in copying.said()


def test_a_source_that_gives_no_replicas_is_told(new_source, server, new_import, tmp_path):
    source = new_source("redis-7.0", "--rename-command", "PSYNC", "")
    copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    assert copying.wait_exit()[0] == 1
    assert "refuses PSYNC" in copying.said() and "renames" in copying.said(), copying.said()


def test_a_server_that_is_told_to_follow_a_redis_names_the_way_to_copy_it(new_source, server):
    source = new_source("redis-7.0")
    with server.connect() as client:
        assert client.call("REPLICAOF", "127.0.0.1", source.port) == b"OK"
    server.wait_for_log("is a Redis or Valkey server, which a Sheaf does not follow: `sheaf import --from`")


def test_values_of_modules_are_refused_by_name(new_source, new_server, new_import, tmp_path):
    source, target = new_source("redis-8.2"), new_server().start()
    with redis.Redis(port=source.port) as client:
        client.execute_command("VADD", "vectors", "VALUES", 3, 1, 2, 3, "element")
        client.save()
    refused = run_sheaf("import", str(source.directory / "dump.rdb"), "--dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert '"vectors" of database 0: a value of a module' in refused.stderr, refused.stderr
    copying = new_import(source.port, "--into", f"127.0.0.1:{target.port}", "--spool", tmp_path)
    assert copying.wait_exit()[0] == 1
    assert '"vectors" of database 0: a value of a module' in copying.said(), copying.said()
    with redis.Redis(port=target.port) as client:
        assert client.dbsize() == 0


def test_a_write_of_a_module_may_be_left_out_and_is_listed(new_source, server, new_import, tmp_path):
    source = new_source("redis-8.2")
    with redis.Redis(port=source.port) as client, redis.Redis(port=server.port) as target:
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path, "--skip-unsupported")
        copying.wait_for("in sync")
        client.execute_command("VADD", "vectors", "VALUES", 3, 1, 2, 3, "element")
        client.set("other", 1)
        status, out = copying.finish()
        assert status == 1 and 'NOT COPIED   1 VADD, the first of "vectors"' in out, out
        assert "has all of it" not in out and "lacks what is listed" in out
        assert target.keys() == [b"other"]


class BreakingSource:
    """A source that begins to send its file and closes the connection, as Valkey does that cannot store a key."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> "BreakingSource":
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        if line.upper() in (b"REPLCONF\r\n", b"INFO\r\n"):
                            connection.sendall(b"+OK\r\n")
                        if line.upper() == b"PSYNC\r\n":
                            connection.sendall(b"+FULLRESYNC %b 0\r\n$EOF:%b\r\nREDIS0011" % (b"a" * 40, b"b" * 40))
                            break


def test_a_source_that_never_sends_its_data_is_told(server, new_import, tmp_path):
    with BreakingSource() as source:
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        assert copying.wait_exit()[0] == 1
    assert "began 5 times to send its data" in copying.said() and "Its log says why" in copying.said(), copying.said()


def test_a_transfer_that_is_cut_starts_again(source, server, new_import, tmp_path):
    write_everything(source.port, random.Random(1))
    begun, cut = threading.Event(), threading.Event()

    def cut_once(piece: bytes) -> bytes:
        """Within the data, once the import knows that they come: the answer to PSYNC may be in the same piece."""
        if cut.is_set():
            return piece
        if begun.is_set():
            cut.set()
            proxy.cut()
            return b""
        if b"stream:high" in piece:
            begun.set()
            return piece[: piece.index(b"stream:high")]
        return piece

    with CuttingProxy(source.port, edit=cut_once) as proxy:
        copying = new_import(proxy.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("in sync")
        assert cut.is_set() and "the copy starts again" in copying.said()
        status, out = copying.finish()
    assert status == 0, out + copying.said()
    assert_same(source, server)


def test_a_source_that_is_killed_is_waited_for(source, new_server, new_import, tmp_path):
    """A restarted source has another history: with --flush, it is copied again, without, the copy ends."""
    # A file, so that the restarted source has its data.
    write_everything(source.port, random.Random(1))
    with redis.Redis(port=source.port) as client:
        client.save()
    for flush in ((), ("--flush",)):
        target = new_server().start()
        copying = new_import(source.port, "--into", f"127.0.0.1:{target.port}", "--spool", tmp_path, *flush)
        copying.wait_for("in sync")
        source.kill()
        copying.wait_for("trying again every second")
        source.options.port = source.port
        source.start()
        if not flush:
            assert copying.wait_exit()[0] == 1
            assert "would have to begin anew" in copying.said(), copying.said()
            continue
        wait_until("a second copy", lambda copying=copying: copying.said().count("in sync") == 2)
        status, out = copying.finish()
        assert status == 0, out + copying.said()
        assert_same(source, target)


def test_an_import_that_is_killed_can_be_run_again(source, server, new_import, tmp_path):
    write_everything(source.port, random.Random(1))
    place = ("--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    with redis.Redis(port=server.port) as target:
        copying = new_import(source.port, *place)
        wait_until("the first keys", lambda: target.dbsize() > 0)
        copying.close()
        wait_until("the target to notice", lambda: all(it["name"] != "sheaf-import" for it in target.client_list()))
        again = new_import(source.port, *place)
        assert again.wait_exit()[0] == 1 and "--flush" in again.said(), again.said()
    again = new_import(source.port, *place, "--flush")
    again.wait_for("in sync")
    assert again.finish()[0] == 0
    assert_same(source, server)


def test_a_file_that_holds_a_key_twice_is_refused(tmp_path):
    file = tmp_path / "dump.rdb"
    file.write_bytes(b"REDIS0003\x00\x03key\x05value\x00\x03key\x05other\xff")
    refused = run_sheaf("import", str(file), "--dir", str(tmp_path / "data"))
    assert refused.returncode == 1 and 'the key "key" of database 0 twice' in refused.stderr, refused.stderr
