"""Moving in without downtime: `sheaf import --from` a redis-server 7.0.15 that keeps receiving writes."""

import contextlib
import random
import signal
import threading

import pytest
import redis

from differential.peers import REDIS_7_0, REDIS_8_2, PeerOptions
from differential.state import WITHOUT_ENCODING, first_difference, held
from harness.cutting_proxy import CuttingProxy
from harness.server import Server, run_sheaf
from harness.terminal import Terminal
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

KEYS = 400
DATABASES = (0, 1, 2)
WRITERS = 3
# Enough that the stream continues for a while after the first copy, and is cut in the middle of it.
WRITES = 3000


@pytest.fixture
def source(request, tmp_path):
    """A redis-server, 7.0 unless a test asks for another."""
    directory = tmp_path / "redis"
    directory.mkdir()
    server = Server(directory, PeerOptions(peer=getattr(request, "param", REDIS_7_0))).start()
    yield server
    server.close()


def write(port: int, seed: int, count: int, prefix: str) -> None:
    """Random commands of every type, some in transactions, some with expiry, in several databases."""
    chance = random.Random(seed)
    clients = [redis.Redis(port=port, db=database) for database in DATABASES]
    for _ in range(count):
        client = chance.choice(clients)
        if chance.random() < 0.2:
            with client.pipeline(transaction=True) as transaction:
                for _ in range(chance.randrange(1, 5)):
                    change(transaction, chance, prefix)
                transaction.execute()
        else:
            change(client, chance, prefix)
    for client in clients:
        client.close()


def change(client: redis.Redis, chance: random.Random, prefix: str) -> None:
    """One command. Keys of a type have names of their own, so that none is refused."""
    number = chance.randrange(KEYS)
    key = f"{prefix}:{number}"
    text = chance.choice((str(chance.randrange(1000)), "x" * chance.randrange(200), f"m:{chance.randrange(50)}"))
    ttl = chance.randrange(10**7, 10**8)
    match chance.randrange(16):
        case 0:
            client.set(f"s:{key}", text, px=chance.choice((None, ttl)))
        case 1:
            client.incrby(f"n:{key}", chance.randrange(100))
        case 2:
            client.incrbyfloat(f"f:{key}", chance.random())
        case 3:
            client.append(f"s:{key}", text)
        case 4:
            client.rpush(f"l:{key}", text, text + "!")
        case 5:
            client.lpop(f"l:{key}", 2)
        case 6:
            client.sadd(f"e:{key}", text, text + "!")
        case 7:
            client.spop(f"e:{key}", 2)
        case 8:
            client.zadd(f"z:{key}", {text: chance.random() * 100, text + "!": 1e17})
        case 9:
            client.zremrangebyrank(f"z:{key}", 0, 1)
        case 10:
            client.hset(f"h:{key}", mapping={text: text, text + "!": number})
        case 11:
            client.hincrby(f"h:{key}", "count", number)
        case 12:
            client.expire(f"{chance.choice('snflezh')}:{key}", ttl // 1000)
        case 13:
            client.persist(f"{chance.choice('snflezh')}:{key}")
        case 14:
            client.delete(f"{chance.choice('snflezh')}:{key}")
        case 15:
            client.copy(f"h:{key}", f"c:{prefix}:{chance.randrange(KEYS)}", replace=True)


@contextlib.contextmanager
def under_load(port: int, seed: int):
    """Writers that run during the block, each on keys of its own."""
    failures: list[BaseException] = []
    rest = threading.Event()

    def work(number: int) -> None:
        try:
            write(port, seed + number, WRITES, f"w{number}")
            # A few more writes after the events in the block.
            rest.wait(PATIENCE_S)
            write(port, seed - number, WRITES // 10, f"w{number}")
        except BaseException as failure:
            failures.append(failure)

    writers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(1, WRITERS + 1)]
    for writer in writers:
        writer.start()
    yield
    rest.set()
    for writer in writers:
        writer.join(PATIENCE_S)
        assert not writer.is_alive()
    assert not failures, failures


def assert_same(source: Server, target: Server) -> None:
    """Both hold the same keys, values and deadlines."""
    expected = held(source.port)
    assert len(expected) > KEYS
    assert first_difference(expected, held(target.port), WITHOUT_ENCODING) is None


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_a_redis_under_load_is_copied_and_followed(source, server, new_import, tmp_path, pytestconfig, diskless):
    seed = pytestconfig.getoption("seed")
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync", diskless)
        client.config_set("repl-diskless-sync-delay", 0)
    write(source.port, seed, WRITES, "before")
    with under_load(source.port, seed):
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("the writes since then follow")
        copying.wait_for("in sync")
    status, out = copying.finish()
    assert (status, "the source has written nothing else" in out) == (0, True), out + copying.said()
    assert_same(source, server)
    assert not [*tmp_path.glob("sheaf-import-*")], "the file of the source is left behind"
    server.kill()
    server.start()
    assert_same(source, server)


def test_a_broken_connection_continues_from_its_position(source, server, new_import, tmp_path, pytestconfig):
    seed = pytestconfig.getoption("seed")
    write(source.port, seed, WRITES, "before")
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
        client.config_set("repl-backlog-size", "64mb")
    with CuttingProxy(source.port) as proxy:
        copying = new_import(proxy.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("in sync")
        for cut in range(1, 4):
            proxy.cut()
            write(source.port, seed + cut, WRITES // 3, "after")
            wait_until("the import to go on", lambda times=cut: copying.said().count("connected again") >= times)
        status, out = copying.finish()
    assert status == 0, out + copying.said()
    assert_same(source, server)


def test_after_a_lost_backlog_a_new_copy_needs_permission(source, new_server, new_import, tmp_path):
    write(source.port, 1, WRITES, "before")
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    for arguments in ((), ("--flush",)):
        target = new_server().start()
        with CuttingProxy(source.port) as proxy:
            copying = new_import(proxy.port, "--into", f"127.0.0.1:{target.port}", "--spool", tmp_path, *arguments)
            copying.wait_for("in sync")
            with redis.Redis(port=source.port) as client:
                client.config_set("repl-backlog-size", "16kb")
                copying.signal(signal.SIGSTOP)
                proxy.cut()
                for number in range(100):
                    client.set(f"s:more:{number}", "x" * 10_000)
                copying.signal(signal.SIGCONT)
            if not arguments:
                status, _ = copying.wait_exit()
                assert status == 1 and "the copy would have to begin anew" in copying.said(), copying.said()
                continue
            copying.wait_for("the copy starts again")
            wait_until("a second copy", lambda copying=copying: copying.said().count("in sync") == 2)
            status, out = copying.finish()
        assert status == 0, out + copying.said()
        assert_same(source, target)


def test_a_deadline_moved_in_time_holds(source, server, new_import, tmp_path):
    """A key whose deadline reaches the target too late has not expired there: the source alone decides."""
    with redis.Redis(port=source.port) as client, redis.Redis(port=server.port) as target:
        client.config_set("repl-diskless-sync-delay", 0)
        client.set("copied", "1", px=500)
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("in sync")
        copying.signal(signal.SIGSTOP)
        with client.pipeline(transaction=False) as pipeline:
            pipeline.set("session", "1", px=500).expire("session", 1000).set("short", "1", px=500)
            pipeline.hset("hash", "field", "1").pexpire("hash", 500).persist("hash").time()
            seconds, micros = pipeline.execute()[-1]
        wait_until("the deadlines to pass", lambda: client.time() > (seconds + 1, micros))
        copying.signal(signal.SIGCONT)
        status, out = copying.finish()
        assert status == 0, out + copying.said()
        assert target.mget("session", "copied", "short") == [b"1", None, None]
        assert target.hgetall("hash") == {b"field": b"1"}
        wait_until("what has expired to be removed", lambda: target.dbsize() == 2)


def add_vector(client, element):
    """A write that Redis has since 8.0, and Sheaf does not have."""
    client.execute_command("VADD", "vectors", "VALUES", 2, 1, 1, element)


@pytest.mark.parametrize("source", [REDIS_8_2], indirect=True)
def test_functions_are_imported_and_unsupported_commands_may_be_skipped(source, server, new_import, tmp_path):
    with redis.Redis(port=source.port) as client, redis.Redis(port=server.port) as target:
        client.config_set("repl-diskless-sync-delay", 0)
        write(source.port, 3, WRITES, "before")
        client.function_load("#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        place = ("--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying = new_import(source.port, *place, "--skip-unsupported")
        copying.wait_for("in sync")
        client.function_load("#!lua name=later\nredis.register_function('g', function() return 2 end)")
        add_vector(client, "v")
        with client.pipeline(transaction=True) as transaction:
            add_vector(transaction, "w")
            transaction.set("s:beside", "1").execute()
        status, out = copying.finish()
        assert status == 1, "it is not complete"
        assert '2 VADD, the first of "vectors"' in out, out
        assert target.get("s:beside") == b"1"
        assert [target.fcall(name, 0) for name in ("f", "g")] == [1, 2]
        client.delete("vectors")
    assert_same(source, server)


@pytest.mark.parametrize("source", [REDIS_8_2], indirect=True)
def test_a_write_that_sheaf_does_not_have_ends_the_copy(source, server, new_import, tmp_path):
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("in sync")
        add_vector(client, "v")
        status, _ = copying.wait_exit()
    assert status == 1
    assert 'VADD on "vectors"' in copying.said() and "--skip-unsupported" in copying.said()


def test_a_target_that_holds_keys_is_left_alone(source, server, new_import, tmp_path):
    with redis.Redis(port=source.port) as client, redis.Redis(port=server.port) as target:
        client.config_set("repl-diskless-sync-delay", 0)
        client.set("a", "1")
        target.set("b", "2")
        place = ("--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying = new_import(source.port, *place)
        status, _ = copying.wait_exit()
        assert (status, target.get("b")) == (1, b"2")
        assert "holds 1 keys" in copying.said() and "--flush" in copying.said()
        copying = new_import(source.port, *place, "--flush")
        copying.wait_for("in sync")
        assert copying.finish()[0] == 0
        assert (target.get("a"), target.get("b")) == (b"1", None)


def test_passwords_come_from_files_and_are_asked_for(source, new_server, new_import, tmp_path):
    target = new_server(requirepass="there").start()
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
        client.set("a", "1")
        client.config_set("requirepass", "here")
        (tmp_path / "here").write_text("here\n")
        (tmp_path / "there").write_text("there\n")
        (tmp_path / "wrong").write_text("wrong\n")
        place = ("--into", f"127.0.0.1:{target.port}", "--spool", tmp_path, "--password-file", tmp_path / "there")
        for arguments, text in (((), "NOAUTH"), (("--from-password-file", tmp_path / "wrong"), "WRONGPASS")):
            copying = new_import(source.port, *place, *arguments)
            assert copying.wait_exit()[0] == 1
            assert text in copying.said() and "password" in copying.said()
        copying = new_import(source.port, *place, "--from-password-file", tmp_path / "here")
        copying.wait_for("in sync")
        assert copying.finish()[0] == 0
    with target.connect() as connection:
        assert connection.call("GET", "a") == b"1"


def test_other_servers_are_no_sources_and_no_targets(source, server, new_server, new_import, tmp_path):
    other = new_server().start()
    copying = new_import(other.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    assert copying.wait_exit()[0] == 1
    assert "is a Sheaf" in copying.said(), copying.said()
    copying = new_import(source.port, "--into", f"127.0.0.1:{source.port}", "--spool", tmp_path)
    assert copying.wait_exit()[0] == 1
    assert "It is no Sheaf server" in copying.said(), copying.said()
    copying = new_import(server.http_port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
    assert copying.wait_exit()[0] == 1
    assert "does not speak the protocol" in copying.said(), copying.said()


def test_a_target_that_ends_ends_the_copy(source, server, new_import, tmp_path):
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
        copying = new_import(source.port, "--into", f"127.0.0.1:{server.port}", "--spool", tmp_path)
        copying.wait_for("in sync")
        server.kill()
        status, _ = copying.wait_exit()
    assert status == 1 and "lost the connection to the target" in copying.said(), copying.said()


def test_without_a_target_the_copy_goes_into_a_directory(source, new_server, tmp_path):
    with redis.Redis(port=source.port) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    write(source.port, 4, WRITES, "before")
    directory = tmp_path / "copy"
    place = ("--dir", str(directory), "--spool", str(tmp_path))
    done = run_sheaf("import", "--from", f"redis://127.0.0.1:{source.port}", *place)
    assert done.returncode == 0, done.stderr
    target = new_server(directory).start()
    assert_same(source, target)


def test_people_see_progress_from_the_start_to_a_last_line(source, new_server):
    write(source.port, 1, 300, "p")
    target = new_server().start()
    arguments = ("import", "--from", f"redis://127.0.0.1:{source.port}", "--into", f"127.0.0.1:{target.port}")
    with Terminal(*arguments) as terminal:
        terminal.wait_for("in sync: offset")
        terminal.signal(signal.SIGINT)
        assert terminal.wait_exit() == 0
        seen = terminal.seen()
        assert seen.startswith(f"sheaf: copying from 127.0.0.1:{source.port}\r\n")
        assert seen.index("waiting for the source") < seen.index("the writes since then follow")
        # Behind the status line; behind the note about Ctrl-C if the source has answered before the next tick.
        before = seen.partition("\r\ncopied ")[0]
        assert before.endswith(("Ctrl-C to finish", "Ctrl-C again to stop at once")), "the end begins on a line of its own"
        assert seen.endswith("\r\n")
