"""Endless scripts: the clients that they delay, the clients that they must not delay, and the commands that
end them.
"""

import contextlib
import random
import socket
import urllib.request

import pytest

from harness.replicas import follower_of, has_role, wait_following
from harness.resp import Closed, Connection, ErrorReply, encode
from harness.server import Server
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

ENDLESS = "redis.call('SET', KEYS[1], 'after') while true do end"
ONLY_READS = "redis.call('GET', KEYS[1]) while true do end"
UNDECLARED = "redis.call('SET', ARGV[1], 'after') while true do end"
LIBRARY = f"""#!lua name=endless
redis.register_function('endless', function(KEYS) {ENDLESS} end)
redis.register_function{{function_name = 'reads', callback = function(KEYS) {ONLY_READS} end, flags = {{'no-writes'}}}}
"""
# None: the default.
WORKERS = (None, 1, 2, 4)
# Connections, on all workers, that must keep being answered.
CLIENTS = 20
SCANS = 100
SCRIPTS = 8
BUSY = "BUSY Redis is busy running a script. You can only call "
# Why scripts end that a client has ended; the second if their thread was still loading its libraries.
KILLED = ("killed by user with SCRIPT KILL", "killed by user with FUNCTION KILL")


class Script:
    """One endless script on a connection of its own, with a key of its own."""

    KINDS = ("eval", "eval_ro", "evalsha", "no keys", "undeclared", "fcall", "fcall_ro", "exec", "pipeline", "idemp", "raw exec")

    def __init__(self, connection: Connection, kind: str, number: int):
        self.connection, self.kind = connection, kind
        self.key, self.counter = f"kept:{number}", f"counter:{number}"
        self.id = connection.call("CLIENT", "ID")
        # The number of replies before the relevant one.
        self.before = {"exec": 3, "raw exec": 3, "pipeline": 3}.get(kind, 0)

    def prepare(self) -> None:
        """Creates its key."""
        assert self.connection.call("SET", self.key, "before") == b"OK"

    def begin(self) -> None:
        """Sends it."""
        endless = encode("EVAL", ENDLESS, 1, self.key)
        sha = self.connection.call("SCRIPT", "LOAD", ENDLESS)
        self.connection.send(
            {
                "eval": endless,
                "eval_ro": encode("EVAL_RO", ONLY_READS, 1, self.key),
                "evalsha": encode("EVALSHA", sha, 1, self.key),
                "no keys": encode("EVAL", "while true do end", 0),
                "undeclared": encode("EVAL", UNDECLARED, 0, self.key),
                "fcall": encode("FCALL", "endless", 1, self.key),
                "fcall_ro": encode("FCALL_RO", "reads", 1, self.key),
                "exec": encode("MULTI") + encode("INCR", self.counter) + endless + encode("EXEC"),
                "raw exec": encode("WATCH", self.key) + encode("MULTI") + endless + encode("EXEC"),
                "pipeline": encode("EVAL", "return 1", 0) * 3 + endless + encode("PING"),
                "idemp": encode("IDEMP", f"idemp:{self.key}", 60_000, "EVAL", ENDLESS, 1, self.key),
            }[self.kind]
        )

    def has_ended(self) -> bool:
        """Whether the relevant reply has arrived; earlier ones have been read then."""
        while self.before > 0 and answers(self.connection, b"", 0.001):
            self.connection.read()
            self.before -= 1
        return self.before == 0 and answers(self.connection, b"", 0.001)

    def read_end(self, reasons: tuple[str, ...] = KILLED) -> bool:
        """Reads its reply, an error that gives one of the reasons for its end. Whether the script had begun."""
        while self.before > 0:
            self.connection.read()
            self.before -= 1
        reply = self.connection.read()
        if self.kind == "pipeline":
            assert self.connection.read() == b"PONG"
        if isinstance(reply, list):
            assert self.kind in ("exec", "raw exec")
            reply = reply[-1]
            assert any(reason in reply.text for reason in reasons)
            return True
        assert isinstance(reply, ErrorReply), reply
        ended = any(reason in reply.text for reason in reasons)
        busy = "Redis is busy running" in reply.text
        assert ended or busy, reply
        return ended


def answers(connection: Connection, request: bytes, soon_s: float = 0.2) -> bool:
    """Whether a reply arrives soon."""
    connection.send(request)
    if connection.has_input():
        return True
    connection.socket.settimeout(soon_s)
    try:
        return bool(connection.socket.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        connection.socket.settimeout(60)


def kill_all(control: Connection, scripts: list[Script]) -> None:
    """Ends all scripts, one after the other: those that wait for slots begin when others end."""

    def have_ended() -> bool:
        replies = control.call("SCRIPT", "KILL"), control.call("FUNCTION", "KILL")
        for reply in replies:
            assert reply == b"OK" or reply.text.startswith(("NOTBUSY", "BUSY")), reply
        return all(script.has_ended() for script in scripts)

    wait_until("all scripts to end", have_ended)


def read_key(control: Connection, reader: Connection, key: str) -> bytes:
    """The value of a key that no script uses any more."""
    while True:
        reader.send(encode("GET", key))
        wait_until("a reply", lambda: kill_all(control, []) or answers(reader, b"", 0.01))
        reply = reader.read()
        if not isinstance(reply, ErrorReply):
            return reply
        assert reply.text.startswith(BUSY), reply


def is_up(server: Server) -> bool:
    """Whether `/_up` answers 200."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/_up", timeout=60) as reply:
        return reply.status == 200


@pytest.fixture
def dial(request):
    """Opens connections that are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(Connection(server.port))


@pytest.fixture(params=WORKERS, ids=lambda workers: f"workers={workers}")
def server(new_server, request) -> Server:
    """A server with this many workers."""
    return new_server(workers=request.param).start()


def configure(control: Connection, busy_after_ms: int) -> None:
    assert control.call("CONFIG", "SET", "busy-reply-threshold", busy_after_ms) == b"OK"
    assert control.call("FUNCTION", "LOAD", "REPLACE", LIBRARY) == b"endless"


def wait_until_it_runs(server: Server, key: str) -> None:
    """Waits until a script holds this key: whoever needs the key is told that the server is busy."""
    with server.connect() as control:
        _, threshold_ms = control.call("CONFIG", "GET", "busy-reply-threshold")
        assert control.call("CONFIG", "SET", "busy-reply-threshold", 1) == b"OK"
        wait_until("the script to run", lambda: isinstance(control.call("GET", key), ErrorReply))
        assert control.call("CONFIG", "SET", "busy-reply-threshold", threshold_ms) == b"OK"


def begin(server: Server, dial, kind: str, number: int = 0) -> Script:
    """A running script that holds its key, if it declares one."""
    script = Script(dial(server), kind, number)
    script.prepare()
    script.begin()
    # A script that finds its undeclared key locked, if only by our look, waits for all slots.
    if kind not in ("no keys", "undeclared"):
        wait_until_it_runs(server, script.key)
    else:
        wait_until("the script was read", lambda: b"cmd=eval" in dial(server).call("CLIENT", "LIST", "ID", script.id))
    return script


@pytest.mark.parametrize("kind", Script.KINDS)
def test_a_script_of_any_kind_stops_nobody_else(new_server, dial, kind):
    server = new_server(workers=1).start()
    control, old = dial(server), [dial(server) for _ in range(4)]
    configure(control, 0)
    script = begin(server, dial, kind)
    for client in (*old, dial(server), dial(server)):
        assert client.call("PING") == b"PONG"
        assert b"redis_version" in client.call("INFO", "server")
        if "exec" not in kind:
            assert client.call("INCR", "other") > 0
    assert not script.has_ended()
    assert is_up(server)
    assert control.call("CLIENT", "KILL", "ID", script.id) == 1
    with pytest.raises(Closed):
        while True:
            script.connection.read()
    kill = "FUNCTION" if "fcall" in kind else "SCRIPT"
    assert control.call(kill, "KILL") == b"OK"
    wait_until("its key to be free", lambda: answers(dial(server), encode("GET", script.key)))
    assert control.call("GET", script.key) == b"before"


def test_any_number_of_scripts_stops_nobody_else(server, dial):
    control, old = dial(server), [dial(server) for _ in range(SCRIPTS)]
    configure(control, 300)
    kinds = [kind for kind in Script.KINDS if "exec" not in kind][:SCRIPTS]
    scripts = [begin(server, dial, kind, number) for number, kind in enumerate(kinds)]
    for client in (*old, *(dial(server) for _ in range(SCRIPTS))):
        assert client.call("PING") == b"PONG"
        assert client.call("INCR", "other") > 0
        assert client.call("EVAL", "return redis.call('GET', KEYS[1])", 1, "other").isdigit()
        reply = client.call("GET", scripts[0].key)
        assert isinstance(reply, ErrorReply) and reply.text.startswith(BUSY), reply
    assert is_up(server)
    kill_all(control, scripts)
    # A script that needs an undeclared key of another script needs all slots, and others hold some of them.
    assert all([script.read_end() or script.kind == "undeclared" for script in scripts])
    assert [control.call("GET", script.key) for script in scripts] == [b"before"] * SCRIPTS


def test_clients_of_other_keys_go_on_and_the_rest_are_retried(server, dial):
    configure(dial(server), 0)
    script = begin(server, dial, "eval")
    scans = [dial(server) for _ in range(SCANS)]
    for scan in scans:
        scan.send(encode("SCAN", 0, "COUNT", 1000) + encode("RANDOMKEY") + encode("KEYS", "*"))
    for number in range(CLIENTS):
        client = dial(server)
        assert client.call("SET", f"other{number}", number) == b"OK"
        assert client.call("INCR", f"other{number}") == number + 1
        assert client.call("EVAL", "return redis.call('GET', KEYS[1])", 1, f"other{number}") == b"%d" % (number + 1)
    # They are still retried, whichever clients were served meanwhile.
    assert not any(answers(scan, b"") for scan in scans[:3])
    assert dial(server).call("SCRIPT", "KILL") == b"OK"
    assert script.read_end()
    for scan in scans:
        cursor, keys = scan.read()
        assert (cursor, len(keys)) == (b"0", CLIENTS + 1)
        assert scan.read() in keys
        assert sorted(scan.read()) == sorted(keys)
    assert dial(server).call("GET", script.key) == b"before"


def test_clients_of_its_keys_get_busy_after_the_threshold(server, dial):
    configure(dial(server), 300)
    script = begin(server, dial, "eval")
    waiting = [dial(server) for _ in range(SCANS)]
    for index, client in enumerate(waiting):
        client.send((encode("SCAN", 0), encode("GET", script.key), encode("KEYS", "*"), encode("FLUSHALL"))[index % 4])
    for client in waiting:
        reply = client.read()
        assert isinstance(reply, ErrorReply) and reply.text.startswith(BUSY), reply
    server.wait_for_log("a script has run for longer than busy-reply-threshold")
    assert dial(server).call("INCR", "n") == 1
    assert dial(server).call("SCRIPT", "KILL") == b"OK"
    assert script.read_end()
    assert [client.call("GET", script.key) for client in waiting] == [b"before"] * SCANS


@pytest.mark.parametrize("how", ["signal", "SHUTDOWN", "SHUTDOWN NOSAVE"])
def test_a_server_stops_during_endless_scripts(new_server, dial, how):
    server = new_server(workers=None).start()
    configure(dial(server), 0)
    scripts = [begin(server, dial, kind, number) for number, kind in enumerate(("eval", "fcall", "no keys"))]
    if how == "signal":
        server.stop()
    else:
        dial(server).send(encode(*how.split()))
        server.wait_exit()
    assert all(script.read_end(("the server stops, or changes its role",)) for script in scripts)
    server.start()
    assert dial(server).call("GET", scripts[0].key) == b"before"


def test_more_scripts_than_threads(new_server, dial):
    server = new_server(workers=None).start()
    control = dial(server)
    configure(control, 500)
    connections = [dial(server) for _ in range(50)]
    for connection in connections:
        connection.send(encode("EVAL", "while true do end", 0))
    busy = []

    def are_told() -> bool:
        busy.extend(it for it in connections if it not in busy and answers(it, b"", 0.001))
        return len(busy) == 18

    wait_until("those without a thread to be told", are_told)
    for connection in busy:
        assert connection.read().text == BUSY + "SCRIPT KILL or SHUTDOWN NOSAVE."
        assert connection.call("PING") == b"PONG"
    assert control.call("SCRIPT", "KILL") == b"OK"
    assert all("Script killed" in it.read().text for it in connections if it not in busy)


def test_a_script_that_has_flushed_is_told_that_its_changes_stay(new_server, dial):
    connection = dial(new_server(extra=("--script-max-instructions", "1000000")).start())
    for call, consequence, left in (
        ("redis.call('SET', 'k', 'after')", "its changes are undone", b"before"),
        ("redis.call('FLUSHALL')", "its changes stay, because it has flushed a database", None),
    ):
        assert connection.call("SET", "k", "before") == b"OK"
        ended = connection.call("EVAL", f"{call} while true do end", 0)
        assert ended.text.endswith(f"script-max-instructions allows; {consequence}")
        assert connection.call("GET", "k") == left


@pytest.mark.parametrize("behind", [b"*1\r\n:7\r\n", b"GET / HTTP/1.1\r\n"], ids=["error", "HTTP"])
def test_an_error_behind_a_script_follows_its_reply(new_server, dial, behind):
    server = new_server(workers=None).start()
    control = dial(server)
    script = Script(dial(server), "eval", 0)
    script.prepare()
    script.connection.send(encode("EVAL", ENDLESS, 1, script.key) + behind)
    wait_until_it_runs(server, script.key)
    assert not answers(script.connection, b"")
    assert control.call("SCRIPT", "KILL") == b"OK"
    assert script.read_end()
    with pytest.raises(Closed):
        assert "Protocol error" in script.connection.read().text
        script.connection.read()
    assert control.call("GET", script.key) == b"before"
    server.stop()


def test_a_hand_over_does_not_wait_for_an_endless_script(new_server, dial):
    leader = new_server(workers=None).start()
    replica = follower_of(new_server, leader)
    wait_following(replica)
    control = dial(leader)
    configure(control, 0)
    script = begin(leader, dial, "eval")

    def hand_over(*words) -> None:
        # The one before may have given up and still be registered.
        wait_until("a hand-over to begin", lambda: control.call("FAILOVER", *words) == b"OK")

    for words in (("TIMEOUT", 200), ()):
        hand_over(*words)
        if not words:
            assert control.call("FAILOVER", "ABORT") == b"OK"
        wait_until("writes to be taken again", lambda: control.call("SET", "other", 1) == b"OK")
    assert not script.has_ended()
    assert control.call("SCRIPT", "KILL") == b"OK"
    assert script.read_end()
    hand_over("TIMEOUT", 60_000)
    wait_until("the replica leads", lambda: has_role(replica, "master"))
    assert dial(replica).call("GET", script.key) == b"before"


def test_watch_beside_an_endless_script_is_registered(new_server, dial):
    """WATCH is never answered with BUSY, as in Redis; a key that it could not read counts as changed."""
    server = new_server(workers=None).start()
    control, client = dial(server), dial(server)
    configure(control, 0)
    script = begin(server, dial, "eval")
    assert control.call("CONFIG", "SET", "busy-reply-threshold", 20) == b"OK"
    wait_until("others to be told", lambda: isinstance(control.call("GET", script.key), ErrorReply))
    assert client.call("WATCH", script.key) == b"OK"
    kill_all(control, [script])
    assert script.read_end()
    for answer in (None, [b"OK"]):
        client.call("MULTI")
        client.call("SET", "other", "1")
        assert client.call("EXEC") == answer


def test_storm(new_server, dial, request):
    chance = random.Random(request.config.getoption("seed"))
    for round_ in range(request.config.getoption("script_rounds")):
        if round_ % 100 == 0:
            server = new_server(workers=chance.choice(WORKERS)).start()
            old = [Connection(server.port) for _ in range(8)]
            configure(old[0], 0)
            old[0].call("SET", "steady", 1)
        with contextlib.ExitStack() as stack:
            assert old[0].call("CONFIG", "SET", "busy-reply-threshold", chance.choice((0, 20, 200))) == b"OK"
            count = chance.randint(1, SCRIPTS)
            scripts = [
                Script(stack.enter_context(Connection(server.port)), chance.choice(Script.KINDS), number)
                for number in range(count)
            ]
            for script in scripts:
                script.prepare()
            for script in scripts:
                script.begin()
                assert chance.choice(old).call("PING") == b"PONG"
            new = stack.enter_context(Connection(server.port))
            for client in (*old, new):
                assert client.call("PING") == b"PONG"
                assert client.call("INFO", "server")
            if not any("exec" in script.kind for script in scripts):
                assert new.call("GET", "steady") == b"1"
            gone = [script for script in scripts if chance.random() < 0.1]
            for script in gone:
                assert new.call("CLIENT", "KILL", "ID", script.id) == 1
            left = [script for script in scripts if script not in gone]
            kill_all(new, left)
            for script in left:
                script.read_end()
            # Scripts of disconnected clients may still run.
            assert [read_key(new, old[1], script.key) for script in scripts] == [b"before"] * count


def test_a_client_is_served_although_a_script_held_its_key_at_the_push(new_server, dial):
    """The push is so long that it runs on a thread of its own, which ends before the key is free."""
    server = new_server(workers=None).start()
    blocked, scripted, pushing = dial(server), dial(server), dial(server)
    blocked.send(encode("BLMOVE", "from", "to", "LEFT", "RIGHT", 0))
    wait_until("it to be blocked", lambda: "blocked_clients:1" in pushing.call("INFO", "clients").decode())
    scripted.send(encode("EVAL", "redis.call('GET', KEYS[1]) while true do end", 1, "to"))
    wait_until("the script to run", lambda: isinstance(pushing.call("GET", "to"), ErrorReply))
    assert pushing.call("RPUSH", "from", *range(40_000)) == 40_000
    assert pushing.call("SCRIPT", "KILL") == b"OK"
    assert blocked.read() == b"0"
    assert pushing.call("LRANGE", "to", 0, -1) == [b"0"] and pushing.call("LLEN", "from") == 39_999
