"""A command on a terminal of its own, and the output that a person would have seen there."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading

from harness.server import environment, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until


class Terminal:
    """`sheaf` with these arguments, its output and its errors on one terminal. Use it with `with`."""

    def __init__(self, *arguments: object):
        self._primary, secondary = pty.openpty()
        self._bytes = b""
        # indicatif draws nothing on a terminal without capabilities.
        self._process = subprocess.Popen(
            [sheaf_binary(), *map(str, arguments)],
            env=environment() | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=secondary,
            stderr=secondary,
        )
        os.close(secondary)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        os.close(self._primary)

    def _read(self) -> None:
        # On Linux, a read fails once the other end is closed.
        with contextlib.suppress(OSError):
            while piece := os.read(self._primary, 1 << 16):
                self._bytes += piece

    def seen(self) -> str:
        """All output so far, with the cursor movements."""
        return self._bytes.decode(errors="replace")

    def percents(self) -> list[int]:
        """The frames of a progress bar, in the order in which they were drawn."""
        return [int(percent) for percent in re.findall(r"\] (\d+)%", self.seen())]

    def wait_for(self, text: str) -> None:
        """Waits until the text was written."""
        wait_until(f"{text!r} on the terminal", lambda: text in self.seen())

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def wait_exit(self) -> int:
        """Waits until the command has ended and all of its output is read; returns the exit status."""
        status = self._process.wait(PATIENCE_S)
        self._reading.join()
        return status
