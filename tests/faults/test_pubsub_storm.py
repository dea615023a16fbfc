"""Channels under load: publishers at full speed while subscriptions begin and end.

Every message carries its publisher and a number. A permanent subscriber gets every message once and in its
publisher's order; a temporary one gets the messages between its confirmations, without a gap.
"""

import threading
import time

import pytest

from harness.messages import Listener, Publisher
from harness.resp import Connection, encode

PUBLISHERS = 4
CHURNERS = 6
CHANNELS = [f"ch:{number}" for number in range(3)]


def churn(port: int, number: int, stop: threading.Event, failures: list[str]) -> None:
    """Subscribes, reads some messages, unsubscribes: there is no gap in between."""
    connection = Connection(port)
    by_pattern = number % 3 == 0
    verbs = (b"psubscribe", b"punsubscribe") if by_pattern else (b"subscribe", b"unsubscribe")
    names = ["ch:?"] if by_pattern else CHANNELS[: 1 + number % 3]
    while not stop.is_set():
        connection.send(encode(verbs[0], *names))
        last: dict[tuple, int] = {}
        left, taken = len(names), 0
        while left:
            kind, *rest = connection.read()
            if kind == verbs[1]:
                left -= 1
            elif kind == verbs[0]:
                continue
            else:
                channel, data = rest[-2:]
                publisher, count = map(int, data.split())
                expected = last.get((channel, publisher), count - 1) + 1
                if count != expected:
                    failures.append(f"churner {number}: {count} of {publisher} on {channel}, expected {expected}")
                last[channel, publisher] = count
            taken += 1
            if taken == 20:
                connection.send(encode(verbs[1], *names))
    connection.close()


@pytest.mark.soak
def test_nothing_is_lost_while_subscriptions_come_and_go(server, pytestconfig):
    stop, stop_churning = threading.Event(), threading.Event()
    failures: list[str] = []
    listeners = [Listener(server.port, CHANNELS, PUBLISHERS) for _ in range(3)]
    publishers = [Publisher(server.port, number, CHANNELS, stop, listeners) for number in range(PUBLISHERS)]
    churners = [
        threading.Thread(target=churn, args=(server.port, number, stop_churning, failures))
        for number in range(CHURNERS)
    ]
    for thread in [*listeners, *churners, *publishers]:
        thread.start()
    time.sleep(pytestconfig.getoption("--churn-seconds"))
    # Temporary subscribers first: they end their round only while messages arrive.
    stop_churning.set()
    for thread in churners:
        thread.join()
    stop.set()
    for thread in [*publishers, *listeners]:
        thread.join()
    failures += [failure for listener in listeners for failure in listener.failures]
    assert not failures, failures[:5]
    sent = {(channel.encode(), it.number): it.sent[channel] for it in publishers for channel in CHANNELS}
    assert all(listener.counts == sent for listener in listeners)
    print(f"{sum(sent.values())} messages")
