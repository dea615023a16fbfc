"""Runs redis-benchmark once and reads its figures.

The client is one thread, as redis-benchmark is by default. With deep pipelines it can be the slower side:
then operations per second say little and the server's CPU per operation is the figure to look at, which is
why the client's own CPU share is reported too.
"""

import hashlib
import re
import resource
import subprocess
import time
from dataclasses import dataclass, replace

from procfs import die_with_parent


class DriverFailed(Exception):
    """redis-benchmark failed, or printed something other than its report."""


# Counts within a window, like rate limiters: three commands on one key.
LIMITER = """local hits = redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {hits, redis.call('PTTL', KEYS[1])}"""

STREAM_FIELDS = ("order", "amount", "customer", "state", "region")

# Operations that are sent unchanged: redis-benchmark replaces each __rand_int__ by a random number of the key
# space. Those of one shape share their key, so that one can remove the elements that another adds.
COMMANDS: dict[str, tuple[str, ...]] = {
    "LPUSH": ("LPUSH", "mylist", "xxx"),
    "RPUSH": ("RPUSH", "mylist", "xxx"),
    "LPOP": ("LPOP", "mylist"),
    "RPOP": ("RPOP", "mylist"),
    "LRANGE_100": ("LRANGE", "mylist", "0", "99"),
    "SADD": ("SADD", "myset", "element:__rand_int__"),
    "SPOP": ("SPOP", "myset"),
    "HSET": ("HSET", "myhash", "element:__rand_int__", "xxx"),
    "ZADD": ("ZADD", "myzset", "__rand_int__", "element:__rand_int__"),
    "ZPOPMIN": ("ZPOPMIN", "myzset"),
    "INCR": ("INCR", "counter:__rand_int__"),
    "MSET": ("MSET", *(word for _ in range(10) for word in ("key:__rand_int__", "xxx"))),
    "LPUSH many": ("LPUSH", "list:__rand_int__", "xxx"),
    "LPOP many": ("LPOP", "list:__rand_int__"),
    "SADD many": ("SADD", "set:__rand_int__", "element:__rand_int__"),
    "HSET many": ("HSET", "hash:__rand_int__", "element:__rand_int__", "xxx"),
    "HGET many": ("HGET", "hash:__rand_int__", "element:__rand_int__"),
    "EVALSHA": ("EVALSHA", hashlib.sha1(LIMITER.encode()).hexdigest(), "1", "hits:__rand_int__", "3600000"),
    "XADD": ("XADD", "stream", "*", *(word for name in STREAM_FIELDS for word in (name, "__rand_int__"))),
    "ZADD many": ("ZADD", "zset:__rand_int__", "__rand_int__", "element:__rand_int__"),
}


@dataclass(frozen=True)
class Load:
    """The client's load. `keys` is the size of the random key space."""

    connections: int
    pipeline: int
    value_bytes: int
    keys: int = 1_000_000

    def arguments(self, port: int | str, op: str, ops: int | str) -> list[str]:
        """The command line after the program's name; `port` and `ops` may be placeholders for display."""
        return [
            *("-p", str(port), "-c", str(self.connections), "-P", str(self.pipeline)),
            *("-n", str(ops), "-r", str(self.keys), "-d", str(self.value_bytes)),
            *("--precision", "3"),
            *(COMMANDS[op] if op in COMMANDS else ("-t", op.lower())),
        ]


@dataclass(frozen=True)
class Figures:
    """One run as its client saw it."""

    ops_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    client_share: float  # CPU of the client / elapsed time; 1.0 = one core, the maximum


def drive(
    program: str, load: Load, port: int, op: str, ops: int, through: tuple[str, ...] = (), timeout_s: float = 900.0
) -> Figures:
    """Sends `ops` operations of the kind `op` ("GET", "SET" or one of COMMANDS); `through` has arguments about
    the user and TLS. Raises DriverFailed.
    """
    arguments = [program, *through, *load.arguments(port, op, ops)]
    cpu_before, started = _children_cpu_s(), time.monotonic()
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=die_with_parent,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"no end after {timeout_s:.0f} s: {' '.join(arguments)}") from error
    elapsed_s = time.monotonic() - started
    if done.returncode != 0:
        raise DriverFailed(f"{' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return replace(parse_report(done.stdout), client_share=(_children_cpu_s() - cpu_before) / elapsed_s)


def parse_report(output: str) -> Figures:
    """The figures of one operation except `client_share`, from redis-benchmark's final text."""
    throughput = re.findall(r"throughput summary: ([\d.]+) requests per second", output)
    summary = re.findall(r"latency summary \(msec\):\n.*\n((?: +[\d.]+){6})\s*$", output, re.MULTILINE)
    shares = re.findall(r"^([\d.]+)% <= ([\d.]+) milliseconds", output, re.MULTILINE)
    if len(throughput) != 1 or len(summary) != 1:
        raise DriverFailed(f"no report of one operation in the output: {output.strip()[-500:]!r}")
    _average, _least, p50_ms, _p95, p99_ms, longest_ms = map(float, summary[0].split())
    # The table ends with 100 %. Its steps halve the rest, so the first at or above is only slightly above.
    p999_ms = next((float(ms) for share, ms in shares if float(share) >= 99.9), longest_ms)
    return Figures(float(throughput[0]), p50_ms, p99_ms, p999_ms, longest_ms, client_share=0.0)


def _children_cpu_s() -> float:
    """CPU of children that have ended. Servers outlive their case, so within one it is the client's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
