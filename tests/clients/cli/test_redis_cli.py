"""redis-cli as people and scripts use it."""

import os
import pty
import re
import select
import subprocess
import termios

import pytest

from harness.resp import encode
from harness.waiting import PATIENCE_S


@pytest.fixture
def cli(server):
    """Runs redis-cli against the test's server; fails on a non-zero exit status."""

    def run(*arguments: str, stdin: bytes = b"", status: int = 0) -> str:
        done = subprocess.run(
            ["redis-cli", "-p", str(server.port), *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout.decode()

    return run


def test_single_commands(cli):
    assert cli("PING") == "PONG\n"
    assert cli("SET", "k", "two words") == "OK\n"
    assert cli("GET", "k") == "two words\n"
    assert cli("GET", "missing") == "\n"
    assert cli("--no-raw", "GET", "missing") == "(nil)\n"
    assert cli("--no-raw", "INCRBY", "n", "7") == "(integer) 7\n"
    assert cli("-n", "3", "DBSIZE") == "0\n"
    assert cli("-x", "SET", "from stdin", stdin=b"line\n") == "OK\n"
    assert cli("--no-raw", "GET", "from stdin") == '"line\\n"\n'
    assert cli("NOSUCH").startswith("ERR unknown command 'NOSUCH'")
    cli("-e", "NOSUCH", status=1)


def test_protocol_3(cli):
    assert cli("-3", "--no-raw", "CONFIG", "GET", "maxclients") == '1# "maxclients" => "10000"\n'
    assert cli("-3", "--no-raw", "HELLO").startswith('1# "server" =>')


def test_commands_from_standard_input(cli):
    script = "SELECT 2\nSET k v\nINCR n\nGET k\n".encode()
    assert cli(stdin=script) == "OK\nOK\n1\nv\n"
    assert cli("-n", "2", "GET", "n") == "1\n"


def test_info(cli):
    info = cli("INFO")
    assert re.search(r"^redis_version:7\.\d+\.\d+\r?$", info, re.MULTILINE)
    assert {"# Server", "# Clients", "# Memory", "# Persistence", "# Stats", "# Replication", "# CPU", "# Keyspace"} <= {
        line.strip() for line in info.splitlines()
    }
    assert "# Commandstats" in cli("INFO", "all")


def test_mass_insertion_through_a_pipe(cli):
    commands = b"".join(encode("SET", f"key:{number}", f"value {number}") for number in range(20_000))
    output = cli("--pipe", stdin=commands)
    assert "errors: 0, replies: 20000" in output
    assert cli("DBSIZE") == "20000\n"
    assert cli("GET", "key:19999") == "value 19999\n"


def test_scan(cli):
    cli("--pipe", stdin=b"".join(encode("SET", f"k:{number}", "v") for number in range(3000)))
    assert sorted(cli("--scan").split()) == sorted(f"k:{number}" for number in range(3000))
    assert sorted(cli("--scan", "--pattern", "k:10?").split()) == [f"k:{number}" for number in range(100, 110)]


def test_bigkeys(cli):
    cli("SET", "small", "x")
    cli("SET", "the biggest", "x" * 5000)
    output = cli("--bigkeys")
    assert 'Biggest string found \'"the biggest"\' has 5000 bytes' in output
    assert "2 strings with 5001 bytes" in output


def test_stat_lines(cli, server):
    cli("SET", "k", "v")
    command = ["redis-cli", "-p", str(server.port), "--stat", "-i", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(4)]
        process.kill()
    assert lines[1].startswith("keys")
    assert lines[2].split()[0] == "1"


def test_repeat(cli):
    assert cli("-r", "100", "INCR", "n").split() == [str(number) for number in range(1, 101)]


def test_interactive_hints_come_from_command_docs(server):
    """On a terminal redis-cli shows hints of arguments, which it builds from the server's COMMAND DOCS."""
    screen, terminal = pty.openpty()
    # Without a size, redis-cli would query the terminal's cursor position and wait for an answer.
    termios.tcsetwinsize(terminal, (50, 200))
    process = subprocess.Popen(
        ["redis-cli", "-p", str(server.port)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm"},
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            assert select.select([screen], [], [], PATIENCE_S)[0], f"no {text!r} on the screen: {shown!r}"
            shown += os.read(screen, 65536)
        shown = shown.partition(text)[2]

    try:
        wait_for(b"> ")
        os.write(screen, b"getrange ")
        wait_for(b"key start end")
        os.write(screen, b"\x15PING\r")
        wait_for(b"PONG")
        # Before each prompt redis-cli discards input that was typed ahead.
        wait_for(b"> ")
        os.write(screen, b"quit\r")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_help_works_offline_and_online(cli):
    assert "GETRANGE" in cli("help", "getrange").upper()


@pytest.mark.parametrize("arguments", [("SHUTDOWN",), ("SHUTDOWN", "NOSAVE")], ids=" ".join)
def test_shutdown(cli, server, arguments):
    cli("SET", "k", "v")
    subprocess.run(["redis-cli", "-p", str(server.port), *arguments], capture_output=True, timeout=PATIENCE_S, check=False)
    assert server.wait_exit() == 0
    server.start()
    with server.connect() as connection:
        assert connection.call("GET", "k") == b"v"
