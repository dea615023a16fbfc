"""Channels: messages to every client, and replies to every command, are the same in Redis and in Sheaf.

Clients subscribe, unsubscribe, publish, and query, one after the other. The output of Redis to the acting
client, and to all others because of it, must come from Sheaf as well: replies in their order; messages and
the confirmations of subscriptions in theirs. A message may follow a reply that it precedes in Redis
(docs/compatibility.md).
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from differential.draw import Draw
from differential.peers import PeerOptions
from differential.reply import Tree, Wire, children, shown
from harness.resp import Closed, encode
from harness.server import Server
from harness.waiting import wait_until

ROUNDS = 40
STEPS = 80
LISTENERS = 4
# The last client never subscribes, so it may publish in transactions: those of subscribers differ, as
# documented.
CLIENTS = LISTENERS + 1
PUBLISHER = LISTENERS

# Not the empty name: `*` matches it in Sheaf only.
CHANNELS = (b"a", b"b", b"ab", b"news", b"\x00\xff\r\n", b"a b", b"x" * 5000)
PATTERNS = (b"*", b"a*", b"*b", b"[ab]", b"?", b"news", b"", b"[", b"[^", b"[^a]", b"\\", b"a\\", b"[a-", b"[b-a]", b"**")
STRANGE_PATTERNS = (b"*?" * 20, b"[" * 300, b"\\*", b"[]", b"[^]", b"x*x", b"a\\b", b"\x00*")
PAYLOADS = (b"", b"x", b"two words", b"\r\n", b"y" * 3000)

MESSAGES = (b"message", b"pmessage", b"smessage")
CONFIRMATIONS = tuple(f"{kind}{verb}".encode() for kind in ("", "p", "s") for verb in ("subscribe", "unsubscribe"))


@dataclass
class Step:
    """The commands that one client sends at once."""

    client: int
    commands: list[list]
    # Listed names have no order.
    unordered: bool = False

    def __str__(self) -> str:
        return f"client {self.client}: {'; '.join(' '.join(map(repr, command)) for command in self.commands)}"[:200]


# ---- drawing --------------------------------------------------------------------------------------------


def channels(draw: Draw) -> list[bytes]:
    """One or more names."""
    return draw.many(lambda: draw.one(CHANNELS), 1, 4)


def patterns(draw: Draw) -> list[bytes]:
    """One or more patterns."""
    return draw.many(lambda: draw.one(PATTERNS if draw.chance(0.8) else STRANGE_PATTERNS), 1, 3)


def publication(draw: Draw) -> list:
    """A message for a channel, mostly."""
    return [draw.one(("PUBLISH", "PUBLISH", "PUBLISH", "SPUBLISH")), draw.one(CHANNELS), draw.one(PAYLOADS)]


def subscription(draw: Draw) -> list:
    """Begins or ends subscriptions."""
    kind = draw.one(("", "", "P", "P", "S"))
    names = patterns(draw) if kind == "P" else channels(draw)
    return [f"{kind}{draw.one(('SUBSCRIBE', 'SUBSCRIBE', 'SUBSCRIBE', 'UNSUBSCRIBE', 'UNSUBSCRIBE'))}", *names]


def others(draw: Draw) -> list:
    """Commands that are allowed for subscribers, commands that are not, and mistakes."""
    return draw.one(
        (
            ["PING"],
            ["PING", draw.one(PAYLOADS)],
            ["PING", "a", "b"],
            ["RESET"],
            ["HELLO", draw.one((2, 3))],
            ["GET", "k"],
            ["SET", "k", "v"],
            ["INCR", "n"],
            ["SUBSCRIBE"],
            ["PSUBSCRIBE"],
            ["PUBLISH", "a"],
            ["SPUBLISH", "a", "b", "c"],
            ["PUBSUB"],
            ["PUBSUB", "NOSUCH"],
            ["PUBSUB", "NUMPAT", "x"],
            ["PUBSUB", "CHANNELS", "a", "b"],
            ["NOSUCH", "a"],
            ["CLIENT", "GETNAME"],
        )
    )


def question(draw: Draw) -> list:
    """PUBSUB queries."""
    return draw.one(
        (
            ["PUBSUB", "CHANNELS"],
            ["PUBSUB", "CHANNELS", draw.one(PATTERNS)],
            ["PUBSUB", "NUMSUB", *channels(draw)],
            ["PUBSUB", "NUMSUB"],
            ["PUBSUB", "NUMPAT"],
            ["PUBSUB", "SHARDCHANNELS"],
            ["PUBSUB", "SHARDNUMSUB", *channels(draw)],
        )
    )


def one_step(draw: Draw) -> Step:
    """The next action."""
    luck = draw.random.random()
    if luck < 0.15:
        return Step(draw.number(0, CLIENTS - 1), [question(draw)], unordered=True)
    if luck < 0.2:
        verb = draw.one(("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"))
        return Step(draw.number(0, LISTENERS - 1), [[verb]], unordered=True)
    if luck < 0.5:
        commands = draw.many(lambda: publication(draw), 1, 6)
        if draw.chance(0.2):
            commands = [["MULTI"], *commands, ["SET", "k", "v"], ["EXEC"]]
        return Step(PUBLISHER, commands)
    drawn = [subscription, subscription, subscription, publication, others]
    return Step(draw.number(0, LISTENERS - 1), draw.many(lambda: draw.one(drawn)(draw), 1, 5))


# ---- comparing ------------------------------------------------------------------------------------------


def is_a(tree: Tree, kinds: tuple[bytes, ...]) -> bool:
    """Whether it is a message or confirmation."""
    parts = children(tree)
    return tree[0] in (b"*", b">") and bool(parts) and parts[0][1] in kinds


@dataclass
class Sent:
    """The output to one client."""

    replies: list[Tree] = field(default_factory=list)
    messages: list[Tree] = field(default_factory=list)
    # Messages and confirmations in their common order.
    pushes: list[Tree] = field(default_factory=list)

    def add(self, tree: Tree) -> None:
        """Adds one reply, message or confirmation."""
        is_message = is_a(tree, MESSAGES)
        (self.messages if is_message else self.replies).append(without_identity(tree))
        if is_message or is_a(tree, CONFIRMATIONS):
            self.pushes.append(tree)

    def comparable(self, unordered: bool) -> str:
        """A normal form: equal texts for equal meanings."""
        replies, pushes = self.replies, by_message(self.pushes)
        if unordered:
            replies, pushes = ([anonymous(trees), sorted(map(names_of, trees))] for trees in (replies, pushes))
        return f"replies {replies}\npushes {pushes}"


def without_identity(tree: Tree) -> Tree:
    """The reply to HELLO identifies the server."""
    parts = children(tree)
    return (tree[0], b"HELLO") if parts and parts[0][1] == b"server" else tree


def by_message(pushes: list[Tree]) -> list[Tree]:
    """The patterns that match one message have no order: consecutive ones are sorted."""
    ordered: list[Tree] = []
    start = 0
    for end in range(1, len(pushes) + 1):
        first, last = pushes[start], pushes[end] if end < len(pushes) else None
        if last is None or not is_a(first, (b"pmessage",)) or not is_a(last, (b"pmessage",)) or last[1][2:] != first[1][2:]:
            ordered += sorted(pushes[start:end])
            start = end
    return ordered


def anonymous(trees: list[Tree]) -> list[str]:
    """Confirmations and lists without their names: their number."""
    return [str((tree[0], len(children(tree) or ()), (children(tree) or (tree,))[-1][0])) for tree in trees]


def names_of(tree: Tree) -> str:
    """The names in a confirmation or list, sorted."""
    parts = children(tree)
    if parts is None:
        return str(tree)
    if is_a(tree, CONFIRMATIONS):
        return str(parts[1])
    pairs = list(zip(parts[::2], parts[1::2])) if any(part[0] == b":" for part in parts) else parts
    return str(sorted(pairs))


class Side:
    """One of the two servers in one round."""

    def __init__(self, server: Server, protocol: int):
        self._server = server
        self._wires = [Wire(server.port, protocol) for _ in range(CLIENTS)]
        self._pings = 0

    def close(self) -> None:
        """Closes all connections; the next round must begin without subscribers."""
        for wire in self._wires:
            wire.close()
        nobody = [[], [], 0]
        questions = ("CHANNELS", "SHARDCHANNELS", "NUMPAT")
        with self._server.connect() as control:
            wait_until("all to be forgotten", lambda: [control.call("PUBSUB", it) for it in questions] == nobody)

    def act(self, step: Step, messages: int = 0) -> Sent:
        """The output to the acting client: all replies, and at least this many messages."""
        return self._until_pong(step.client, b"".join(encode(*command) for command in step.commands), messages)

    def notices(self, client: int) -> Sent:
        """The output to a client so far: Redis sends to all clients before it continues."""
        return self._until_pong(client, b"", 0)

    def next_messages(self, client: int, count: int) -> Sent:
        """This many items of the output to a client."""
        sent = Sent()
        for _ in range(count):
            sent.add(self._wires[client].read())
        return sent

    def _until_pong(self, client: int, raw: bytes, messages: int) -> Sent:
        self._pings += 1
        token = b"end of step %d" % self._pings
        pongs = (b"$", token), (b"*", ((b"$", b"pong"), (b"$", token)))
        self._wires[client].send(raw + encode("PING", token))
        sent, ponged = Sent(), False
        while not ponged or len(sent.messages) < messages:
            tree = self._wires[client].read()
            if tree in pongs:
                ponged = True
            else:
                sent.add(tree)
        return sent


@pytest.fixture
def servers(new_server, server, tmp_path, compared_with) -> tuple[Server, Server]:
    """Redis, and the server under test."""
    redis = new_server(tmp_path / "redis")
    redis.options = PeerOptions(peer=compared_with)
    return redis.start(), server


def test_subscribers_get_the_same_messages_from_both(servers, protocol, request):
    seed = request.config.getoption("seed")
    for number in range(ROUNDS):
        draw = Draw(Random(f"{seed}/{number}/{protocol}"))
        story = [f"--seed {seed}, round {number}"]
        redis, sheaf = sides = [Side(server, protocol) for server in servers]
        try:
            for step in [one_step(draw) for _ in range(STEPS)]:
                story.append(str(step))
                compare(redis, sheaf, step, story)
            for client in range(CLIENTS):
                left = sheaf.notices(client)
                assert left == Sent(), f"client {client} is sent more than by Redis: {left}\n" + "\n".join(story)
        finally:
            for side in sides:
                side.close()


def compare(redis: Side, sheaf: Side, step: Step, story: list[str]) -> None:
    """One step on both."""
    expected = redis.act(step)
    noticed = {client: redis.notices(client) for client in range(CLIENTS) if client != step.client}
    try:
        found = {step.client: sheaf.act(step, len(expected.messages))}
        found |= {client: sheaf.next_messages(client, len(sent.messages)) for client, sent in noticed.items()}
    except (OSError, Closed) as missing:
        raise AssertionError(f"not sent: {missing!r}, {expected}, {noticed}\n" + "\n".join(story)) from missing
    for client, sent in (noticed | {step.client: expected}).items():
        unordered = step.unordered and client == step.client
        theirs, ours = sent.comparable(unordered), found[client].comparable(unordered)
        assert theirs == ours, f"client {client}\nredis: {theirs}\nsheaf: {ours}\n" + "\n".join(story)


# ---- limits ------------------------------------------------------------------------------------------------

MANY_CHANNELS = 1_000_000
BULK_BYTES_MAX = 1 << 20


def test_a_million_channels_in_one_command(servers, protocol):
    names = [b"%06x" % number for number in range(MANY_CHANNELS)]
    mark = b">" if protocol == 3 else b"*"
    for server in servers:
        with server.connect() as control:
            assert control.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0") == b"OK"
            listener = Wire(server.port, protocol)
            listener.send(encode("SUBSCRIBE", *names))
            for count, name in enumerate(names, 1):
                expected = b"%b3\r\n$9\r\nsubscribe\r\n$6\r\n%b\r\n:%d\r\n" % (mark, name, count)
                assert listener.raw(len(expected)) == expected
            assert control.call("PUBLISH", names[-1], "x") == 1
            assert listener.read() == (mark, ((b"$", b"message"), (b"$", names[-1]), (b"$", b"x")))
            assert control.call("PUBSUB", "NUMSUB", names[0]) == [names[0], 1]
            listener.close()


def test_more_confirmations_than_a_subscriber_may_leave_untaken(servers):
    for server in servers:
        with server.connect() as control, server.connect() as listener:
            assert control.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0") == b"OK"
            # More than the kernel buffers between them while the client does not read.
            number = listener.call("CLIENT", "ID")
            listener.send(encode("SUBSCRIBE", *range(MANY_CHANNELS // 2)))
            wait_until("it to be cut", lambda number=number, control=control: control.call("CLIENT", "LIST", "ID", number) == b"")
            assert b"*3\r\n$9\r\nsubscribe\r\n$6\r\n499999\r\n:500000\r\n" not in listener.read_to_end()
            wait_until("it to be forgotten", lambda: control.call("PUBSUB", "CHANNELS") == [])


def test_names_are_limited_as_all_strings_are(servers):
    said = []
    for server in servers:
        with server.connect() as control, server.connect() as listener:
            assert control.call("CONFIG", "SET", "proto-max-bulk-len", BULK_BYTES_MAX) == b"OK"
            name = b"n" * BULK_BYTES_MAX
            assert listener.call("SUBSCRIBE", name) == [b"subscribe", name, 1]
            assert listener.call("PSUBSCRIBE", name) == [b"psubscribe", name, 2]
            assert control.call("PUBLISH", name, "") == 2
            assert {listener.read()[0] for _ in range(2)} == {b"message", b"pmessage"}
            listener.send(b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n" % (BULK_BYTES_MAX + 1))
            said.append(listener.read_to_end())
    assert said[0] == said[1] == b"-ERR Protocol error: invalid bulk length\r\n"
