"""A group whose members lose each other's packets for a while."""

import subprocess

import pytest

from harness.groups import member, wait_leader, wait_voters
from harness.network import Line
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only


def unacknowledged(host) -> list[str]:
    """The connections of a host that are open and wait for the other host to acknowledge what was sent."""
    command = [*host.wrapper(), "ss", "--numeric", "--tcp", "--no-header", "state", "established"]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [row for row in rows if int(row.split()[1]) > 0]


def test_no_message_waits_for_the_system_to_repeat_it(new_server):
    with Line() as line:

        def at(end, join=None):
            extra = ("--protected-mode", "no")
            return member(new_server, join, bind=f"{end.address} 127.0.0.1", namespace=end, extra=extra)

        first = at(line.left).start()
        wait_leader([first])
        second = at(line.right, first).start()
        wait_voters([first, second], 2)
        line.cut()
        wait_until("messages to be lost", lambda: unacknowledged(line.left))
        # The system would repeat them for a quarter of an hour, after longer and longer pauses.
        wait_until("their connections to end", lambda: not unacknowledged(line.left) and not unacknowledged(line.right))
        line.heal()
        wait_leader([first, second])
