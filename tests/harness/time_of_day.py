"""The time of day of one server, which a test sets while the server runs. Needs a C compiler, as Rust does."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
YEAR_S = 365 * 24 * 3600


class TimeOfDay:
    """An offset from the time of day of this machine, in seconds; 0 at first."""

    def __init__(self, place: Path, library: Path):
        self._path, self._library = place, library
        self.set(0)

    def set(self, offset_s: float) -> None:
        """Sets the offset that the server sees from now on."""
        # The bytes of the file are overwritten in place, because the server has mapped them.
        with self._path.open("r+b" if self._path.exists() else "w+b") as file:
            file.write(struct.pack("<q", int(offset_s * 1e9)))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the environment with which the server is started."""
        return {"LD_PRELOAD": str(self._library), "TIME_OF_DAY_OFFSET": str(self._path)}


def build_library(place: Path) -> Path:
    """Builds the library that `TimeOfDay` has a server load. Skips the test where there is no C compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the time of day cannot be set")
    library = place / "time_of_day.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    return library
