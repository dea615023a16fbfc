"""A small file system of its own, on a loop device, that a test may fill. Needs root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1024 * 1024
FILL_TRIES = 100


class Volume:
    """An ext4 file system in a file. `ballast` is a file that takes space, which the test frees later."""

    def __init__(self, place: Path, size_bytes: int):
        self._image = place / "volume.img"
        self.root = place / "volume"
        self._ballast = self.root / "ballast"
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        mounted = subprocess.run(
            ["mount", "-o", "loop", str(self._image), str(self.root)], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            pytest.skip(f"no loop mount on this machine: {mounted.stderr.strip()}")

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """No write to the volume ends within the block."""
        _run("fsfreeze", "--freeze", str(self.root))
        try:
            yield
        finally:
            _run("fsfreeze", "--unfreeze", str(self.root))

    def free_bytes(self) -> int:
        """The free space in bytes."""
        figures = os.statvfs(self.root)
        return figures.f_bavail * figures.f_frsize

    def fill_leaving(self, left_bytes: int) -> None:
        """Takes all space except about this many bytes. Tries again if a server takes space meanwhile."""
        for _ in range(FILL_TRIES):
            with self._ballast.open("wb") as ballast, contextlib.suppress(OSError):
                os.posix_fallocate(ballast.fileno(), 0, max(1, self.free_bytes() - left_bytes))
                return
        raise AssertionError(f"{self.root} cannot be filled")

    def fill(self) -> None:
        """Takes the remaining space to the last block, including blocks that the file system frees by its writes."""
        block = b"x" * os.statvfs(self.root).f_frsize
        with (self.root / "rest").open("wb", buffering=0) as rest:
            has_room = True
            while has_room:
                has_room = False
                with contextlib.suppress(OSError):
                    while rest.write(block):
                        has_room = True
                os.fsync(rest.fileno())

    def release(self) -> None:
        """Frees the space taken by `fill_leaving` and `fill`."""
        for path in (self._ballast, self.root / "rest"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmounts; lazily, so that a file left open cannot leave a mount behind."""
        subprocess.run(["umount", "--lazy", str(self.root)], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
