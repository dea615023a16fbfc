"""Writers of numbers to a group, which know what was acknowledged. They need no clock: their data never expires."""

import contextlib
import threading

from harness import resp
from harness.groups import wait_leader
from harness.replicas import call
from harness.resp import UNREACHABLE
from harness.server import Server
from harness.waiting import wait_until


class Writer(threading.Thread):
    """Appends numbers to a list of its own at the server that accepts them, until it is told to end."""

    def __init__(self, servers: list[Server], key: str):
        super().__init__(daemon=True)
        self.servers, self.key = servers, key
        self.acknowledged: list[int] = []
        self.unknown: set[int] = set()
        self.ends = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            for server in self.servers:
                with contextlib.suppress(*UNREACHABLE), server.connect() as connection:
                    while not self.ends.is_set():
                        number += 1
                        self.unknown.add(number)
                        answer = connection.call("RPUSH", self.key, number)
                        if isinstance(answer, resp.ErrorReply):
                            # refused before it was executed
                            self.unknown.discard(number)
                            break
                        self.unknown.discard(number)
                        self.acknowledged.append(number)

    def check(self, leader: Server) -> None:
        """Checks that the list has each acknowledged number once, in order, and else only numbers of unknown outcome."""
        self.ends.set()
        self.join()
        found = [int(number) for number in call(leader, "LRANGE", self.key, 0, -1)]
        assert found == sorted(set(found)), "in order, and once"
        assert set(self.acknowledged) <= set(found), sorted(set(self.acknowledged) - set(found))[:10]
        assert set(found) <= set(self.acknowledged) | self.unknown
        assert self.acknowledged, "it has written something"


@contextlib.contextmanager
def writing(servers: list[Server], count: int = 3):
    """Writers that write within the block; afterwards the group must have every acknowledged number."""
    writers = [Writer(servers, f"list:{number}") for number in range(count)]
    for writer in writers:
        writer.start()
    yield writers
    leader = wait_leader(servers)
    for writer in writers:
        writer.check(leader)


def wait_more(writers: list[Writer], more: int = 20) -> None:
    """Waits until each writer has written more."""
    goals = [len(writer.acknowledged) + more for writer in writers]

    def has_written() -> bool:
        return all(len(writer.acknowledged) >= goal for writer, goal in zip(writers, goals, strict=True))

    wait_until("the writers to go on", has_written)
