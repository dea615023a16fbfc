"""Commands that wait, through redis-py."""

import threading

import pytest
import redis

from harness.waiting import wait_until

PATIENCE_S = 60


class Waiting:
    """A call on a thread, with a connection of its own."""

    def __init__(self, connect, call):
        self._own = connect()
        self.reply = self.error = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call) -> None:
        try:
            self.reply = call(self._own)
        except redis.RedisError as error:
            self.error = error

    def result(self):
        """The reply, once it is there."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "still waiting"
        return self.reply


@pytest.fixture
def waiting(client, connect):
    """Starts a call that has to wait, and returns when the server has it waiting."""
    started = []

    def start(call) -> Waiting:
        found = Waiting(connect, call)
        started.append(found)
        wait_until("the client to be blocked", lambda: client.info("clients")["blocked_clients"] == len(started))
        return found

    return start


@pytest.mark.parametrize(
    ("call", "feed", "reply"),
    [
        (lambda own: own.blpop(["a", "b"], 0), lambda client: client.rpush("b", "1", "2"), [b"b", b"1"]),
        (lambda own: own.brpop("a", 0), lambda client: client.rpush("a", "1", "2"), [b"a", b"2"]),
        (lambda own: own.blmove("a", "t", 0, "LEFT", "RIGHT"), lambda client: client.rpush("a", "1"), b"1"),
        (lambda own: own.brpoplpush("a", "t", 0), lambda client: client.rpush("a", "1"), b"1"),
        (
            lambda own: own.blmpop(0, 2, "a", "b", direction="LEFT", count=5),
            lambda client: client.rpush("b", "1", "2"),
            [b"b", [b"1", b"2"]],
        ),
    ],
    ids=["blpop", "brpop", "blmove", "brpoplpush", "blmpop"],
)
def test_a_push_serves_who_waits(client, waiting, call, feed, reply):
    waiter = waiting(call)
    feed(client)
    found = waiter.result()
    assert (list(found) if isinstance(found, tuple) else found) == reply


def test_a_sorted_set_serves_who_waits(client, waiting):
    waiter = waiting(lambda own: own.bzpopmin(["y", "z"], 0))
    client.zadd("z", {"b": 2, "a": 1})
    key, member, score = waiter.result()
    assert (key, member, float(score)) == (b"z", b"a", 1.0)
    assert client.zrange("z", 0, -1) == [b"b"]


def test_nothing_comes_in_time(client):
    assert client.blpop("missing", 0.01) is None
    assert client.bzpopmax("missing", 0.01) is None
    assert client.blmove("missing", "t", 0.01) is None


def test_who_came_first_is_served_first(client, waiting):
    waiters = [waiting(lambda own: own.blpop("l", 0)) for _ in range(4)]
    client.rpush("l", *"abcd")
    assert [waiter.result()[1] for waiter in waiters] == [b"a", b"b", b"c", b"d"]


def test_a_transaction_serves_when_it_is_over(client, waiting):
    waiter = waiting(lambda own: own.blpop("l", 0))
    pipe = client.pipeline()
    pipe.rpush("l", "first").lpush("l", "before").llen("l")
    assert pipe.execute() == [1, 2, 2]
    assert waiter.result()[1] == b"before"
    assert client.lrange("l", 0, -1) == [b"first"]


def test_a_key_of_another_type_wakes_nobody(client, waiting):
    waiter = waiting(lambda own: own.blpop("l", 0))
    client.set("l", "text")
    client.delete("l")
    client.rpush("l", "a")
    assert waiter.result()[1] == b"a"


@pytest.mark.parametrize("with_error", [False, True], ids=["as if the time were up", "with an error"])
def test_unblocking_by_hand(client, waiting, with_error):
    waiter = waiting(lambda own: own.blpop("l", 0))
    [blocked] = [found for found in client.client_list() if found["cmd"] == "blpop"]
    assert client.client_unblock(blocked["id"], with_error) == 1
    assert waiter.result() is None
    expected = "UNBLOCKED client unblocked via CLIENT UNBLOCK" if with_error else "None"
    assert str(waiter.error).startswith(expected)
