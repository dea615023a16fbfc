"""Commands on very large values, one at a time, beside a client that pings: the waiting times of both.

The module has the values, the commands, and the longest times of each command. A command whose work is a
small part of its value must neither take long itself nor make others wait. This is not a load: one client
sends one command and waits for its reply.

The pings come from a separate process (`python3 stall.py PORT`), so that the two clients do not wait for each
other. Whenever it reads a line, it prints the longest round trip since the line before.
"""

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import procfs
import resp

# Items per command and per block of requests while the values are built.
PER_COMMAND = 500
BLOCK_THINGS = 20_000
# Calls of each command: enough to include rare events (growth, splits), and to fill a second of pings.
CALLS = 300
# Pings alone, before anything else: the delays of the machine itself.
IDLE_S = 1.0
# The threshold for the server's own clock: shorter calls are no stalls.
SLOW_US = 200

IDLE = "(pings alone)"


@dataclass(frozen=True)
class Step:
    """One row: a command, called with `arguments(number of the call, items per value)` for each call."""

    name: str
    arguments: Callable[[int, int], list[str]]
    calls: int = CALLS


def _spread(call: int, size: int) -> int:
    """A place in a value of this size, a different one for each call."""
    return (call * 7_919_993 + size // 2) % size


def _member(call: int, size: int) -> str:
    return f"m:{_spread(call, size)}"


def _steps() -> Iterator[Step]:
    yield Step("ZADD", lambda call, size: ["ZADD", "zset", str(_spread(call, size) + 0.5), f"new:{call}"])
    yield Step("ZREM", lambda call, size: ["ZREM", "zset", f"new:{call}"])
    yield Step("ZRANK", lambda call, size: ["ZRANK", "zset", _member(call, size)])
    yield Step("ZRANGE 100", lambda call, size: ["ZRANGE", "zset", str(size // 2 + call), str(size // 2 + call + 99)])
    yield Step("ZPOPMIN", lambda call, size: ["ZPOPMIN", "zset"])
    yield Step("LPUSH", lambda call, size: ["LPUSH", "list", "new"])
    yield Step("LINDEX", lambda call, size: ["LINDEX", "list", str(_spread(call, size))])
    yield Step("LSET", lambda call, size: ["LSET", "list", str(_spread(call, size)), "another"])
    yield Step("LRANGE 100", lambda call, size: ["LRANGE", "list", str(size // 2 + call), str(size // 2 + call + 99)])
    yield Step("LPOP", lambda call, size: ["LPOP", "list"])
    yield Step("SADD", lambda call, size: ["SADD", "set", f"new:{call}"])
    yield Step("SREM", lambda call, size: ["SREM", "set", f"new:{call}"])
    yield Step("SPOP", lambda call, size: ["SPOP", "set"])
    yield Step("SRANDMEMBER", lambda call, size: ["SRANDMEMBER", "set", "100"])
    yield Step("HSET", lambda call, size: ["HSET", "hash", f"new:{call}", "v"])
    yield Step("HDEL", lambda call, size: ["HDEL", "hash", f"new:{call}"])
    yield Step("HGET", lambda call, size: ["HGET", "hash", _member(call, size)])
    for key in KEYS:
        yield Step(f"RENAME {key}", lambda call, size, key=key: ["RENAME", *_names(key, call)], calls=CALLS // 2 * 2)
    for words in (["OBJECT", "ENCODING"], ["MEMORY", "USAGE"], ["TYPE"]):
        yield Step(" ".join(words), lambda call, size, words=words: [*words, KEYS[call % len(KEYS)]])
    yield Step("EXPIRE", lambda call, size: ["EXPIRE", KEYS[call % len(KEYS)], str(1_000_000 + call)])
    yield Step("SCAN", lambda call, size: ["SCAN", "0", "COUNT", "100"])
    for command, key in (("ZSCAN", "zset"), ("SSCAN", "set"), ("HSCAN", "hash")):
        yield Step(command, lambda call, size, words=(command, key): [*words, str(call * 64), "COUNT", "100"])
    # The final commands, once each.
    for command, key in (("DEL", "zset"), ("DEL", "hash"), ("UNLINK", "list"), ("UNLINK", "set")):
        yield Step(f"{command} {key}", lambda call, size, words=(command, key): [*words], calls=1)


def _names(key: str, call: int) -> tuple[str, str]:
    """There and back again: after an even number of calls the key has its original name."""
    return (key, f"{key}:renamed") if call % 2 == 0 else (f"{key}:renamed", key)


KEYS = ("zset", "list", "set", "hash")
STEPS = tuple(_steps())
COMMANDS = tuple(step.name for step in STEPS)
OPERATIONS = (IDLE, *COMMANDS)


def blocks(count: int) -> Iterator[tuple[bytes, int]]:
    """Requests that build the four values of `count` items each, and the number of commands in each block."""
    for key in KEYS:
        for start in range(0, count, BLOCK_THINGS):
            starts = range(start, min(start + BLOCK_THINGS, count), PER_COMMAND)
            commands = [_building(key, range(at, min(at + PER_COMMAND, count))) for at in starts]
            yield b"".join(commands), len(commands)


def _building(key: str, numbers: range) -> bytes:
    if key == "zset":
        pairs = [word for n in numbers for word in (b"%d" % (n * 7_919 % 10_000_019), b"m:%d" % n)]
        return resp.command(b"ZADD", b"zset", *pairs)
    if key == "list":
        return resp.command(b"RPUSH", b"list", *(b"e%07d" % n for n in numbers))
    if key == "set":
        return resp.command(b"SADD", b"set", *(b"m:%d" % n for n in numbers))
    return resp.command(b"HSET", b"hash", *(word for n in numbers for word in (b"m:%d" % n, b"v%07d" % n)))


class Pinger:
    """The pinging process."""

    def __init__(self, port: int):
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            preexec_fn=procfs.die_with_parent,
        )

    def __enter__(self) -> "Pinger":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def longest_ms(self) -> float:
        """The longest round trip of those that ended since the last call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError("the pinging client ended")
        return float(line)


def measure(port: int, pid: int, size: int, report: Callable[[str, dict[str, float | None]], None]) -> None:
    """Runs all steps on values of `size` items; `report` gets the figures of each."""
    with resp.Client(port) as client, Pinger(port) as pinger:
        client.call("CONFIG", "SET", "slowlog-log-slower-than", str(SLOW_US))
        client.call("CONFIG", "SET", "slowlog-max-len", "10000")
        pinger.longest_ms()
        time.sleep(IDLE_S)
        report(IDLE, {"call_ms": None, "ping_ms": pinger.longest_ms(), "call_cpu_ms": None, "server_ms": None})
        for step in STEPS:
            client.call("SLOWLOG", "RESET")
            pinger.longest_ms()
            calls = [_timed_ms(client, pid, step.arguments(call, size)) for call in range(step.calls)]
            call_ms, call_cpu_ms = (max(times) for times in zip(*calls, strict=True))
            ping_ms, server_ms = pinger.longest_ms(), _slowest_ms(client, step.name)
            figures = {"call_ms": call_ms, "ping_ms": ping_ms, "call_cpu_ms": call_cpu_ms, "server_ms": server_ms}
            report(step.name, figures)


def _timed_ms(client: resp.Client, pid: int, words: list[str]) -> tuple[float, float]:
    """From request to reply: on the clock of the client, and CPU time of the server, pings included."""
    started, cpu_started = time.perf_counter(), procfs.cpu_s(pid)
    client.call(*words)
    ended, cpu_ended = time.perf_counter(), procfs.cpu_s(pid)
    return (ended - started) * 1e3, (cpu_ended - cpu_started) * 1e3


def _slowest_ms(client: resp.Client, name: str) -> float | None:
    """By the server's own clock; None if no call was slow."""
    command = name.split()[0].lower()
    entries = client.call("SLOWLOG", "GET", "-1")
    assert isinstance(entries, list)
    slow_us = [int(entry[2]) for entry in entries if str(entry[3][0]).lower() == command]
    return max(slow_us) / 1e3 if slow_us else None


def ping(port: int) -> None:
    """The loop of the pinging process, until its input ends."""
    longest_s = 0.0
    with resp.Client(port) as client:
        while True:
            started = time.perf_counter()
            client.call("PING")
            longest_s = max(longest_s, time.perf_counter() - started)
            if select.select([sys.stdin], [], [], 0)[0]:
                if not sys.stdin.readline():
                    return
                print(f"{longest_s * 1e3:.3f}", flush=True)
                longest_s = 0.0


if __name__ == "__main__":
    ping(int(sys.argv[1]))
