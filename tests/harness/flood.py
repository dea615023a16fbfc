"""A closed loop: publishers that send the next messages as soon as the last ones are confirmed, and
subscribers that read as fast as they can. All messages of a flood have the same length, so that many can be
checked quickly.
"""

import selectors
import socket
import threading
from collections.abc import Iterator
from itertools import count

from harness.resp import encode

CHANNEL = "ch"
PIPELINE = 16
RECEIVE_BYTES = 1 << 20
# Far more than any run takes.
SILENCE_S = 60.0


def payload(publisher: int, number: int, length: int) -> bytes:
    """A message that holds its publisher and its number."""
    return (b"%04d %08d " % (publisher, number)).ljust(length, b"x")


class Reader:
    """One subscriber: checks that every publisher's messages arrive once and in order."""

    def __init__(self, port: int, length: int):
        frame = encode("message", CHANNEL, b"x" * length)
        self._buffer, self._head = b"", frame[: frame.index(b"xx")]
        self._step = len(self._head) + length + 2
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S)
        self.socket.sendall(encode("SUBSCRIBE", CHANNEL))
        confirmation = b"*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n"
        assert self.socket.recv(len(confirmation), socket.MSG_WAITALL) == confirmation
        # The number of received messages, by publisher.
        self.counts: dict[int, int] = {}

    def read(self) -> None:
        """Reads and checks the received messages."""
        received = self.socket.recv(RECEIVE_BYTES)
        if not received:
            raise AssertionError(f"a subscriber was cut after {sum(self.counts.values())} messages")
        data, head, step = self._buffer + received, self._head, self._step
        whole = len(data) - len(data) % step
        for at in range(0, whole, step):
            assert data.startswith(head, at), data[at : at + step]
            start = at + len(head)
            publisher, number = int(data[start : start + 4]), int(data[start + 5 : start + 13])
            expected = self.counts.get(publisher, 0)
            assert number == expected, f"{number} of {publisher} instead of {expected}"
            self.counts[publisher] = number + 1
        self._buffer = data[whole:]


class Confirmations:
    """The unsent messages of one publisher, and the unconfirmed ones."""

    def __init__(self, batches: Iterator[bytes]):
        self._batches, self._unread, self._missing = batches, b"", 0

    @property
    def is_missing_none(self) -> bool:
        """Whether all sent messages are confirmed."""
        return self._missing == 0

    def go_on(self, connection: socket.socket) -> bool:
        """Sends the next messages, if there are any."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        connection.sendall(batch)
        self._missing = PIPELINE
        return True

    def receive(self, connection: socket.socket) -> list[int]:
        """Reads the confirmations."""
        received = connection.recv(RECEIVE_BYTES)
        assert received, "a publisher was cut"
        *replies, self._unread = (self._unread + received).split(b"\r\n")
        self._missing -= len(replies)
        return [int(reply.removeprefix(b":")) for reply in replies]


class Flood:
    """See the module documentation. Each publisher sends this many messages, in whole pipelines."""

    def __init__(self, port: int, publishers: int, readers: int, messages: int, length: int):
        self._port, self._publishers, self._messages, self._length = port, publishers, messages, length
        self.readers = [Reader(port, length) for _ in range(readers)]
        self.failures: list[str] = []
        # The reply to each message.
        self.confirmed: list[int] = []

    def run(self) -> None:
        """Returns when all messages are published and received; raises after an error."""
        reading = threading.Thread(target=self._guarded, args=(self._read,))
        publishing = threading.Thread(target=self._guarded, args=(self._publish,))
        reading.start()
        publishing.start()
        publishing.join()
        reading.join()
        for reader in self.readers:
            reader.socket.close()
        assert not self.failures, self.failures[:5]
        assert len(self.confirmed) == self._publishers * self._messages

    def _guarded(self, run) -> None:
        try:
            run()
        except (AssertionError, OSError) as failure:
            self.failures.append(str(failure))

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for reader in self.readers:
                selector.register(reader.socket, selectors.EVENT_READ, reader)
            everything = dict.fromkeys(range(self._publishers), self._messages)
            while selector.get_map():
                ready = selector.select(SILENCE_S)
                assert ready, "nothing comes any more"
                for key, _ in ready:
                    key.data.read()
                    if key.data.counts == everything:
                        selector.unregister(key.data.socket)

    def _publish(self) -> None:
        with selectors.DefaultSelector() as selector:
            for publisher in range(self._publishers):
                connection = socket.create_connection(("127.0.0.1", self._port), timeout=SILENCE_S)
                selector.register(connection, selectors.EVENT_READ, Confirmations(self._batches(publisher)))
                selector.get_key(connection).data.go_on(connection)
            while selector.get_map():
                ready = selector.select(SILENCE_S)
                assert ready, "no publisher is answered any more"
                for key, _ in ready:
                    self.confirmed += key.data.receive(key.fileobj)
                    if key.data.is_missing_none and not key.data.go_on(key.fileobj):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()

    def _batches(self, publisher: int) -> Iterator[bytes]:
        for first in count(0, PIPELINE):
            if first == self._messages:
                return
            messages = (payload(publisher, number, self._length) for number in range(first, first + PIPELINE))
            yield b"".join(encode("PUBLISH", CHANNEL, message) for message in messages)
