"""Hosts in network namespaces, each on a line to one switch. Packets from any host to any other can be lost, in
one direction or both, and lines can be slow. Needs root.

The test itself stays in its own namespace. A socket belongs to the namespace in which it was created, so
clients enter the namespace of their server for a moment (`Namespace.entered`), independently of the lines; or a
thread of clients enters a namespace for good (`Namespace.enter`), and uses its line.

A cut loses packets silently: they are sent to a hardware address that does not exist.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
DEVICE = "line"
NOBODY = "02:00:00:00:00:ff"
NUMBERS = itertools.count()


class NoNetwork(Exception):
    """This machine does not let us create namespaces or lines."""


class Namespace:
    """A host at the end of a line."""

    def __init__(self, number: int, end: int):
        self.name = f"sheaf-{os.getpid()}-{number}-{end}"
        self.address = f"10.77.0.{end}"
        self.hardware_address = f"02:00:00:00:00:{end:02x}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread creates in the block are in the namespace."""
        with Path("/proc/thread-self/ns/net").open() as here:
            self.enter()
            try:
                yield
            finally:
                _enter(here.fileno())

    def enter(self) -> None:
        """All sockets that this thread creates from now on are in the namespace."""
        with Path("/run/netns", self.name).open() as there:
            _enter(there.fileno())

    def wrapper(self) -> tuple[str, ...]:
        """The prefix of a command line that runs it there."""
        return ("ip", "netns", "exec", self.name)


class Network:
    """This many hosts. Close it, or use it with `with`."""

    def __init__(self, count: int) -> None:
        number = next(NUMBERS)
        self.ends = [Namespace(number, end + 1) for end in range(count)]
        self._switch = Namespace(number, 0)
        try:
            self._build()
        except NoNetwork:
            self.close()
            raise

    def _build(self) -> None:
        for host in (self._switch, *self.ends):
            _try("ip", "netns", "add", host.name)
        _try("ip", "-n", self._switch.name, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self._switch.name, "link", "set", "switch", "up")
        for end in self.ends:
            own = ["name", DEVICE, "address", end.hardware_address, "netns", end.name]
            port = f"port-{end.address.rpartition('.')[2]}"
            _try("ip", "link", "add", *own, "type", "veth", "peer", "name", port, "netns", self._switch.name)
            _run("ip", "-n", self._switch.name, "link", "set", port, "master", "switch", "up")
            _run("ip", "-n", end.name, "address", "add", f"{end.address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                _run("ip", "-n", end.name, "link", "set", device, "up")
        self.heal()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lose(self, sender: Namespace, receiver: Namespace) -> None:
        """Loses the packets of this direction."""
        _direct(sender, receiver, NOBODY)

    def part(self, one: Namespace, other: Namespace) -> None:
        """Loses the packets of both directions."""
        self.lose(one, other)
        self.lose(other, one)

    def heal(self) -> None:
        """Delivers all packets again."""
        for sender, receiver in itertools.permutations(self.ends, 2):
            _direct(sender, receiver, receiver.hardware_address)

    def slow_down(self) -> None:
        """Packets take 20 ms each way; if the kernel has no delay queue, they wait before a narrow line
        instead.
        """
        for end in self.ends:
            queue = ["tc", "-n", end.name, "qdisc", "add", "dev", DEVICE, "root"]
            delayed = subprocess.run([*queue, "netem", "delay", "20ms"], capture_output=True, check=False)
            if delayed.returncode != 0:
                _run(*queue, "tbf", "rate", "40mbit", "burst", "16kb", "latency", "400ms")

    def close(self) -> None:
        """Removes everything."""
        for host in (*self.ends, self._switch):
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)


class Line(Network):
    """Two hosts. Skips the test where there can be none."""

    def __init__(self) -> None:
        try:
            super().__init__(2)
        except NoNetwork as missing:
            pytest.skip(str(missing))
        self.left, self.right = self.ends

    def cut_from(self, end: Namespace) -> None:
        """Loses the packets that this end sends."""
        self.lose(end, self.right if end is self.left else self.left)

    def cut(self) -> None:
        """Loses the packets of both ends."""
        self.part(self.left, self.right)


def _direct(sender: Namespace, receiver: Namespace, hardware_address: str) -> None:
    neighbour = [receiver.address, "lladdr", hardware_address, "dev", DEVICE, "nud", "permanent"]
    _run("ip", "-n", sender.name, "neighbour", "replace", *neighbour)


def _enter(descriptor: int) -> None:
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _try(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise NoNetwork(f"no network namespaces on this machine: {command[0]} is missing")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNetwork(f"no network namespaces on this machine: {' '.join(command)}: {done.stderr.strip()}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
