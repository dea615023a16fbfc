"""A client that reads a whole stream repeatedly, and the latency of adding entries to the stream meanwhile.

One connection adds an entry a millisecond, alone and beside the reader. The reader is a separate process
(`python3 ranges.py PORT READS`), on the connection opened before: of two workers, each serves one of them.
This is not a load: the added entries are a thousandth of the stream.

An entry is due at its time, whether the one before was answered or not, and its latency counts from then: a
delay of a second makes a thousand entries late, as it would for the users behind them.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import procfs
import resp

KEY = "large"
READS = 20
ENTRIES_ALONE = 5000
PERIOD_S = 0.001
RECEIVE_BYTES = 1 << 20
# In no entry: it marks the end of the range.
END = b"+PONG\r\n"
ALONE, BESIDE = "XADD", "XADD beside XRANGE"

Figures = dict[str, float | None]


def measure(port: int, reads: int) -> dict[str, Figures]:
    """The figures of the writer alone and beside the reader."""
    with Reader(port, reads) as reader, resp.Client(port, timeout_s=60.0) as writer:
        alone = _waits(writer, lambda added: added < ENTRIES_ALONE)
        reader.begin()
        beside = _waits(writer, lambda _: reader.is_reading())
        return {ALONE: alone, BESIDE: {**beside, "read_s": reader.read_s()}}


class Reader:
    """The reading process."""

    def __init__(self, port: int, reads: int):
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port), str(reads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            preexec_fn=procfs.die_with_parent,
        )

    def __enter__(self) -> "Reader":
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "connected\n":
            raise ConnectionError("the reader could not connect")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def begin(self) -> None:
        """Lets it read."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")

    def is_reading(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def read_s(self) -> float:
        """The time to read the whole stream once."""
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())


def _waits(writer: resp.Client, goes_on: Callable[[int], bool]) -> Figures:
    times_s: list[float] = []
    due_s = time.perf_counter()
    while goes_on(len(times_s)):
        early_s = due_s - time.perf_counter()
        if early_s > 0:
            time.sleep(early_s)
            # The machine's oversleeping is not the server's delay.
            due_s = time.perf_counter()
        writer.call("XADD", KEY, "*", "order", "v0000000", "amount", "10000")
        times_s.append(time.perf_counter() - due_s)
        due_s += PERIOD_S
    times_s.sort()
    return {
        "p50_ms": times_s[len(times_s) // 2] * 1e3,
        "p99_ms": times_s[len(times_s) * 99 // 100] * 1e3,
        "longest_ms": times_s[-1] * 1e3,
    }


def _read(port: int, reads: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 60.0) as connection:
        connection.sendall(resp.command(b"PING"))
        if connection.recv(len(END)) != END:
            raise ConnectionError("the server does not answer")
        print("connected", flush=True)
        sys.stdin.readline()
        request = resp.command(b"XRANGE", KEY.encode(), b"-", b"+") + resp.command(b"PING")
        buffer = bytearray(RECEIVE_BYTES)
        started = time.perf_counter()
        for _ in range(reads):
            connection.sendall(request)
            tail = b""
            while not tail.endswith(END):
                received = connection.recv_into(buffer)
                if received == 0:
                    raise ConnectionError("the server closed the connection inside a reply")
                tail = (tail + bytes(buffer[max(received - len(END), 0) : received]))[-len(END) :]
        print((time.perf_counter() - started) / reads, flush=True)


if __name__ == "__main__":
    _read(int(sys.argv[1]), int(sys.argv[2]))
