"""Two network namespaces with a line between them that can be slow, or cut in one direction or both. Needs
root.

The test itself stays in its own namespace. A socket belongs to the namespace in which it was created, so
clients enter the namespace of their server for a moment (`Namespace.entered`), independently of the line.

A cut loses packets silently: they are sent to a hardware address that does not exist.
"""

import contextlib
import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
DEVICE = "line"
NOBODY = "02:00:00:00:00:ff"
NUMBERS = itertools.count()


class Namespace:
    """One end of a line, with a host of its own behind it."""

    def __init__(self, number: int, end: int):
        self.name = f"sheaf-{os.getpid()}-{number}-{end}"
        self.address = f"10.77.0.{end}"
        self.hardware_address = f"02:00:00:00:00:0{end}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread creates in the block are in the namespace."""
        with Path("/proc/thread-self/ns/net").open() as here, Path("/run/netns", self.name).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def wrapper(self) -> tuple[str, ...]:
        """The prefix of a command line that runs it there."""
        return ("ip", "netns", "exec", self.name)


class Line:
    """Two namespaces and the line that joins them. Close it, or use it with `with`."""

    def __init__(self) -> None:
        number = next(NUMBERS)
        self.left, self.right = Namespace(number, 1), Namespace(number, 2)
        for end in (self.left, self.right):
            made = subprocess.run(["ip", "netns", "add", end.name], capture_output=True, text=True, check=False)
            if made.returncode != 0:
                self.close()
                pytest.skip(f"no network namespaces on this machine: {made.stderr.strip()}")
        ends = (self.left, self.right)
        one, other = (("name", DEVICE, "address", end.hardware_address, "netns", end.name) for end in ends)
        join = ["ip", "link", "add", *one, "type", "veth", "peer", *other]
        joined = subprocess.run(join, capture_output=True, text=True, check=False)
        if joined.returncode != 0:
            self.close()
            pytest.skip(f"no virtual lines on this machine: {joined.stderr.strip()}")
        for end in (self.left, self.right):
            _run("ip", "-n", end.name, "address", "add", f"{end.address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                _run("ip", "-n", end.name, "link", "set", device, "up")
        self.heal()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut_from(self, end: Namespace) -> None:
        """Loses the packets that this end sends."""
        self._send_to(end, NOBODY)

    def cut(self) -> None:
        """Loses the packets of both ends."""
        self.cut_from(self.left)
        self.cut_from(self.right)

    def heal(self) -> None:
        """Delivers all packets again."""
        self._send_to(self.left, self.right.hardware_address)
        self._send_to(self.right, self.left.hardware_address)

    def slow_down(self) -> None:
        """Packets take 20 ms each way; if the kernel has no delay queue, they wait before a narrow line
        instead.
        """
        for end in (self.left, self.right):
            queue = ["tc", "-n", end.name, "qdisc", "add", "dev", DEVICE, "root"]
            delayed = subprocess.run([*queue, "netem", "delay", "20ms"], capture_output=True, check=False)
            if delayed.returncode != 0:
                _run(*queue, "tbf", "rate", "40mbit", "burst", "16kb", "latency", "400ms")

    def close(self) -> None:
        """Removes everything."""
        for end in (self.left, self.right):
            subprocess.run(["ip", "netns", "delete", end.name], capture_output=True, check=False)

    def _send_to(self, end: Namespace, hardware_address: str) -> None:
        peer = self.right if end is self.left else self.left
        neighbour = [peer.address, "lladdr", hardware_address, "dev", DEVICE, "nud", "permanent"]
        _run("ip", "-n", end.name, "neighbour", "replace", *neighbour)


def _enter(descriptor: int) -> None:
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
