"""Deep pipelines, errors inside them, many connections at once, and asyncio."""

import asyncio
import threading

import pytest
import redis
import redis.asyncio

DEPTH = 100_000


@pytest.mark.slow
def test_a_hundred_thousand_writes_in_one_pipeline(client):
    pipe = client.pipeline(transaction=False)
    for number in range(DEPTH):
        pipe.set(f"k{number}", number)
    assert pipe.execute() == [True] * DEPTH
    assert client.dbsize() == DEPTH
    assert client.get(f"k{DEPTH - 1}") == str(DEPTH - 1).encode()


@pytest.mark.slow
def test_a_hundred_thousand_reads_of_a_kilobyte_in_one_pipeline(client):
    """A hundred megabytes of replies; redis-py reads none of them before it has sent everything."""
    client.set("k", "x" * 1024)
    pipe = client.pipeline(transaction=False)
    for _ in range(DEPTH):
        pipe.get("k")
    replies = pipe.execute()
    assert len(replies) == DEPTH
    assert set(replies) == {b"x" * 1024}


def test_replies_come_in_the_order_of_the_commands(client):
    pipe = client.pipeline(transaction=False)
    for number in range(2000):
        pipe.set("k", number)
        pipe.get("k")
        pipe.incr("n")
        pipe.echo(str(number))
    replies = pipe.execute()
    for number in range(2000):
        assert replies[number * 4 : number * 4 + 4] == [True, b"%d" % number, number + 1, b"%d" % number]


def test_an_error_disturbs_no_neighbour(client):
    client.set("text", "no number")
    pipe = client.pipeline(transaction=False)
    for number in range(300):
        pipe.set(f"k{number}", number)
        pipe.incr("text")
        pipe.execute_command("NOSUCH")
        pipe.incr("n")
    replies = pipe.execute(raise_on_error=False)
    assert [str(reply) for reply in replies[1::4]] == ["value is not an integer or out of range"] * 300
    assert all(isinstance(reply, redis.ResponseError) for reply in replies[2::4])
    assert replies[3::4] == list(range(1, 301))
    assert client.mget([f"k{number}" for number in range(300)]) == [b"%d" % number for number in range(300)]


def test_increments_of_many_connections_all_count(client, connect):
    clients = [connect() for _ in range(8)]

    def count(own):
        for _ in range(20):
            pipe = own.pipeline(transaction=False)
            for _ in range(50):
                pipe.incr("n")
            pipe.execute()

    threads = [threading.Thread(target=count, args=(own,)) for own in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == b"8000"


def test_transfers_between_keys_are_atomic(client, connect):
    """MSET changes all its keys at once for MGET, in any slots."""
    names = [f"account:{number}" for number in range(8)]
    client.mset({name: "0" for name in names})
    done = threading.Event()

    def write():
        own = connect()
        for round_number in range(1, 2000):
            own.mset({name: round_number for name in names})
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader = connect()
    while not done.is_set():
        seen = set(reader.mget(names))
        assert len(seen) == 1, seen
    thread.join()


def test_asyncio_connections_in_parallel(server, protocol):
    async def work():
        pool = redis.asyncio.ConnectionPool(port=server.port, protocol=protocol, max_connections=50)
        client = redis.asyncio.Redis(connection_pool=pool)

        async def one(number):
            await client.set(f"k{number}", number)
            await client.incr("n")
            return await client.get(f"k{number}")

        for first in range(0, 500, 50):
            batch = range(first, first + 50)
            assert await asyncio.gather(*map(one, batch)) == [b"%d" % number for number in batch]
        assert await client.get("n") == b"500"
        await client.aclose()
        await pool.disconnect()

    asyncio.run(work())


@pytest.mark.parametrize("value_bytes", [1, 100, 10_000])
def test_writes_and_reads_interleaved_over_many_keys(client, value_bytes):
    pipe = client.pipeline(transaction=False)
    for number in range(500):
        pipe.set(f"k{number}", b"%d:" % number + b"v" * value_bytes)
    for number in range(500):
        pipe.get(f"k{number}")
    replies = pipe.execute()
    assert replies[500:] == [b"%d:" % number + b"v" * value_bytes for number in range(500)]
