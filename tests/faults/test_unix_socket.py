"""The Unix socket: a door for processes of this machine, with the permissions of a file."""

import contextlib
import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from harness.server import environment, free_port, run_sheaf, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def path(tmp_path_factory) -> Path:
    """The path of a socket: short, because the system allows few bytes."""
    return tmp_path_factory.mktemp("s") / "sheaf.sock"


def listening(new_server, path: Path, *more: str, **options):
    """A server with this socket."""
    return new_server(extra=("--unixsocket", str(path), *more), **options).start()


def client_of(path: Path, **options) -> redis.Redis:
    """A client through the socket."""
    return redis.Redis(unix_socket_path=str(path), decode_responses=True, **options)


def test_clients_use_the_socket_and_say_who_they_are(new_server, path):
    server = listening(new_server, path, "--unixsocketperm", "770")
    assert stat.S_IMODE(path.stat().st_mode) == 0o770
    with client_of(path) as client:
        assert client.set("k", "v" * 100_000) and client.get("k") == "v" * 100_000
        line = client.client_info()
        assert (line["addr"], line["laddr"], line["flags"]) == (f"{path}:0", f"{path}:0", "U")
        assert line["uid"] == str(os.getuid())
        with server.connect() as tcp:
            assert f":name=unix,bind={path}\r\n" in tcp.call("INFO", "server").decode()
            shown = tcp.call("CLIENT", "LIST").decode()
        assert "uid=-1" in shown and f"uid={os.getuid()}" in shown
        assert client.client_kill_filter(addr=f"{path}:0", skipme=False) == 1
    server.stop()
    assert not path.exists()


def test_a_password_is_needed_there_too(new_server, path):
    listening(new_server, path, requirepass="s3cret")
    with client_of(path) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()
    with client_of(path, password="s3cret") as client:
        assert client.ping()


def test_the_socket_of_a_killed_server_is_replaced_and_no_other(new_server, path, tmp_path):
    server = listening(new_server, path)
    server.kill()
    assert path.is_socket()
    server.start()
    with client_of(path) as client:
        assert client.ping()
    flags = ("--port", "0", "--http-port", "0", "--unixsocket")
    second = run_sheaf("serve", "--dir", str(tmp_path / "second"), *flags, str(path))
    assert second.returncode != 0 and "another server listens there" in second.stderr, second.stderr
    precious = tmp_path / "precious"
    precious.write_text("text")
    third = run_sheaf("serve", "--dir", str(tmp_path / "third"), *flags, str(precious))
    assert third.returncode == 2 and "a file that is no socket" in third.stderr, third.stderr
    assert precious.read_text() == "text"
    with client_of(path) as client:
        assert client.ping()


def test_a_restart_in_the_process_keeps_the_socket(new_server, path):
    leader = new_server().start()
    server = listening(new_server, path)
    with client_of(path) as client:
        assert client.replicaof("127.0.0.1", leader.port)

    def follows() -> bool:
        try:
            with client_of(path) as client:
                return client.info("replication").get("master_link_status") == "up"
        except redis.exceptions.RedisError:
            return False

    wait_until("the server to follow, and to answer at its socket", follows)


def test_client_commands_use_the_socket(new_server, path):
    server = listening(new_server, path)
    tail = subprocess.Popen(
        [sheaf_binary(), "tail", "-s", str(path), "news"], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        with server.connect() as connection:
            wait_until("the subscription", lambda: connection.call("PUBLISH", "news", "hello") == 1)
        assert tail.stdout is not None and tail.stdout.readline().rstrip().endswith("news hello")
    finally:
        tail.kill()
        tail.wait(PATIENCE_S)
    group = run_sheaf("group", "-s", str(path))
    assert group.returncode == 1 and str(path) in group.stderr, group.stderr
    bench = run_sheaf("bench", "-s", str(path), "--seconds", "1", "--beside-keys")
    assert bench.returncode == 0, bench.stderr
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"


def test_a_server_without_a_plain_port(new_server, path, tmp_path):
    """As with `port 0` and `unixsocket` in a redis.conf."""
    conf = tmp_path / "redis.conf"
    http_port = free_port()
    conf.write_text(f"port 0\nunixsocket {path}\nsave 900 1\n")
    data = str(tmp_path / "data")
    command = [sheaf_binary(), str(conf), "--dir", data, "--http-port", str(http_port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()) as process:
        try:
            def info() -> dict:
                with client_of(path) as client:
                    return client.info()

            wait_until("the server at its socket", lambda: path.exists() and answers(info))
            shown = info()
            assert shown["tcp_port"] == 0 and shown["listener0"]["name"] == "unix" and "listener1" not in shown
            sockets = Path(f"/proc/{process.pid}/net/tcp").read_text()
            inodes = {os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
            listening = [line.split() for line in sockets.splitlines()[1:] if line.split()[3] == "0A"]
            own = {int(line[1].split(":")[1], 16) for line in listening if f"socket:[{line[9]}]" in inodes}
            assert own == {http_port}
        finally:
            process.terminate()
            assert process.wait(60) == 0
    grouped = run_sheaf(str(conf), "--dir", str(tmp_path / "other"), "--http-port", "0", "--group", "g")
    assert grouped.returncode != 0 and "needs port or tls-port" in grouped.stderr, grouped.stderr
    conf.write_text("port 0\n")
    closed = run_sheaf(str(conf), "--dir", data, "--http-port", "0")
    assert closed.returncode == 2 and "no client could connect" in closed.stderr, closed.stderr


def answers(call: Callable[[], object]) -> bool:
    with contextlib.suppress(redis.exceptions.RedisError):
        call()
        return True
    return False
