"""Takes 25 from an account in 200 payments. Each is sent until there is a reply, and happens once: kill the server
meanwhile, and start it again.
"""

import os
import time
import uuid

import redis

HOST, PORT = os.environ.get("REDIS_ADDRESS", "127.0.0.1:6379").split(":")
DAY_MS = 86_400_000
PAYMENTS = 200


def once(client: redis.Redis, *command: str | int) -> object:
    """Runs a command once, however many attempts it takes."""
    # One for each thing to be done, not for each attempt.
    key = f"once:{uuid.uuid4()}"
    while True:
        try:
            return client.execute_command("IDEMP", key, DAY_MS, *command)
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            # Nobody knows whether it has run. The same key is sent again, so it does not matter.
            time.sleep(0.1)


client = redis.Redis(host=HOST, port=int(PORT), decode_responses=True)
account = f"account:{uuid.uuid4()}"
once(client, "SET", account, PAYMENTS * 25)
for number in range(PAYMENTS):
    rest = once(client, "DECRBY", account, 25)
    assert rest == (PAYMENTS - number - 1) * 25, f"a payment was lost, or happened twice: {rest}"
print(f"{PAYMENTS} payments, rest {rest}")
