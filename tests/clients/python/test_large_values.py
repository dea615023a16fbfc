"""Values and keys of extreme sizes."""

import hashlib
import random

import pytest
import redis

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def block() -> bytes:
    """One MiB of random bytes."""
    return random.Random(1).randbytes(MIB)


def test_sixty_four_megabytes_come_back_unchanged(client, block):
    value = block * 64
    assert client.set("large", value) is True
    assert client.strlen("large") == len(value)
    assert hashlib.sha256(client.get("large")).digest() == hashlib.sha256(value).digest()
    assert client.getrange("large", 63 * MIB, 63 * MIB + 9) == block[:10]
    assert client.append("large", "tail") == len(value) + 4
    assert client.setrange("large", 5, "patch") == len(value) + 4
    assert client.getrange("large", 5, 9) == b"patch"
    assert client.getrange("large", -4, -1) == b"tail"
    assert client.copy("large", "copy") is True
    assert client.rename("copy", "renamed") is True
    assert client.strlen("renamed") == len(value) + 4
    assert client.unlink("large", "renamed") == 2
    assert client.ping() is True


def test_large_values_survive_a_crash(server, connect, block):
    expected = {f"k{size}": block * size for size in (1, 7, 8, 9, 17, 33)}
    for name, value in expected.items():
        connect().set(name, value)
    server.kill()
    server.start()
    for name, value in expected.items():
        assert connect().get(name) == value, name


def test_many_megabyte_values_in_one_pipeline(client, block):
    pipe = client.pipeline(transaction=False)
    for number in range(100):
        pipe.set(f"k{number}", block)
    assert pipe.execute() == [True] * 100
    pipe = client.pipeline(transaction=False)
    for number in range(100):
        pipe.get(f"k{number}")
    assert all(value == block for value in pipe.execute())


def test_one_command_with_many_large_values(client, block):
    names = [f"k{number}" for number in range(32)]
    assert client.mset({name: block for name in names}) is True
    assert client.mget(names) == [block] * 32


def test_large_keys(client, block):
    assert client.set(block, "v") is True
    assert client.get(block) == b"v"
    assert client.keys() == [block]
    assert client.delete(block) == 1


def test_every_length_around_the_sizes_that_matter(client):
    lengths = [edge + step for edge in (0, 44, 64, 128, 256, 4096, 16384, 65536) for step in range(-3, 4)]
    lengths = sorted({length for length in lengths if length >= 0})
    pipe = client.pipeline(transaction=False)
    for length in lengths:
        pipe.set(f"k{length}", "x" * length)
        pipe.get(f"k{length}")
    assert pipe.execute()[1::2] == [b"x" * length for length in lengths]


def test_proto_max_bulk_len_is_a_limit_for_arguments_and_results(client):
    client.config_set("proto-max-bulk-len", str(MIB))
    client.set("k", "x" * MIB)
    with pytest.raises(redis.ResponseError, match="string exceeds maximum allowed size"):
        client.append("k", "y")
    with pytest.raises(redis.ResponseError, match="string exceeds maximum allowed size"):
        client.setrange("k", MIB, "y")
    with pytest.raises((redis.ResponseError, redis.ConnectionError)):
        client.set("k", "x" * (MIB + 1))
    # That closed the connection; the pool may or may not have noticed by now.
    client.connection_pool.disconnect()
    assert client.strlen("k") == MIB
