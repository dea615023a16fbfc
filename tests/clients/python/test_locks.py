"""Locks, rate limits and leases as applications build them from single commands."""

import threading
import uuid

from harness.waiting import wait_until


def test_only_one_gets_the_lock(connect):
    clients = [connect() for _ in range(10)]
    tokens = [uuid.uuid4().hex for _ in clients]
    won = [own.set("lock", token, nx=True, px=60_000) for own, token in zip(clients, tokens, strict=True)]
    assert won.count(True) == 1
    assert clients[0].get("lock").decode() == tokens[won.index(True)]


def test_a_lock_makes_read_modify_write_correct(connect):
    """Eight threads do read-modify-write without atomic commands; the lock makes it correct."""
    connect().set("balance", 0)

    def work():
        own = connect()
        for _ in range(10):
            token = uuid.uuid4().hex
            wait_until("the lock", lambda token=token: own.set("lock", token, nx=True, px=60_000))
            own.set("balance", int(own.get("balance")) + 1)
            assert own.getdel("lock") == token.encode()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connect().get("balance") == b"80"


def test_an_abandoned_lock_frees_itself(client):
    assert client.set("lock", "dead", nx=True, px=5) is True
    wait_until("the lease to end", lambda: client.set("lock", "next", nx=True, px=60_000))
    assert client.get("lock") == b"next"


def test_a_rate_limit_counts_within_its_window(client):
    allowed = 0
    for _ in range(20):
        count = client.incr("limit:user")
        if count == 1:
            client.expire("limit:user", 60)
        allowed += count <= 10
    assert allowed == 10
    assert 0 < client.ttl("limit:user") <= 60
