"""Jobs in lists that only the holder of a redis-py lock may change, as a process (clients/queues/actor.py).

The lock is a key with a token and a time to live; redis-py releases and extends it by Lua scripts. Each
holder increments a fencing token. If the lock was held from the first to the last command, no other token was
given out meanwhile.
"""

import redis
from redis.exceptions import LockError

from clients.queues.actor import add, connect, main, say, stopping, until_answered

# The lock of a dead holder is free after this time. A stall of this length would repeat jobs beyond their bound.
TIMEOUT_S = 20
POLL_S = 0.005
# As many as a worker has places.
LISTS = 4


def names(place: int) -> tuple[str, str, str]:
    """The list, the lock and the fencing token of a place; all workers have the same places."""
    return f"todo:{place}", f"lock:{place}", f"token:{place}"


def produce(client: redis.Redis, numbers: range) -> None:
    """Adds jobs to the lists by turns."""
    for number in numbers:
        # The list shows whether an unanswered push was executed, as long as the job is there.
        todo, _, _ = names(number // numbers.step % LISTS)
        add(number, lambda todo=todo, number=number: client.rpush(todo, number))


def work(port: int, place: int) -> None:
    """Takes the lock for each job."""
    todo, lock_name, token_name = names(place)
    client = connect(port)
    tokens = [0]
    while not stopping.is_set():
        lock = client.lock(lock_name, timeout=TIMEOUT_S, sleep=POLL_S, blocking_timeout=1)
        try:
            if lock.acquire():
                section(client, lock, todo, token_name, tokens)
        except redis.ConnectionError:
            until_answered(lambda lock=lock: give_up(lock))


def section(client: redis.Redis, lock, todo: str, token_name: str, tokens: list[int]) -> None:
    """One job, by commands that are correct together only because of the lock."""
    token = client.incr(token_name)
    assert token > tokens[-1], f"token {token} after {tokens[-1]}"
    tokens[:] = [token]
    job = client.lindex(todo, 0)
    if job is not None:
        say("ran", int(job))
        lock.extend(TIMEOUT_S, replace_ttl=True)
        removed = client.lrem(todo, 1, job)
    newest = int(client.get(token_name))
    try:
        lock.release()
    except LockError:
        # It took longer than the lock lasts.
        return
    assert newest == token, f"token {newest} was given out while the holder of {token} had the lock"
    if job is not None:
        assert removed == 1, f"job {job} was removed by somebody without the lock"
        say("completed", int(job))


def give_up(lock) -> None:
    """Releases the lock if it is ours."""
    try:
        lock.release()
    except LockError:
        return


if __name__ == "__main__":
    main(produce, work)
