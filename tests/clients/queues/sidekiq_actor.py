"""A queue like Sidekiq's, as a process (clients/queues/actor.py).

A list of jobs, and a sorted set of delayed ones, from which Lua moves them. Each thread moves jobs into a
list of its own; the lists of a process without a heartbeat are requeued. A lock per job, which Lua sets and
releases, makes waiting jobs unique; a sliding window, by the server's clock, limits their rate.
"""

import json
import os
import threading
import time

import redis

from clients.queues.actor import add, connect, main, say, stopping, until_answered

QUEUE, SCHEDULE, PROCESSES, WINDOW = "queue:default", "schedule", "processes", "rate:default"
UNIQUE_S = 3600
HEARTBEAT_S, DEAD_AFTER_MS = 0.5, 20_000
RATE, WINDOW_US = 200, 100_000
BLOCK_S = 0.2

# Adding a job again that still waits has no effect.
PUSH_UNIQUE = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[4]) then return 0 end
if ARGV[3] == '0' then redis.call('LPUSH', KEYS[2], ARGV[2]) else redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2]) end
return 1
"""

MOVE_DUE = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)[1]
if not due then return 0 end
redis.call('ZREM', KEYS[1], due)
redis.call('LPUSH', KEYS[2], due)
return 1
"""

ALLOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return 1
"""

LATER = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]) end
return 1
"""

DONE = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('DEL', KEYS[2]) end
return 1
"""

# The keys of dead processes are not declared: the script itself finds the dead processes.
GIVE_BACK_OF_THE_DEAD = """
local found = 0
for _, process in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    if redis.call('EXISTS', 'heartbeat:' .. process) == 0 then
        for place = 0, ARGV[1] - 1 do
            while redis.call('RPOPLPUSH', 'private:' .. process .. ':' .. place, KEYS[2]) do found = found + 1 end
        end
        redis.call('SREM', KEYS[1], process)
    end
end
return found
"""

PLACES_MAX = 16


def produce(client: redis.Redis, numbers: range) -> None:
    """Every tenth job is due a little later."""
    push = client.register_script(PUSH_UNIQUE)
    for number in numbers:
        due = time.time() + 0.05 if number % 10 == 1 else 0
        job_id = f"{os.getpid()}-{number}"
        job = json.dumps({"class": "Count", "args": [number], "jid": job_id, "queue": "default"})
        keys, arguments = [f"unique:{number}", QUEUE, SCHEDULE], [job_id, job, due, UNIQUE_S]
        add(number, lambda keys=keys, arguments=arguments: push(keys=keys, args=arguments))


def heartbeat(client: redis.Redis, process: str) -> None:
    """Refreshes the heartbeat of the process, and requeues the jobs of dead processes."""
    give_back = client.register_script(GIVE_BACK_OF_THE_DEAD)
    while not stopping.is_set():
        try:
            client.set(f"heartbeat:{process}", 1, px=DEAD_AFTER_MS)
            client.sadd(PROCESSES, process)
            give_back(keys=[PROCESSES, QUEUE], args=[PLACES_MAX])
        except redis.ConnectionError:
            continue
        finally:
            stopping.wait(HEARTBEAT_S)


def work(port: int, place: int) -> None:
    """Takes jobs and runs them."""
    process = str(os.getpid())
    private = f"private:{process}:{place}"
    client = connect(port)
    move_due, allow, later, done = map(client.register_script, (MOVE_DUE, ALLOW, LATER, DONE))
    if place == 0:
        threading.Thread(target=heartbeat, args=(connect(port), process), daemon=True).start()

    def one_job() -> None:
        while move_due(keys=[SCHEDULE, QUEUE], args=[time.time()]):
            pass
        job = client.blmove(QUEUE, private, BLOCK_S, "RIGHT", "LEFT")
        if job is None:
            return
        found = json.loads(job)
        number = found["args"][0]
        if not allow(keys=[WINDOW], args=[RATE, WINDOW_US, found["jid"]]):
            later(keys=[private, SCHEDULE], args=[job, time.time() + 0.05])
            return
        say("ran", number)
        if done(keys=[private, f"unique:{number}"], args=[job, found["jid"]]):
            say("completed", number)

    def give_back_own() -> None:
        while client.lmove(private, QUEUE, "RIGHT", "RIGHT"):
            pass

    while not stopping.is_set():
        try:
            one_job()
        except redis.ConnectionError:
            until_answered(give_back_own)


if __name__ == "__main__":
    main(produce, work)
