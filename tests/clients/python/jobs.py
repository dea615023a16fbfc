"""Two queues as applications write them with redis-py: one with acknowledgements, one with delayed jobs.

Used by test_queues.py, which kills the server under them.
"""

import redis


class ReliableQueue:
    """Jobs wait in `pending`; each worker moves them into a list of its own and removes them when they are
    done.

    Guarantee: a job that was pushed is done at least once; it is delivered again only if its worker died, or
    lost its connection, before its acknowledgement was answered.
    """

    PENDING, WORKERS = "pending", "workers"

    def __init__(self, client: redis.Redis, worker: str):
        self._client = client
        self._worker = worker
        self._taken = f"taken:{worker}"

    def push(self, job: bytes) -> None:
        """Adds a job; it is safe when this returns."""
        self._client.lpush(self.PENDING, job)

    def take(self, timeout_s: float) -> bytes | None:
        """The oldest job, or None if there is none within the timeout."""
        self._client.sadd(self.WORKERS, self._worker)
        return self._client.blmove(self.PENDING, self._taken, timeout_s, "RIGHT", "LEFT")

    def acknowledge(self, job: bytes) -> bool:
        """Removes a job that is done; True if it was there."""
        return self._client.lrem(self._taken, 1, job) == 1

    def retry_stale(self) -> int:
        """Requeues the jobs of all workers, which must have ended. Returns their number."""
        found = 0
        for worker in self._client.smembers(self.WORKERS):
            while self._client.lmove(b"taken:" + worker, self.PENDING, "RIGHT", "RIGHT") is not None:
                found += 1
        return found


class DelayedQueue:
    """Jobs wait in a sorted set by the time at which they are due; then they go to `ready`, then to `done`.

    Guarantee: a job is in exactly one of the three at any time.
    """

    DELAYED, READY, DONE = "delayed", "ready", "done"

    def __init__(self, client: redis.Redis):
        self._client = client

    def schedule(self, job: bytes, due: int) -> None:
        """Adds a job; it is safe when this returns."""
        self._client.zadd(self.DELAYED, {job: due})

    def move_due(self, now: int) -> int:
        """Moves the due jobs to `ready`. Returns their number; others may move jobs at the same time."""
        with self._client.pipeline() as pipe:
            try:
                pipe.watch(self.DELAYED)
                due = pipe.zrangebyscore(self.DELAYED, "-inf", now, start=0, num=10)
                pipe.multi()
                for job in due:
                    pipe.zrem(self.DELAYED, job)
                    pipe.rpush(self.READY, job)
                pipe.execute()
            except redis.WatchError:
                return 0
        return len(due)

    def finish_one(self) -> bytes | None:
        """Processes the oldest job that is ready, and records that it is done."""
        with self._client.pipeline() as pipe:
            try:
                pipe.watch(self.READY)
                job = pipe.lindex(self.READY, 0)
                if job is None:
                    return None
                pipe.multi()
                pipe.lrem(self.READY, 1, job)
                pipe.sadd(self.DONE, job)
                removed, added = pipe.execute()
            except redis.WatchError:
                return None
        assert (removed, added) == (1, 1), f"{job} was done twice"
        return job

    def places(self) -> list[set[bytes]]:
        """The jobs that are delayed, ready, done."""
        pipe = self._client.pipeline()
        pipe.zrange(self.DELAYED, 0, -1)
        pipe.lrange(self.READY, 0, -1)
        pipe.smembers(self.DONE)
        found = pipe.execute()
        assert len(found[1]) == len(set(found[1])), "a job is ready twice"
        return [set(part) for part in found]
