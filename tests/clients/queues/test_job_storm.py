"""The storm's own checks: an actor's output is read to its last line, and every violation fails the test."""

import sys

import pytest

from harness.job_storm import Actor, Journal


@pytest.fixture
def journal() -> Journal:
    """One job is accepted and completed, another only accepted."""
    journal = Journal()
    for line in ("accepted 1", "accepted 2", "ran 1", "completed 1"):
        journal.note(line)
    return journal


def test_a_job_may_run_again_until_it_is_completed(journal):
    journal.note("ran 2")
    journal.note("ran 2")
    journal.wait_until("three runs", lambda: journal.runs.total() == 3)
    assert (journal.repeats, journal.progress) == (1, 4)


@pytest.mark.parametrize(
    ("line", "why"), [("ran 1", "job 1 was completed and ran again"), ("walked 2", "an actor said 'walked 2'")]
)
def test_a_violation_ends_the_wait(journal, line, why):
    journal.note(line)
    with pytest.raises(AssertionError, match=why):
        journal.wait_until("something else", lambda: False)


def actor(journal: Journal, directory, program: str) -> Actor:
    """A process that runs `program`."""
    return Actor("worker-1", [sys.executable, "-u", "-c", program], journal, directory / "errors")


def test_an_actor_that_fails_ends_the_wait(journal, tmp_path):
    actor(journal, tmp_path, "print('ran 2'); raise SystemExit('no server')")
    with pytest.raises(AssertionError, match="worker-1 ended with status 1:\nno server"):
        journal.wait_until("something else", lambda: False)
    assert journal.runs[2] == 1


def test_an_actor_that_is_killed_was_heard(journal, tmp_path):
    killed = actor(journal, tmp_path, "import signal; print('ran 2\\nran', end=''); signal.pause()")
    journal.wait_until("a line", lambda: 2 in journal.runs)
    killed.kill()
    journal.wait_until("nothing more", lambda: not journal.failures and journal.runs.total() == 2)


def test_a_job_that_was_added_again_may_run_again(journal):
    journal.note("unsure 1")
    journal.note("ran 1")
    journal.wait_until("another run", lambda: journal.runs[1] == 2)
