"""Moving in and out: RDB files between redis-server 7.0.15 and Sheaf, compared key by key."""

import random
from pathlib import Path

import pytest
import redis

from differential.peers import PeerOptions
from differential.state import WITHOUT_ENCODING, first_difference, held
from harness.server import Options, Server, run_sheaf

pytestmark = pytest.mark.sheaf_only

# The keys of each of three databases: all types and sizes often enough, and many more of each.
FEW_KEYS, MANY_KEYS = 100, 300
# Settings under which Redis chooses other encodings for the same data.
ENCODINGS = {
    "default": {},
    "all-large": {
        "hash-max-listpack-entries": 0,
        "zset-max-listpack-entries": 0,
        "set-max-intset-entries": 0,
        "list-max-listpack-size": 1,
        "rdbcompression": "no",
    },
    "all-packed": {
        "hash-max-listpack-entries": 100_000,
        "hash-max-listpack-value": 100_000,
        "zset-max-listpack-entries": 100_000,
        "zset-max-listpack-value": 100_000,
        "set-max-intset-entries": 100_000,
        "list-max-listpack-size": -5,
        "list-compress-depth": 1,
    },
}


@pytest.fixture
def peer(tmp_path):
    """A redis-server that saves to `dump.rdb` in its directory."""
    directory = tmp_path / "redis"
    directory.mkdir()
    server = Server(directory, PeerOptions())
    yield server
    server.close()


def fill(port: int, chance: random.Random, keys: int) -> None:
    """Keys of every type and many sizes in three databases, some of which expire."""
    for database in (0, 1, 2):
        with redis.Redis(port=port, db=database) as client:
            for number in range(keys):
                key = f"key:{number}".encode() + chance.randbytes(chance.choice((0, 0, 3, 70)))
                put(client, key, chance)
                if chance.random() < 0.2:
                    client.pexpire(key, chance.randrange(10**8, 10**12))


def text(chance: random.Random) -> bytes | int:
    """A string that is a number, short, long, or compressible."""
    match chance.randrange(5):
        case 0:
            return chance.randrange(-(2 ** chance.choice((7, 15, 31, 63))), 2 ** chance.choice((3, 7, 15, 31, 63)))
        case 1:
            return chance.randbytes(chance.choice((0, 1, 20, 63, 64, 300)))
        case 2:
            return chance.choice((b"ab", b"xyz", b"\0")) * chance.randrange(1, 400)
        case 3:
            return f"member:{chance.randrange(1000)}".encode()
        case _:
            return chance.randrange(100)


def put(client: redis.Redis, key: bytes, chance: random.Random) -> None:
    """One key with a random value."""
    count = chance.choice((1, 2, 5, 50, 600))
    match chance.randrange(7):
        case 0:
            client.set(key, text(chance))
        case 1:
            client.rpush(key, *(text(chance) for _ in range(count)))
        case 2:
            client.sadd(key, *(chance.randrange(-(2**40), 2**40) for _ in range(count)))
        case 3:
            client.sadd(key, *(text(chance) for _ in range(count)))
        case 4:
            scores = (chance.choice((1, 0.1, float("inf"), float("-inf"), 1e300, chance.random())) for _ in range(count))
            client.zadd(key, {text(chance): score for score in scores})
        case 5:
            client.hset(key, mapping={text(chance): text(chance) for _ in range(count)})
        case 6:
            put_stream(client, key, chance, count)


def put_stream(client: redis.Redis, key: bytes, chance: random.Random, count: int) -> None:
    """Entries with the same fields and with others, some of them deleted, and a group that has read some."""
    with client.pipeline(transaction=False) as entries:
        for number in range(count):
            names = (b"a", b"field") if chance.random() < 0.8 else (text(chance),)
            entries.xadd(key, {name: text(chance) for name in names}, id=f"{1 + number // 3}-*")
        entries.execute()
    client.xdel(key, "1-0", "2-1")
    client.xgroup_create(key, "group", "0")
    client.xreadgroup("group", "consumer", {key: ">"}, count=chance.randrange(1, 20))


def groups(port: int) -> dict:
    """The groups of all streams, with pending entries but without times."""
    found = {}
    for database in (0, 1, 2):
        with redis.Redis(port=port, db=database) as client:
            for key in client.scan_iter(_type="stream"):
                pending = client.xpending_range(key, "group", "-", "+", 100)
                shown = [(it["message_id"], it["consumer"], it["times_delivered"]) for it in pending]
                found[database, key] = (client.xinfo_groups(key), shown)
    return found


def compare(peer: Server, server: Server, keys: int) -> None:
    """Both hold the same data."""
    expected = held(peer.port)
    assert len(expected) == 3 * keys
    assert first_difference(expected, held(server.port), WITHOUT_ENCODING) is None
    assert groups(peer.port) == groups(server.port)


def succeed(*arguments: str) -> str:
    """Runs `sheaf` and returns its output."""
    done = run_sheaf(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stop(server: Server) -> None:
    """Stops it in order."""
    with redis.Redis(port=server.port) as client:
        client.shutdown()
    server.process.wait()


@pytest.fixture(params=[FEW_KEYS, pytest.param(MANY_KEYS, marks=pytest.mark.slow)])
def keys(request: pytest.FixtureRequest) -> int:
    """How many keys each database has."""
    return request.param


@pytest.fixture
def arrived(peer, new_server, pytestconfig, keys):
    """Fills the peer under these settings, and imports its file: a server with the same data."""

    def fill_and_import(settings: dict[str, int | str]) -> Server:
        peer.start()
        with redis.Redis(port=peer.port) as client:
            for name, value in settings.items():
                client.config_set(name, value)
            fill(peer.port, random.Random(pytestconfig.getoption("seed")), keys)
            client.save()
        server = new_server()
        said = succeed("import", str(peer.directory / "dump.rdb"), "--dir", str(server.directory))
        assert f"imported     {3 * keys} keys" in said
        server.start()
        compare(peer, server, keys)
        return server

    return fill_and_import


@pytest.mark.parametrize("encodings", ["all-large", "all-packed"])
def test_a_file_of_other_encodings_arrives(arrived, encodings):
    arrived(ENCODINGS[encodings])


# The same data arrives under all settings, and so the same goes back: without --all, once is enough.
@pytest.mark.parametrize(
    "encodings", ["default", *(pytest.param(name, marks=pytest.mark.slow) for name in ("all-large", "all-packed"))]
)
def test_a_file_of_redis_arrives_and_goes_back(peer, arrived, new_server, tmp_path, encodings, keys):
    server = arrived(ENCODINGS[encodings])
    stop(server)
    back = Server(tmp_path / "back", PeerOptions())
    back.directory.mkdir()
    try:
        for version in ("10", "11", "12"):
            exported = back.directory / "dump.rdb"
            said = succeed("export", str(exported), "--dir", str(server.directory), "--rdb-version", version)
            assert f"exported     {3 * keys} keys" in said
            assert exported.read_bytes().startswith(f"REDIS00{version}".encode())
            if version != "10":
                again = new_server()
                succeed("import", str(exported), "--dir", str(again.directory))
                again.start()
                compare(peer, again, keys)
                stop(again)
        succeed("export", str(back.directory / "dump.rdb"), "--dir", str(server.directory))
        back.start()
        compare(peer, back, keys)
    finally:
        back.close()


def test_an_import_reports_expired_keys_and_libraries(peer, new_server):
    peer.start()
    with redis.Redis(port=peer.port) as client:
        client.set("expires", "soon", px=1)
        client.set("stays", "here")
        client.function_load("#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        client.save()
    server = new_server()
    said = succeed("import", str(peer.directory / "dump.rdb"), "--dir", str(server.directory))
    assert "expired      1 key, left out" in said and "functions    1 library\n" in said
    server.start()
    with redis.Redis(port=server.port) as client:
        assert client.keys() == [b"stays"] and client.fcall("f", 0) == 1


def test_a_directory_that_is_in_use_or_holds_keys_is_left_alone(peer, new_server):
    peer.start()
    with redis.Redis(port=peer.port) as client:
        client.set("key", "of redis")
        client.save()
    file, server = str(peer.directory / "dump.rdb"), new_server().start()
    directory = str(server.directory)
    with redis.Redis(port=server.port) as client:
        client.set("key", "of sheaf")
    for command in ("import", "export"):
        refused = run_sheaf(command, file, "--dir", directory)
        assert (refused.returncode, "is held by process" in refused.stderr) == (1, True), refused.stderr
    stop(server)
    refused = run_sheaf("import", file, "--dir", directory)
    assert (refused.returncode, "holds 1 key already" in refused.stderr) == (1, True), refused.stderr
    succeed("import", file, "--dir", directory, "--keep-existing")
    assert "of sheaf" in succeed("log", directory)
    succeed("import", file, "--dir", directory, "--replace-existing")
    server.start()
    with redis.Redis(port=server.port) as client:
        assert client.get("key") == b"of redis"


def test_a_part_of_an_import_is_not_served(new_server, tmp_path):
    server = new_server()
    file = tmp_path / "dump.rdb"
    file.write_bytes(b"REDIS0003\x00\x03key\x05value\xff")
    succeed("import", str(file), "--dir", str(server.directory))
    # In the state left by a killed import.
    mark = Path(server.directory) / "import-unfinished"
    mark.write_text("An import into this directory did not finish. It held no keys before.\n")
    options = Options()
    refused = run_sheaf(*options.command_line(server.directory, 0, 0)[1:])
    assert (refused.returncode, "run the same `sheaf import` again" in refused.stderr) == (1, True), refused.stderr
    assert run_sheaf("export", str(tmp_path / "out.rdb"), "--dir", str(server.directory)).returncode == 1
    file.write_bytes(b"REDIS0003\x00\x05other\x05value\xff")
    succeed("import", str(file), "--dir", str(server.directory))
    assert not mark.exists()
    server.start()
    with redis.Redis(port=server.port) as client:
        assert client.keys() == [b"other"]


def test_a_damaged_file_is_refused_with_its_place(new_server, tmp_path):
    server = new_server()
    file = tmp_path / "dump.rdb"
    file.write_bytes(b"REDIS0010\x00\x03key\x05value")
    refused = run_sheaf("import", str(file), "--dir", str(server.directory))
    assert refused.returncode == 1
    assert "at byte 20: the bytes end inside a value" in refused.stderr
    assert not list(Path(server.directory).glob("*.seg"))
