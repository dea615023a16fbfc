"""A stream with a consumer group as a queue, as a process (clients/queues/actor.py).

Each thread is a consumer. After a lost connection it reads again the entries that were delivered to it and
not acknowledged; entries pending for too long are claimed by another consumer. A finished job is acknowledged
and deleted in one transaction.
"""

import os

import redis

from clients.queues.actor import add, connect, main, say, stopping, until_answered

STREAM, GROUP = "jobs", "workers"
CLAIM_AFTER_MS = 20_000
BLOCK_MS = 200


def produce(client: redis.Redis, numbers: range) -> None:
    """Adds an entry per job."""
    for number in numbers:
        add(number, lambda number=number: client.xadd(STREAM, {"number": number}))


def create_group(client: redis.Redis) -> None:
    """Creates the group, from the first entry on, unless it exists."""
    try:
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    except redis.ResponseError as refused:
        assert str(refused).startswith("BUSYGROUP")


def work(port: int, place: int) -> None:
    """Reads, runs, acknowledges."""
    consumer = f"{os.getpid()}-{place}"
    client = connect(port)
    until_answered(lambda: create_group(client))

    def one_job(start: str) -> bool:
        """Runs the next of this consumer's jobs, or a new one for ">"; False if there is none."""
        for _, entries in client.xreadgroup(GROUP, consumer, {STREAM: start}, count=1, block=BLOCK_MS) or []:
            for entry, fields in entries:
                run(entry, fields)
                return True
        return False

    def run(entry: str, fields: dict[str, str]) -> None:
        number = int(fields["number"])
        say("ran", number)
        with client.pipeline(transaction=True) as transaction:
            acknowledged, _ = transaction.xack(STREAM, GROUP, entry).xdel(STREAM, entry).execute()
        if acknowledged:
            say("completed", number)

    def own_jobs() -> None:
        """Its entries that were delivered and not acknowledged, or whose acknowledgement got no answer."""
        while one_job("0"):
            pass

    while not stopping.is_set():
        try:
            client.xautoclaim(STREAM, GROUP, consumer, CLAIM_AFTER_MS, count=1)
            own_jobs()
            one_job(">")
        except redis.ConnectionError:
            until_answered(client.ping)


if __name__ == "__main__":
    main(produce, work)
