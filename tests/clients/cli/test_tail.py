"""`sheaf tail`: messages as lines, in a pipe and on a terminal, through restarts of the server."""

import contextlib
import os
import pty
import re
import signal
import subprocess

import pytest

from harness.resp import encode
from harness.server import environment, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


class Tail:
    """A running `sheaf tail` and its output."""

    def __init__(self, *arguments: str, port: int, stderr: object = subprocess.PIPE):
        self.process = subprocess.Popen(
            [sheaf_binary(), "tail", "--port", str(port), *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def lines(self, count: int) -> list[str]:
        """This many of the next lines, without their times."""
        found = [self.process.stdout.readline() for _ in range(count)]
        assert all(TIME.match(line) for line in found), found
        return [TIME.sub("", line, count=1).rstrip("\n") for line in found]

    def end(self) -> tuple[int, str]:
        """Waits for it to end; returns the status and the rest of standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


@contextlib.contextmanager
def following(*arguments: str, port: int):
    """A `sheaf tail` that ends with the block."""
    tail = Tail(*arguments, port=port)
    try:
        yield tail
    finally:
        tail.process.kill()
        tail.process.communicate()


@pytest.fixture
def tail(server):
    """Starts `sheaf tail` on channels and waits until the server has its subscriptions."""
    started: list[Tail] = []

    def start(*arguments: str, listeners: int = 1, **options) -> Tail:
        started.append(Tail(*arguments, port=server.port, **options))
        with server.connect() as asking:
            kind = "psub" if "--pattern" in arguments else "sub"
            wait_until("the subscriptions", lambda: f" {kind}={listeners} " in asking.call("CLIENT", "LIST").decode())
        return started[-1]

    yield start
    for found in started:
        found.process.kill()
        found.process.communicate()


@pytest.mark.sheaf_only
def test_a_message_is_a_line(server, tail):
    following = tail("news", "a b", listeners=2)
    with server.connect() as publisher:
        for channel, payload in [("news", "hello world"), ("a b", b"\x1b[31m\r\n\xff\\"), ("other", "x"), ("news", "")]:
            publisher.call("PUBLISH", channel, payload)
    assert following.lines(3) == ["news hello world", "a\\u{20}b \\u{1b}[31m\\r\\n\\xff\\\\", "news "]
    following.process.send_signal(signal.SIGINT)
    assert following.end() == (0, "")


@pytest.mark.sheaf_only
def test_patterns_show_the_channel(server, tail):
    following = tail("--pattern", "order:*")
    with server.connect() as publisher:
        publisher.call("PUBLISH", "order:7", '{"state": "paid"}')
    assert following.lines(1) == ['order:7 {"state": "paid"}']
    following.process.send_signal(signal.SIGTERM)
    assert following.end() == (0, "")


@pytest.mark.sheaf_only
def test_many_and_large_messages_come_whole_and_in_order(server, tail):
    following = tail("c")
    count, large = 20_000, "x" * (3 << 20)
    with server.connect() as publisher:
        publisher.send(b"".join(encode("PUBLISH", "c", number) for number in range(count)))
        assert [publisher.read() for _ in range(count)] == [1] * count
        assert publisher.call("PUBLISH", "c", large) == 1
    assert following.lines(count + 1) == [f"c {number}" for number in range(count)] + [f"c {large}"]


@pytest.mark.sheaf_only
def test_a_lost_connection_is_told_and_made_again(new_server):
    server = new_server().start()
    with following("c", port=server.port) as tail:
        with server.connect() as publisher:
            wait_until("the subscription", lambda: publisher.call("PUBLISH", "c", "before") == 1)
        assert tail.lines(1) == ["c before"]
        port = server.port
        server.kill()
        assert f"sheaf: lost the connection to 127.0.0.1:{port}: " in (lost := tail.process.stderr.readline())
        assert lost.endswith("; trying again every second\n")
        server.options.port = port
        server.start()
        told = tail.process.stderr.readline()
        assert told == "sheaf: connected again; messages published meanwhile are missing\n"
        with server.connect() as publisher:
            assert publisher.call("PUBLISH", "c", "after") == 1
        assert tail.lines(1) == ["c after"]


POSITION = re.compile(r"\d+:(\d+):\d+ ")


def positions(lines: list[str]) -> tuple[list[int], list[str]]:
    """Positions of messages in the log, and their lines without positions."""
    places = [int(POSITION.match(line)[1]) for line in lines]
    return places, [POSITION.sub("", line, count=1) for line in lines]


@pytest.fixture
def durable(new_server):
    """Starts servers with durable channels."""
    return lambda **options: new_server(extra=("--durable-channels", "log:*"), **options)


@pytest.mark.sheaf_only
def test_durable_channels_are_followed_from_a_position_on(durable):
    server = durable().start()
    with server.connect() as publisher:
        for number in range(10):
            publisher.call("PUBLISH", "log:a", number)
            publisher.call("PUBLISH", "log:b", number)
    with following("log:a", "--from", "-", port=server.port) as everything:
        lines = everything.lines(10)
        places, shown = positions(lines)
        assert shown == [f"log:a {number}" for number in range(10)]
        assert places == sorted(set(places))
    with following("log:b", "log:a", "--from", lines[6].split(" ")[0], port=server.port) as later:
        _, shown = positions(later.lines(7))
        # Each channel in its order; the first one may begin before the other.
        assert [line for line in shown if "a" in line] == [f"log:a {number}" for number in range(7, 10)]
        assert [line for line in shown if "b" in line] == [f"log:b {number}" for number in range(6, 10)]


@pytest.mark.sheaf_only
def test_a_lost_connection_leaves_no_gap_in_durable_channels(durable):
    server = durable().start()
    port = server.port
    with following("log:a", "log:quiet", "--from", "$", port=port) as tail:
        with server.connect() as publisher:
            wait_until("both subscriptions", lambda: publisher.call("PUBSUB", "NUMSUB", "log:quiet")[1] == 1)
            publisher.call("PUBLISH", "log:a", "before")
        assert positions(tail.lines(1))[1] == ["log:a before"]
        server.kill()
        assert "sheaf: lost the connection" in tail.process.stderr.readline()
        # On another port, to which `sheaf tail` does not reconnect.
        server.start()
        with server.connect() as publisher:
            publisher.call("PUBLISH", "log:a", "meanwhile")
            publisher.call("PUBLISH", "log:quiet", "meanwhile")
        server.kill()
        server.options.port = port
        server.start()
        assert sorted(positions(tail.lines(2))[1]) == ["log:a meanwhile", "log:quiet meanwhile"]
        assert tail.process.stderr.readline() == "sheaf: connected again; going on where it was\n"
        server.kill()
        # Another log, which does not have the position.
        other = durable(port=port).start()
        assert "sheaf: lost the connection" in tail.process.stderr.readline()
        gap = (
            "sheaf: the next messages of log:{} are lost: the log does not keep them any more, or is damaged there; "
            "going on with the oldest message\n"
        )
        assert [tail.process.stderr.readline() for _ in range(2)] == [gap.format("a"), gap.format("quiet")]
        with other.connect() as publisher:
            publisher.call("PUBLISH", "log:a", "anew")
        assert positions(tail.lines(1))[1] == ["log:a anew"]


@pytest.mark.sheaf_only
def test_messages_behind_a_damaged_record_are_shown_once(durable):
    server = durable().start()
    with server.connect() as publisher:
        for number in range(30):
            publisher.call("PUBLISH", "log:a", f"message-{number:02}")
        assert publisher.call("SAVE") == b"OK"
        publisher.call("PUBLISH", "log:a", "last")
    server.stop()
    segment = min(server.directory.glob("log-*.seg"))
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"message-10", b"damaged!!!"))
    server.start()
    with following("log:a", "--from", "-", port=server.port) as tail:
        _, shown = positions(tail.lines(30))
        expected = [f"log:a message-{number:02}" for number in range(30) if number != 10]
        assert shown == [*expected, "log:a last"]
        assert "the next messages of log:a are lost" in tail.process.stderr.readline()
        with server.connect() as publisher:
            publisher.call("PUBLISH", "log:a", "more")
        assert positions(tail.lines(1))[1] == ["log:a more"]
    with following("log:a", "--from", "-", port=server.port) as tail:
        assert len(tail.lines(31)) == 31
    assert server.log().count("cannot read messages of durable channels") == 1, "one line, however many readers"


@pytest.mark.sheaf_only
def test_invalid_positions_are_refused(durable):
    server = durable().start()
    for arguments, error in [
        (("log:a", "--from", "9:999999999"), "LOST "),
        (("log:a", "--from", "soon"), "ERR "),
        (("plain", "--from", "-"), "ERR "),
    ]:
        status, errors = Tail(*arguments, port=server.port).end()
        assert status == 1 and errors.startswith(f"sheaf: the server refuses: {error}"), errors


@pytest.mark.sheaf_only
def test_a_closed_pipe_is_an_end_in_order(server, tail):
    following = tail("c")
    following.process.stdout.close()
    with server.connect() as publisher:
        wait_until("it to end", lambda: publisher.call("PUBLISH", "c", "x") == 0)
    assert following.process.wait(PATIENCE_S) == 0
    assert following.process.stderr.read() == ""


@pytest.mark.sheaf_only
def test_tail_can_be_interrupted_while_its_output_is_not_read(server, tail):
    following = tail("c")
    with server.connect() as publisher:
        # More than the pipe and the sockets together buffer.
        for _ in range(64):
            publisher.call("PUBLISH", "c", "x" * (1 << 20))
    following.process.send_signal(signal.SIGINT)
    assert following.process.wait(PATIENCE_S) == 0


@pytest.mark.sheaf_only
def test_a_terminal_shows_how_many_there_are(server, tail):
    terminal, theirs = pty.openpty()
    following = tail("c", stderr=theirs)
    os.close(theirs)
    shown = b""

    def status(text: bytes) -> bool:
        nonlocal shown
        shown += os.read(terminal, 4096)
        return text in shown

    with server.connect() as publisher:
        publisher.call("PUBLISH", "c", "x")
        wait_until("the count", lambda: status(b"\r\x1b[K1 messages, "))
    following.process.send_signal(signal.SIGINT)
    assert following.process.wait(PATIENCE_S) == 0
    assert os.read(terminal, 4096).endswith(b"\r\x1b[K"), "the line is gone"
    os.close(terminal)


@pytest.mark.sheaf_only
def test_another_user_than_default_can_follow(server, tmp_path):
    password = tmp_path / "password"
    password.write_text("s3cret")
    with server.connect() as admin:
        assert admin.call("ACL", "SETUSER", "reader", "on", ">s3cret", "&*", "+subscribe", "+ping") == b"OK"
        following = Tail("c", "--user", "reader", "--password-file", str(password), port=server.port)
        wait_until("the subscription", lambda: admin.call("PUBLISH", "c", "x") == 1)
        assert following.lines(1) == ["c x"]
        assert " user=reader " in next(line for line in admin.call("CLIENT", "LIST").decode().splitlines() if "sheaf-tail" in line)
    following.process.send_signal(signal.SIGINT)
    assert following.end() == (0, "")
    status, errors = Tail("c", "--user", "nobody", "--password-file", str(password), port=server.port).end()
    assert status == 1 and "or the user (--user), is another one" in errors, errors


@pytest.mark.sheaf_only
def test_passwords_are_read_from_a_file(new_server, tmp_path):
    server = new_server(requirepass="s3cret and more").start()
    password = tmp_path / "password"
    password.write_text("s3cret and more\nnot this line\n")
    following = Tail("c", "--password-file", str(password), port=server.port)
    with server.connect() as publisher:
        wait_until("the subscription", lambda: publisher.call("PUBLISH", "c", "x") == 1)
    assert following.lines(1) == ["c x"]
    following.process.send_signal(signal.SIGINT)
    assert following.end() == (0, "")
    status, errors = Tail("c", port=server.port).end()
    assert status == 1 and errors.startswith("sheaf: the server refuses: NOAUTH "), errors
    assert "required. Give the password with --password-file" in errors, errors
    password.write_text("wrong")
    status, errors = Tail("c", "--password-file", str(password), port=server.port).end()
    assert status == 1 and errors.startswith("sheaf: the server refuses: WRONGPASS "), errors
    status, errors = Tail("c", "--password-file", str(tmp_path / "none"), port=server.port).end()
    assert status == 1 and "none" in errors, errors


@pytest.mark.sheaf_only
def test_an_unreachable_server_is_an_error(server):
    port = server.port
    assert server.stop() == 0
    status, errors = Tail("c", port=port).end()
    assert status == 1 and errors.startswith(f"sheaf: cannot connect to 127.0.0.1:{port}: "), errors


@pytest.mark.sheaf_only
def test_another_server_is_an_error(server):
    status, errors = Tail("c", port=server.http_port).end()
    assert status == 1 and "does not speak the Redis protocol: it is an HTTP port" in errors, errors
