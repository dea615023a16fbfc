"""Commands that wait, through redis-py."""

import random
import threading

import pytest
import redis

from harness.resp import encode
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
        """The reply, once it has arrived."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "still waiting"
        return self.reply


@pytest.fixture
def waiting(client, connect):
    """Starts a call that has to wait, and returns when the server has blocked it."""
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
def test_a_push_serves_a_waiter(client, waiting, call, feed, reply):
    waiter = waiting(call)
    feed(client)
    found = waiter.result()
    assert (list(found) if isinstance(found, tuple) else found) == reply


def test_a_sorted_set_serves_a_waiter(client, waiting):
    waiter = waiting(lambda own: own.bzpopmin(["y", "z"], 0))
    client.zadd("z", {"b": 2, "a": 1})
    key, member, score = waiter.result()
    assert (key, member, float(score)) == (b"z", b"a", 1.0)
    assert client.zrange("z", 0, -1) == [b"b"]


def test_a_wait_without_a_push_times_out(client):
    assert client.blpop("missing", 0.01) is None
    assert client.bzpopmax("missing", 0.01) is None
    assert client.blmove("missing", "t", 0.01) is None


def test_waiters_are_served_in_order(client, waiting):
    waiters = [waiting(lambda own: own.blpop("l", 0)) for _ in range(4)]
    client.rpush("l", *"abcd")
    assert [waiter.result()[1] for waiter in waiters] == [b"a", b"b", b"c", b"d"]


def test_a_transaction_serves_waiters_at_its_end(client, waiting):
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


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        pytest.param(("WAIT", 3, 0), 0, id="WAIT"),
        pytest.param(("WAITAOF", 0, 3, 0), [1, 0], id="WAITAOF", marks=pytest.mark.sheaf_only),
        pytest.param(("WAITLSN", 1 << 60, 0), 0, id="WAITLSN", marks=pytest.mark.sheaf_only),
    ],
)
def test_a_wait_for_a_position_is_a_blocked_command(client, waiting, words, reply):
    def listed():
        return [found for found in client.client_list() if found["cmd"] == words[0].lower()]

    client.set("k", "v")
    waiter = waiting(lambda own: own.execute_command(*words))
    [blocked] = listed()
    assert "b" in blocked["flags"]
    assert client.client_unblock(blocked["id"]) == 1
    assert waiter.result() == reply
    # The connection is used further, and no longer blocked.
    assert client.client_unblock(blocked["id"]) == 0 and blocked_clients(client) == 0
    failed = Waiting(lambda: waiter._own, lambda own: own.execute_command(*words))
    wait_until("the client to be blocked", lambda: blocked_clients(client) == 1)
    assert client.client_unblock(blocked["id"], error=True) == 1
    assert failed.result() is None
    assert str(failed.error) == "UNBLOCKED client unblocked via CLIENT UNBLOCK"
    assert blocked_clients(client) == 0


def blocked_clients(client) -> int:
    """The number of blocked clients."""
    return client.info("clients")["blocked_clients"]


def test_a_waiter_is_listed(client, waiting):
    waiter = waiting(lambda own: own.blpop(["a", "b", "a"], 0))
    [shown] = [found for found in client.client_list() if found["cmd"] == "blpop"]
    assert shown["flags"] == "b"
    client.rpush("b", "x")
    assert waiter.result()[1] == b"x"
    assert blocked_clients(client) == 0


def test_commands_behind_a_blocked_one_wait(client, server):
    with server.connect() as own:
        own.send(encode("BLPOP", "l", 0) + encode("LLEN", "l") + encode("BLPOP", "l", 0) + encode("PING"))
        wait_until("the client to be blocked", lambda: blocked_clients(client) == 1)
        own.send(encode("LLEN", "l"))
        client.rpush("l", "a", "b", "c")
        assert [own.read() for _ in range(5)] == [[b"l", b"a"], 2, [b"l", b"b"], b"PONG", 1]


def test_a_client_that_hangs_up_waits_no_more(client, server):
    own = server.connect()
    own.send(encode("BLPOP", "l", 0) + encode("PING"))
    wait_until("the client to be blocked", lambda: blocked_clients(client) == 1)
    own.close()
    wait_until("the client to be gone", lambda: blocked_clients(client) == 0)
    assert client.rpush("l", "a") == 1
    assert client.lrange("l", 0, -1) == [b"a"]


def test_a_client_that_is_killed_gets_nothing(client, server):
    with server.connect() as own:
        number = own.call("CLIENT", "ID")
        own.send(encode("BZPOPMIN", "z", 0))
        wait_until("the client to be blocked", lambda: blocked_clients(client) == 1)
        assert client.client_kill_filter(_id=str(number)) == 1
        assert client.zadd("z", {"a": 1}) == 1
        assert client.zcard("z") == 1


def test_a_marker_wakes_a_worker_of_a_queue(client, connect):
    """As in BullMQ: jobs are in lists, and an idle worker waits for a member of a sorted set."""
    jobs = 300
    done = []

    def work() -> None:
        own = connect()
        while len(done) < jobs:
            while (job := own.rpoplpush("wait", "active")) is not None:
                done.append(job)
            if len(done) < jobs:
                own.bzpopmin("marker", 0)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    for number in range(jobs):
        pipe = client.pipeline()
        pipe.lpush("wait", number).zadd("marker", {"0": 0})
        pipe.execute()
    worker.join(PATIENCE_S)
    assert not worker.is_alive()
    assert done == [b"%d" % number for number in range(jobs)]


def test_many_clients_wait_in_one_order(client, server):
    """The waiting clients are on several workers, and so are the pushing ones."""
    owns = [server.connect() for _ in range(40)]
    for count, own in enumerate(owns, start=1):
        own.send(encode("BLPOP", "other", "l", 0))
        wait_until("the client to be blocked", lambda count=count: blocked_clients(client) == count)
    with server.connect() as first, server.connect() as second:
        for number in range(0, len(owns), 2):
            first.call("RPUSH", "l", number)
            second.call("RPUSH", "l", number + 1)
    assert [own.read() for own in owns] == [[b"l", b"%d" % number] for number in range(len(owns))]
    for own in owns:
        own.close()


CROWD, POPS_EACH, QUEUES, PUSHERS = 1000, 5, 10, 4


def test_a_crowd_gets_every_element_once(new_server, request):
    """Clients that wait for several lists each, while others push from several connections."""
    server = new_server(workers=4).start()
    chance = random.Random(request.config.getoption("seed"))
    queues = [f"queue:{number}" for number in range(QUEUES)]
    total = CROWD * POPS_EACH
    with server.connect() as connection:
        owns = []
        for _ in range(CROWD):
            own = server.connect()
            pops = []
            for _ in range(POPS_EACH):
                some = chance.sample(queues, QUEUES)
                pops.append(encode(chance.choice(["BLPOP", "BRPOP"]), *some, 0))
            own.send(b"".join(pops))
            owns.append(own)
        wait_until("the crowd to be blocked", lambda: b"blocked_clients:%d\r" % CROWD in connection.call("INFO", "clients"))

        def push(pusher: int) -> None:
            draw = random.Random(pusher)
            with server.connect() as own:
                number = pusher
                while number < total:
                    # As many as fit, so that all pushers together push every number once.
                    some = list(range(number, min(total, number + PUSHERS * draw.randint(1, 3)), PUSHERS))
                    number = some[-1] + PUSHERS
                    own.call(draw.choice(["LPUSH", "RPUSH"]), draw.choice(queues), *some)

        pushers = [threading.Thread(target=push, args=(pusher,), daemon=True) for pusher in range(PUSHERS)]
        for thread in pushers:
            thread.start()
        popped = []
        for own in owns:
            for _ in range(POPS_EACH):
                popped.append(int(own.read()[1]))
        for thread in pushers:
            thread.join(PATIENCE_S)
        assert sorted(popped) == list(range(total))
        assert connection.call("DBSIZE") == 0
        assert b"blocked_clients:0\r" in connection.call("INFO", "clients")
        for own in owns:
            own.close()
