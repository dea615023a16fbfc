"""A false leader: answers a replica's claim with bytes chosen by the test."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

POLYNOMIAL = 0x82F63B78
LOG, HEARTBEAT, FENCED, ACK = 1, 2, 3, 4


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit: headers are short."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(kind: int, epoch: int, first: int, second: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame with a correct checksum, as crates/replication/src/frame.rs describes it."""
    length = len(payload) if length is None else length
    header = struct.pack("<4sB3xIIQQQI", b"SREP", kind, epoch, length, first, second, 0, 0)
    return header + struct.pack("<I", crc32c(header)) + payload


class Claim:
    """The replica's data about itself."""

    def __init__(self, request: bytes):
        words = request.split(b"\r\n")[2::2]
        self.is_marks = words[1:2] == [b"MARKS"]
        if not self.is_marks:
            self.epoch, self.end = int(words[3]), int(words[4])


class FalseLeader:
    """Listens on a port. `answer` gets each claim and returns the bytes to send. Use it with `with`."""

    def __init__(self, port: int, answer: Callable[[Claim], bytes]):
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self._connections: list[socket.socket] = []
        # The number of answers given.
        self.answered = 0
        # Connections that the replica has closed after an answer.
        self.closed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "FalseLeader":
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread, so that the port is free afterwards.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            request = connection.recv(1 << 16)
            if not request:
                return
            connection.sendall(self._answer(Claim(request)))
            self.answered += 1
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):
                    pass
            self.closed += 1
