"""A server that takes continuous snapshots while it is measured.

`with Watched(server, ...)` is the length of one measurement. A thread of the harness requests the next
snapshot as soon as one is complete, and samples the server's memory. In an undisturbed measurement the thread
only samples memory, so that both carry the same burden.
"""

import threading
import time
from collections.abc import Callable

from servers import SNAPSHOT_POLL_S, Server, ServerFailed


class Watched:
    """Memory of the server, and its snapshots if `with_snapshots`, during the block."""

    def __init__(self, server: Server, with_snapshots: bool):
        self.rss_bytes_max = 0
        # The memory that the peers' forked child does not share with its parent, as they report it.
        self.copied_bytes_max = 0
        # The duration of each complete snapshot.
        self.snapshots_s: list[float] = []
        self._server = server
        self._ended = threading.Event()
        self._failure: Exception | None = None
        work = self._take_snapshots if with_snapshots else self._look
        self._thread = threading.Thread(target=self._run, args=(work,))

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        """Waits for the last snapshot, which would disturb the next measurement."""
        self._ended.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (ServerFailed, OSError) as failure:
            self._failure = failure

    def _look(self) -> None:
        while not self._ended.wait(SNAPSHOT_POLL_S):
            self._note_memory()

    def _take_snapshots(self) -> None:
        with self._server.client() as client:
            while not self._ended.is_set():
                began = time.monotonic()
                self._server.begin_snapshot(client)
                while self._server.is_taking_snapshot(client):
                    self._note_memory()
                    time.sleep(SNAPSHOT_POLL_S)
                self.snapshots_s.append(time.monotonic() - began)
                copied_bytes = int(client.info().get("rdb_last_cow_size", "0"))
                self.copied_bytes_max = max(self.copied_bytes_max, copied_bytes)

    def _note_memory(self) -> None:
        self.rss_bytes_max = max(self.rss_bytes_max, self._server.rss_bytes())
