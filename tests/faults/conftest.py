"""Fixtures for groups under faults."""

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


@pytest.fixture(scope="session")
def checker(tmp_path_factory) -> Path:
    """The binary of the checker of histories."""
    return build_checker(tmp_path_factory.mktemp("checker"))


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
