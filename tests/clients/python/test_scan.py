"""SCAN and its guarantee: elements that exist from the first to the last call are returned."""

import threading

import pytest
import redis


def _fill(client, names):
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, "v")
        pipe.execute()


def test_scan_finds_everything_once_at_rest(client):
    names = [f"key:{number}".encode() for number in range(5000)]
    _fill(client, names)
    found = list(client.scan_iter(count=100))
    assert sorted(found) == sorted(names)


def test_scan_of_nothing(client):
    cursor, keys = client.scan()
    assert (int(cursor), keys) == (0, [])


def test_match_and_type(client):
    _fill(client, [f"a:{number}" for number in range(50)] + [f"b:{number}" for number in range(50)])
    assert len(list(client.scan_iter(match="a:*"))) == 50
    assert set(client.scan_iter(match="b:[12]")) == {b"b:1", b"b:2"}
    assert len(list(client.scan_iter(_type="string"))) == 100
    assert list(client.scan_iter(_type="hash")) == []


def test_count_is_a_hint_that_bounds_a_call(client):
    _fill(client, [f"k{number}" for number in range(10_000)])
    cursor, keys = client.scan(count=10)
    assert int(cursor) != 0
    assert len(keys) < 1000


def test_scan_of_one_database(client, connect):
    client.set("here", "v")
    connect(db=7).set("there", "v")
    assert list(client.scan_iter()) == [b"here"]
    assert list(connect(db=7).scan_iter()) == [b"there"]


def test_keys_that_stay_are_found_while_others_come_and_go(client, connect):
    staying = {f"stay:{number}".encode() for number in range(3000)}
    _fill(client, staying)
    done = threading.Event()

    def churn():
        """Grows the tables far beyond their size, and shrinks them again."""
        other = connect()
        first = 0
        while not done.is_set():
            names = [f"churn:{number}" for number in range(first, first + 500)]
            _fill(other, names)
            if first % 4 == 0:
                other.delete(*names)
            first += 500

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            assert staying <= set(client.scan_iter(match="stay:*", count=50))
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("x",), "invalid cursor"),
        (("0", "COUNT", "0"), "syntax error"),
        (("0", "COUNT", "x"), "value is not an integer or out of range"),
        (("0", "LIMIT", "1"), "syntax error"),
        (("0", "MATCH"), "syntax error"),
    ],
)
def test_scan_refuses(client, arguments, text):
    with pytest.raises(redis.ResponseError) as refused:
        client.execute_command("SCAN", *arguments)
    assert str(refused.value) == text
