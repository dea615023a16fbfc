"""Writers of transactions: MULTI, many SETs and EXEC in one pipeline, on many connections from one thread.

redis-benchmark cannot send these. Requests are built in advance, so that a transaction costs the client one
write, about one read and one comparison.

Invariant: figures count only transactions with the expected replies.
"""

import random
import select
import socket
import time
from collections.abc import Iterator

import resp
from driver import Figures

# Different transactions that are sent in turns.
REQUESTS = 2000
READ_BYTES = 1 << 16
SILENCE_S = 30.0


def drive(port: int, connections: int, rows_each: int, value_bytes: int, keys: int, rows: int) -> Figures:
    """Writes about `rows` rows; `ops_s` are rows, the times are those of a transaction."""
    requests = _requests(rows_each, value_bytes, keys)
    expected = _replies(rows_each)
    sockets = [socket.create_connection(("127.0.0.1", port), SILENCE_S) for _ in range(connections)]
    try:
        return _exchange(sockets, requests, expected, max(rows // rows_each, connections), rows_each)
    finally:
        for connection in sockets:
            connection.close()


def _exchange(
    sockets: list[socket.socket], requests: list[bytes], expected: bytes, transactions: int, rows_each: int
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
    unsent = transactions - len(sockets)
    while len(times_s) < transactions:
        ready = poll.poll(SILENCE_S)
        if not ready:
            raise TimeoutError("the server stopped answering transactions")
        for number, _events in ready:
            connection = by_number[number]
            replies = received[number] + connection.recv(READ_BYTES)
            if len(replies) < len(expected) and expected.startswith(replies) and replies != received[number]:
                received[number] = replies
                continue
            if replies != expected:
                raise resp.ServerReply(f"a transaction was answered with {replies[-200:]!r}")
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
        ops_s=transactions * rows_each / elapsed_s,
        p50_ms=times_s[transactions // 2] * 1e3,
        p99_ms=times_s[transactions * 99 // 100] * 1e3,
        p999_ms=times_s[transactions * 999 // 1000] * 1e3,
        longest_ms=times_s[-1] * 1e3,
        client_share=(time.thread_time() - cpu_before) / elapsed_s,
    )


def _cycle(requests: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from requests


def _requests(rows_each: int, value_bytes: int, keys: int) -> list[bytes]:
    # The same for every server.
    chosen = random.Random(1)
    value = b"x" * value_bytes
    begin, end = resp.command(b"MULTI"), resp.command(b"EXEC")
    return [
        begin
        + b"".join(resp.command(b"SET", b"key:%012d" % chosen.randrange(keys), value) for _ in range(rows_each))
        + end
        for _ in range(REQUESTS)
    ]


def _replies(rows_each: int) -> bytes:
    return resp.OK + b"+QUEUED\r\n" * rows_each + b"*%d\r\n" % rows_each + resp.OK * rows_each
