"""Fixtures for groups under faults, and for clocks that are set."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.couch import Couch
from harness.group_clients import DATABASE
from harness.history import build_checker
from harness.nemesis import Group
from harness.time_of_day import TimeOfDay, build_library


@pytest.fixture(scope="session")
def checker(tmp_path_factory) -> Path:
    """The binary of the checker of histories."""
    return build_checker(tmp_path_factory.mktemp("checker"))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """See `harness/time_of_day.py`."""
    return build_library(tmp_path_factory.mktemp("time-of-day"))


@pytest.fixture
def new_time(library, tmp_path):
    """Makes times of day, each for one server."""
    made: list[TimeOfDay] = []

    def make(offset_s: float = 0) -> TimeOfDay:
        made.append(TimeOfDay(tmp_path / f"time-{len(made)}", library))
        made[-1].set(offset_s)
        return made[-1]

    return make


@pytest.fixture
def group(new_server, request, tmp_path) -> Iterator[Group]:
    """A healthy group on hosts and disks of its own, with a database for documents."""
    count, seed = request.config.getoption("group_members"), request.config.getoption("seed")
    with Group(new_server, tmp_path, count, seed, request.config.getoption("group_witness")) as made:
        made.wait_healthy()
        leader = made.leader()
        with leader.options.namespace.entered() if made.network else contextlib.nullcontext():
            with Couch(leader.http_port) as couch:
                assert couch.send("PUT", f"/{DATABASE}").status == 201
        try:
            yield made
        finally:
            findings = request.config.getoption("findings")
            if findings is not None and getattr(request.node, "is_broken", True):
                _keep(tmp_path, Path(findings) / f"seed-{seed}-{int(time.time())}")


def _keep(place: Path, kept: Path) -> None:
    """Keeps the histories that remain, and the logs."""
    kept.mkdir(parents=True)
    for path in [*place.glob("history-*.jsonl"), *place.glob("data-*.log"), *place.glob("data-*/group.json")]:
        shutil.copy(path, kept / (path.name if path.suffix != ".json" else f"{path.parent.name}-{path.name}"))
    print(f"kept in {kept}", flush=True)
