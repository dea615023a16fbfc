"""Blocked clients and the commands that serve them: the same clients get the same values in Redis and in
Sheaf.

Each round has several clients that block one after another, and then commands that push, move and push in
transactions. Every reply that Redis sends to a blocked client, and the data at the end, must be the same in
Sheaf.

Since 7.2, Redis looks at the keys of a woken client from the first one on; Sheaf, as 7.0, serves it from the key
that was filled (docs/compatibility.md). So beside newer servers a client that waits names one key.
"""

import select
from random import Random

import pytest

from differential import state
from differential.draw import Draw
from differential.peers import PeerOptions
from differential.reply import Wire, shown
from harness.resp import encode
from harness.server import Server
from harness.waiting import wait_until

ROUNDS = 60
# The version of Redis since which the keys of a woken client are looked at in order.
SINCE_KEYS_IN_ORDER = (7, 2)
CLIENTS = 5
LISTS, SORTED_SETS = ("l1", "l2", "l3"), ("z1", "z2")
MEMBERS = tuple("abcdefgh")


def waiting_command(draw: Draw, keys_max: int) -> list:
    """A command that waits for ever, for one or two keys."""
    first, second = (draw.one(LISTS) for _ in range(2))
    lists = (first, second)[:keys_max]
    keys = draw.many(lambda: draw.one(SORTED_SETS), 1, keys_max)
    return draw.one(
        (
            ["BLPOP", *lists, 0],
            ["BRPOP", *lists, 0],
            ["BLMOVE", first, second, "LEFT", "RIGHT", 0],
            ["BRPOPLPUSH", first, second, 0],
            ["BLMPOP", 0, len(lists), *lists, "LEFT", "COUNT", draw.number(1, 3)],
            ["BZPOPMIN", *keys, 0],
            ["BZPOPMAX", *keys, 0],
            ["BZMPOP", 0, len(keys), *keys, "MIN", "COUNT", draw.number(1, 3)],
        )
    )


def serving_command(draw: Draw) -> list:
    """A command that may serve a blocked client."""
    some = draw.many(lambda: draw.one(MEMBERS), 1, 4)
    return draw.one(
        (
            ["RPUSH", draw.one(LISTS), *some],
            ["LPUSH", draw.one(LISTS), *some],
            ["ZADD", draw.one(SORTED_SETS), *(part for member in some for part in (draw.number(0, 9), member))],
            ["LMOVE", draw.one(LISTS), draw.one(LISTS), "LEFT", "RIGHT"],
            ["RENAME", draw.one(("spare", "sorted")), draw.one(LISTS)],
            ["RPUSH", "spare", *some],
            # Never over a string: Redis 7.0 does not wake clients that wait for a key that is overwritten.
            ["SORT", "spare", "ALPHA", "STORE", LISTS[0]],
            ["COPY", "spare", draw.one(LISTS), "REPLACE"],
            ["ZUNIONSTORE", draw.one(SORTED_SETS), 2, *SORTED_SETS],
            ["LPOP", draw.one(LISTS)],
            ["DEL", draw.one(LISTS)],
            ["SET", draw.one(LISTS[1:]), "text"],
        )
    )


def serving_batch(draw: Draw) -> list[list]:
    """One command, or several in a transaction."""
    if draw.chance(0.6):
        return [serving_command(draw)]
    return [["MULTI"], *(serving_command(draw) for _ in range(draw.number(1, 4))), ["EXEC"]]


class Side:
    """One of the two servers in one round."""

    def __init__(self, server: Server, protocol: int):
        self._control = Wire(server.port, protocol)
        self._waiting = {client: Wire(server.port, protocol) for client in range(CLIENTS)}
        self._control.call("FLUSHALL")

    def wait_with(self, client: int, command: list) -> None:
        """Sends a command that has to wait, and returns when the server has blocked it."""
        self._waiting[client].send(encode(*command))
        wait_until("one more blocked client", lambda: self.blocked() == client + 1)

    def blocked(self) -> int:
        """The number of blocked clients."""
        fields = self._control.call("INFO", "clients")[1].decode().split("\r\n")
        return int(next(field.partition(":")[2] for field in fields if field.startswith("blocked_clients:")))

    def serve(self, commands: list[list]) -> list[str]:
        """The replies to commands that do not wait."""
        return [shown(reply) for reply in self._control.calls([tuple(command) for command in commands])]

    def reply_of(self, client: int) -> str:
        """The reply to the blocked command, once it has arrived."""
        return shown(self._waiting[client].read())

    def served(self) -> list[int]:
        """The served clients: the server has sent to them before it answers on this connection."""
        ready, _, _ = select.select([wire.socket for wire in self._waiting.values()], [], [], 0)
        return [client for client, wire in self._waiting.items() if wire.socket in ready]

    def close(self) -> None:
        """Closes all connections."""
        for wire in (self._control, *self._waiting.values()):
            wire.close()


@pytest.fixture
def servers(new_server, server, tmp_path, compared_with) -> tuple[Server, Server]:
    """Redis, and the server under test."""
    redis = new_server(tmp_path / "redis")
    redis.options = PeerOptions(peer=compared_with)
    return redis.start(), server


def test_waiters_get_the_same_replies_from_both(servers, protocol, compared_with, request):
    seed = request.config.getoption("seed")
    keys_max = 2 if compared_with.level < SINCE_KEYS_IN_ORDER else 1
    for number in range(ROUNDS):
        draw = Draw(Random(f"{seed}/{number}/{protocol}"))
        waits = [waiting_command(draw, keys_max) for _ in range(CLIENTS)]
        batches = [serving_batch(draw) for _ in range(12)]
        story = "\n".join(map(str, [f"--seed {seed}, round {number}", *waits, *batches]))
        play(servers, protocol, waits, batches, story)


def play(servers: tuple[Server, Server], protocol: int, waits: list[list], batches: list[list], story: str) -> None:
    """One round on both."""
    redis, sheaf = sides = [Side(server, protocol) for server in servers]
    try:
        for side in sides:
            for client, command in enumerate(waits):
                side.wait_with(client, command)
        left = set(range(CLIENTS))
        for batch in batches:
            assert redis.serve(batch) == sheaf.serve(batch), story
            wait_until(
                f"as many blocked clients as in Redis, {redis.blocked()}, after {batch}\n{story}",
                lambda: redis.blocked() == sheaf.blocked(),
            )
            for client in set(redis.served()) & left:
                assert redis.reply_of(client) == sheaf.reply_of(client), f"client {client}\n{story}"
                left.remove(client)
        found = state.first_difference(*(state.held(server.port) for server in servers))
        assert found is None, f"{found}\n{story}"
    finally:
        for side in sides:
            side.close()
