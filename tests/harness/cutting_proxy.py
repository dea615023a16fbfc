"""A proxy that forwards connections, counts the server's bytes, and cuts connections after a number of bytes
or on demand.
"""

import contextlib
import socket
import threading
from collections.abc import Callable


class CuttingProxy:
    """Forwards to a port of this machine until the server has sent `bytes_max` bytes. Close it, or use it
    with `with`.

    Each connection is cut after `connection_bytes_max` bytes from the server, and `cuts` counts these cuts.
    `edit` changes the server's data, piece by piece as it arrives.
    """

    def __init__(
        self,
        port: int,
        bytes_max: int | None = None,
        connection_bytes_max: int | None = None,
        edit: Callable[[bytes], bytes] | None = None,
    ):
        self._target = port
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._edit = edit
        self._counting = threading.Lock()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bytes = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()

    def cut(self) -> None:
        """Cuts all connections; new ones are forwarded as before."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    # The target is being restarted: later clients reach it again.
                    client.close()
                    continue
                self._connections += (client, server)
                for work in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._forward, args=work, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        forwarded = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if counted and (piece := self._count(piece)) is None:
                    break
                target.sendall(piece)
                forwarded += len(piece)
                if counted and self._connection_bytes_max and forwarded >= self._connection_bytes_max:
                    self.cuts += 1
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, piece: bytes) -> bytes | None:
        with self._counting:
            if self._bytes_max is not None and self.bytes >= self._bytes_max:
                return None
            self.bytes += len(piece)
        return self._edit(piece) if self._edit else piece
