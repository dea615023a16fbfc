"""Tells `./test` which Python tests are running, so that it can name those that hang. A plugin of pytest."""

import os


def note(line: str) -> None:
    file = os.environ.get("SHEAF_TEST_PROGRESS")
    # The workers of a parallel run report to the process that writes.
    if file and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(file, "a") as progress:
            progress.write(line + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    note(f"begins {nodeid}")


def pytest_runtest_logfinish(nodeid: str) -> None:
    note(f"ends {nodeid}")
