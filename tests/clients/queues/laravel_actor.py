"""A queue like Laravel's, as a process (clients/queues/actor.py).

A list of jobs, a sorted set of delayed jobs, and a sorted set of reserved jobs with the time at which each is
given to another worker. Lua moves jobs between them; payloads are JSON, which Lua reads and writes.
"""

import json
import time

import redis

from clients.queues.actor import add, connect, main, say, stopping, until_answered

# A stall of this length would repeat jobs beyond their bound.
RETRY_AFTER_S = 20
POLL_S = 1
READY, DELAYED, RESERVED, NOTIFY = "queues:default", "queues:default:delayed", "queues:default:reserved", "queues:notify"

PUSH = """
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], 1)
return redis.call('LLEN', KEYS[1])
"""

# Due jobs go to the end of the list, a hundred at once: `unpack` is limited by Lua's stack.
MOVE_DUE = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 500)
if #due == 0 then return due end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1)
for first = 1, #due, 100 do
    local last = math.min(first + 99, #due)
    redis.call('RPUSH', KEYS[2], unpack(due, first, last))
    for _ = first, last do redis.call('RPUSH', KEYS[3], 1) end
end
return due
"""

RESERVE = """
local payload = redis.call('LPOP', KEYS[1])
if not payload then return {false, false} end
local job = cjson.decode(payload)
job['attempts'] = job['attempts'] + 1
local reserved = cjson.encode(job)
redis.call('ZADD', KEYS[2], ARGV[1], reserved)
redis.call('LPOP', KEYS[3])
return {payload, reserved}
"""

RELEASE = """
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]) end
return true
"""


def payload(number: int) -> str:
    """A job as the application makes it."""
    return json.dumps({"job": "count", "id": f"job-{number}", "data": {"number": number}, "attempts": 0})


def produce(client: redis.Redis, numbers: range) -> None:
    """Every tenth job is due a little later."""
    push = client.register_script(PUSH)
    for number in numbers:
        if number % 10 == 1:
            add(number, lambda number=number: client.zadd(DELAYED, {payload(number): time.time() + 0.05}))
        else:
            add(number, lambda number=number: push(keys=[READY, NOTIFY], args=[payload(number)]))


def work(port: int, _place: int) -> None:
    """Reserves jobs and deletes those that are done."""
    client = connect(port)
    move_due, reserve, release = map(client.register_script, (MOVE_DUE, RESERVE, RELEASE))

    def one_job() -> None:
        for later in (DELAYED, RESERVED):
            move_due(keys=[later, READY, NOTIFY], args=[time.time()])
        _, reserved = reserve(keys=[READY, RESERVED, NOTIFY], args=[time.time() + RETRY_AFTER_S])
        if reserved is None:
            client.blpop([NOTIFY], POLL_S)
            return
        job = json.loads(reserved)
        number = job["data"]["number"]
        if number % 50 == 0 and job["attempts"] == 1:
            release(keys=[RESERVED, DELAYED], args=[reserved, time.time()])
            return
        say("ran", number)
        # A reservation older than RETRY_AFTER_S has ended.
        if client.zrem(RESERVED, reserved) == 1:
            say("completed", number)

    while not stopping.is_set():
        # A job in progress when the connection is lost stays reserved, and is delivered again.
        until_answered(one_job)


if __name__ == "__main__":
    main(produce, work)
