"""kill -9 under edits of documents: every acknowledged revision is there, the feed has each document once.

`--kills N` sets the number of kills (a fifth of it here); `--seed S` repeats a run's choices, though not its timing.
"""

import random

import pytest

from harness.couch import Couch
from harness.document_storm import DocumentWriter, check_feed, storm
from harness.server import run_sheaf

WRITERS = 6
EDITS_MAX = 1500


@pytest.mark.oracle
@pytest.mark.sheaf_only
@pytest.mark.soak
@pytest.mark.parametrize("snapshots", [False, True])
def test_acknowledged_revisions_survive(new_server, request, snapshots):
    """With snapshots, documents are saved and the log before is removed again and again."""
    seed, kills = request.config.getoption("seed"), max(3, request.config.getoption("kills") // 5)
    extra = ("--snapshot-interval-seconds", "1", "--snapshot-log-bytes", "64kb") if snapshots else ()
    server = new_server(log_segment_bytes="1mb", extra=extra)
    chance = random.Random(seed)
    writers = [DocumentWriter(number, seed) for number in range(WRITERS)]
    server.start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/storm")
    for kill in range(kills):
        threads = storm(server, "storm", writers, chance.randrange(1, EDITS_MAX))
        if snapshots and kill % 2:
            with server.connect() as connection:
                connection.call("FLUSHALL")
        server.kill()
        for thread in threads:
            thread.join()
        checked = run_sheaf("check", str(server.directory))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        server.start()
        for writer in writers:
            writer.check(server, "storm")
        check_feed(server, "storm", writers)
    assert server.stop() == 0
    server.start()
    check_feed(server, "storm", writers)
    acknowledged = sum(writer.acknowledged for writer in writers)
    print(f"{kills} kills, {acknowledged} edits acknowledged; seed {seed}")
