"""Writers of many SETs in one pipeline, on many connections from one thread: as a transaction (MULTI, EXEC),
followed by WAIT 1, or plain.

redis-benchmark cannot send the first two. Requests are built in advance, so that a transaction costs the client one
write, about one read and one comparison.

Invariant: figures count only transactions with the expected replies.
"""

import random
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import resp
from driver import Figures

# Different transactions that are sent in turns.
REQUESTS = 2000
READ_BYTES = 1 << 16
SILENCE_S = 30.0


@dataclass(frozen=True)
class Writes:
    """What the writers send: pipelines of `rows_each` SETs of random keys."""

    connections: int
    rows_each: int
    value_bytes: int
    keys: int
    are_atomic: bool = False
    # WAIT 1 follows each pipeline.
    waits: bool = False


def drive(port: int, writes: Writes, rows: int) -> Figures:
    """Writes about `rows` rows; `ops_s` are rows, the times are those of a pipeline."""
    requests = _requests(writes)
    expected = _replies(writes)
    sockets = [socket.create_connection(("127.0.0.1", port), SILENCE_S) for _ in range(writes.connections)]
    try:
        count = max(rows // writes.rows_each, writes.connections)
        return _exchange(sockets, requests, expected, count, writes.rows_each)
    finally:
        for connection in sockets:
            connection.close()


def _exchange(
    sockets: list[socket.socket], requests: list[bytes], expected: tuple[bytes, ...], pipelines: int, rows_each: int
) -> Figures:
    poll = select.epoll()
    by_number = {connection.fileno(): connection for connection in sockets}
    received = {number: b"" for number in by_number}
    sent_at: dict[int, float] = {}
    times_s: list[float] = []
    next_request = _cycle(requests)
    cpu_before, started = time.thread_time(), time.perf_counter()
    for number, connection in by_number.items():
        poll.register(number, select.EPOLLIN)
        sent_at[number] = time.perf_counter()
        connection.sendall(next(next_request))
    unsent = pipelines - len(sockets)
    while len(times_s) < pipelines:
        ready = poll.poll(SILENCE_S)
        if not ready:
            raise TimeoutError("the server stopped answering")
        for number, _events in ready:
            connection = by_number[number]
            replies = received[number] + connection.recv(READ_BYTES)
            is_part = len(replies) < len(expected[0]) and any(whole.startswith(replies) for whole in expected)
            if is_part and replies != received[number]:
                received[number] = replies
                continue
            if replies not in expected:
                raise resp.ServerReply(f"a pipeline was answered with {replies[-200:]!r}")
            now = time.perf_counter()
            times_s.append(now - sent_at[number])
            received[number] = b""
            if unsent > 0:
                unsent -= 1
                sent_at[number] = now
                connection.sendall(next(next_request))
    elapsed_s = time.perf_counter() - started
    poll.close()
    times_s.sort()
    return Figures(
        ops_s=pipelines * rows_each / elapsed_s,
        p50_ms=times_s[pipelines // 2] * 1e3,
        p99_ms=times_s[pipelines * 99 // 100] * 1e3,
        p999_ms=times_s[pipelines * 999 // 1000] * 1e3,
        longest_ms=times_s[-1] * 1e3,
        client_share=(time.thread_time() - cpu_before) / elapsed_s,
    )


def _cycle(requests: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from requests


def _requests(writes: Writes) -> list[bytes]:
    # The same for every server.
    chosen = random.Random(1)
    value = b"x" * writes.value_bytes
    begin = resp.command(b"MULTI") if writes.are_atomic else b""
    end = resp.command(b"EXEC") if writes.are_atomic else b""
    wait = resp.command(b"WAIT", b"1", b"0") if writes.waits else b""

    def row() -> bytes:
        return resp.command(b"SET", b"key:%012d" % chosen.randrange(writes.keys), value)

    return [begin + b"".join(row() for _ in range(writes.rows_each)) + end + wait for _ in range(REQUESTS)]


def _replies(writes: Writes) -> tuple[bytes, ...]:
    """The correct answers, all of one length."""
    oks = resp.OK * writes.rows_each
    if writes.are_atomic:
        oks = resp.OK + b"+QUEUED\r\n" * writes.rows_each + b"*%d\r\n" % writes.rows_each + oks
    return (oks + b":1\r\n", oks + b":2\r\n") if writes.waits else (oks,)
