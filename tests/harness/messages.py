"""Numbered messages: publishers at full speed, and subscribers that detect any lost, repeated or misplaced
message.
"""

import threading

from harness.resp import Connection, encode
from harness.waiting import wait_until

PIPELINE = 50
# The maximum number of messages of one publisher and channel on their way to a subscriber. All of them are
# threads of one process, and the subscribers must not be disconnected for being slow.
WINDOW = 2000


class Listener(threading.Thread):
    """Subscribes to channels and reads the messages of this many publishers."""

    def __init__(self, port: int, channels: list[str], publishers: int):
        super().__init__()
        self._connection, self._publishers = Connection(port), publishers
        self._connection.send(encode("SUBSCRIBE", *channels))
        assert [self._connection.read()[2] for _ in channels] == list(range(1, len(channels) + 1))
        # By channel and publisher.
        self.counts: dict[tuple[bytes, int], int] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        ended = 0
        while ended < self._publishers:
            _, channel, data = self._connection.read()
            publisher, count = map(int, data.split(maxsplit=2)[:2])
            if publisher < 0:
                ended += 1
                continue
            expected = self.counts.get((channel, publisher), 0)
            if count != expected:
                self.failures.append(f"{count} of {publisher} on {channel}, expected {expected}")
            self.counts[channel, publisher] = count + 1
        self._connection.close()


class Publisher(threading.Thread):
    """Publishes numbered messages to all channels in turn until stopped; the subscribers must keep up."""

    def __init__(
        self,
        port: int,
        number: int,
        channels: list[str],
        stop: threading.Event,
        listeners: list[Listener],
        padding: str = "",
        window: int = WINDOW,
    ):
        super().__init__()
        self._connection, self._channels, self._stop_now = Connection(port), channels, stop
        self._listeners, self._padding, self._window = listeners, padding, window
        self.number = number
        self.sent = dict.fromkeys(channels, 0)

    def run(self) -> None:
        while not self._stop_now.is_set():
            commands = []
            for _ in range(PIPELINE):
                for channel in self._channels:
                    message = f"{self.number} {self.sent[channel]} {self._padding}"
                    commands.append(encode("PUBLISH", channel, message))
                    self.sent[channel] += 1
            self._connection.send(b"".join(commands))
            for _ in commands:
                self._connection.read()
            wait_until("listeners to follow", self._is_followed)
        # This message comes after all others of this publisher, whatever the order of messages of other workers is.
        self._connection.call("PUBLISH", self._channels[0], "-1 0")
        self._connection.close()

    def _is_followed(self) -> bool:
        return all(
            listener.counts.get((channel.encode(), self.number), 0) >= self.sent[channel] - self._window
            for listener in self._listeners
            for channel in self._channels
        )
