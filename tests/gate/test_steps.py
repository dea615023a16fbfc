"""The runner itself: what hangs is ended and named, and nothing of it lives on. Run by `./test` (bench harness)."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gate import outputs, processes  # noqa: E402
from gate.steps import Failed, Run, Step, node_tests  # noqa: E402

TESTS = Path(__file__).resolve().parent.parent
# Leaves its session and its parent, and ignores SIGTERM, as a server of a test might.
STUBBORN = "setsid bash -c 'trap \"\" TERM; echo $$ >stubborn; while :; do sleep 1; done' & "


class StepsTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.room = Path(directory.name)
        (self.room / "logs").mkdir()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def run_lanes(self, *lanes: list[Step], shared: Sequence[Step] = (), limit_s: int = 60) -> tuple[int, str]:
        """Runs the lanes; returns the exit status and all that was printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            run = Run(self.room / "logs", dict(os.environ), limit_s)
            with contextlib.suppress(Failed):
                run.lanes(*lanes, shared=shared)
            status = run.report()
        return status, out.getvalue()

    def assert_is_gone(self, file: str) -> None:
        pid = int((self.room / file).read_text())
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        # A dead process stays in the table until its parent has asked for its end.
        self.assertEqual(state, "Z", processes.describe(iter([pid])))

    def test_steps_that_pass_are_counted(self) -> None:
        output = "echo 'test result: ok. 3 passed; 0 failed'; echo '4 passed, 1 skipped in 2.50s'; echo '# pass 5'"
        status, text = self.run_lanes([Step("three suites", 10, output)], [Step("nothing", 10, "true")])
        self.assertEqual(status, 0)
        self.assertTrue(text.endswith("12 passed, 0 failed\n"), text)

    def test_a_shared_step_runs_on_the_lane_that_is_free(self) -> None:
        # The long step waits for the shared ones, and would reach its limit if one of them waited for it.
        shared = [Step(f"shared {number}", 30, f"touch {self.room}/{number}") for number in range(3)]
        waits = f"until [ -e {self.room}/0 ] && [ -e {self.room}/1 ] && [ -e {self.room}/2 ]; do sleep 0.05; done"
        status, text = self.run_lanes([Step("long", 30, waits)], [Step("short", 30, "true")], shared=shared)
        self.assertEqual(status, 0, text)
        for step in shared:
            self.assertEqual(text.count(f"{step.name} begins"), 1, text)

    def test_a_server_that_hangs_is_ended_at_the_limit_and_listed(self) -> None:
        command = f"cd {self.room}; {STUBBORN} echo starting; sleep 1000"
        status, text = self.run_lanes([Step("server", 1, command)])
        self.assertEqual(status, 1)
        self.assertIn("server: not done after its limit of 1 s", text)
        self.assertIn("sleep 1000", text)
        self.assert_is_gone("stubborn")

    def test_a_python_test_that_hangs_is_named(self) -> None:
        (self.room / "conftest.py").symlink_to(TESTS / "gate" / "progress.py")
        hangs = """
            import time
            def test_ends(): pass
            def test_hangs(): time.sleep(1000)
        """
        (self.room / "test_two.py").write_text(textwrap.dedent(hangs))
        probe = subprocess.run([sys.executable, "-m", "pytest", "--version"], capture_output=True)
        if probe.returncode != 0:
            self.skipTest("this Python has no pytest")
        command = f"cd {self.room}; {sys.executable} -m pytest -q -p no:cacheprovider test_two.py"
        status, text = self.run_lanes([Step("python", 15, command)])
        self.assertEqual(status, 1)
        self.assertIn("had begun and not ended: test_two.py::test_hangs", text)
        self.assertNotIn("not ended: test_two.py::test_ends", text)

    def test_a_unit_test_that_hangs_is_named(self) -> None:
        lines = [
            "     Running unittests src/lib.rs (target/debug/deps/pubsub-0123456789abcdef)",
            "test a::slow has been running for over 60 seconds",
            "test b::hangs has been running for over 60 seconds",
            "test a::slow ... ok <61.000s>",
        ]
        printed = "; ".join(f"echo '{line}'" for line in lines)
        status, text = self.run_lanes([Step("unit tests", 1, f"{printed}; sleep 1000")])
        self.assertEqual(status, 1)
        self.assertIn("had begun and not ended: b::hangs", text)
        self.assertNotIn("not ended: a::slow", text)

    def test_a_node_test_that_hangs_is_ended_and_named(self) -> None:
        script = """
            const { test } = require('node:test');
            test('ends', () => 0);
            test('hangs', () => new Promise(() => setInterval(() => 0, 9)));
        """
        (self.room / "hangs.test.js").write_text(script)
        status, text = self.run_lanes([Step("node", 60, node_tests(str(self.room), files=2, timeout_ms=3000))])
        self.assertEqual(status, 1)
        self.assertIn("had begun and not ended: hangs", text)
        self.assertNotIn("not ended: ends", text)

    def test_a_failure_ends_the_other_lane_at_once_and_is_named(self) -> None:
        lines = [
            "     Running unittests src/lib.rs (target/debug/deps/pubsub-0123456789abcdef)",
            "test local::tests::breaks ... FAILED <0.100s>",
            "SHEAF_SIM_SEED=17: a write is lost",
        ]
        fails = "; ".join(f"echo '{line}'" for line in lines) + "; exit 101"
        status, text = self.run_lanes([Step("unit tests", 60, fails)], [Step("other", 60, f"cd {self.room}; {STUBBORN} sleep 1000")])
        self.assertEqual(status, 1)
        self.assertIn("failed: pubsub local::tests::breaks", text)
        self.assertIn("alone: cargo test -p pubsub --lib local::tests::breaks", text)
        self.assertIn("SHEAF_SIM_SEED=17", text)
        self.assertRegex(text, r"other +ended after \d+ s")
        if (self.room / "stubborn").exists():
            self.assert_is_gone("stubborn")

    def failing_once(
        self, test: str, repeats_that_fail: int, more: str = "", ends_with: str = "&& echo 1 passed in 0.01s"
    ) -> Step:
        """A step of pytest's words whose test failed; its repeats fail until there were this many."""
        runs = self.room / "target/test-venv/bin/pytest"
        runs.parent.mkdir(parents=True, exist_ok=True)
        runs.write_text(f"""#!/bin/bash
            echo "$PYTEST_ADDOPTS" "$@" >>{self.room}/repeats
            [ $(wc -l <{self.room}/repeats) -gt {repeats_that_fail} ] {ends_with}
        """)
        runs.chmod(0o755)
        mock = unittest.mock.patch.dict(os.environ, {"CARGO_TARGET_DIR": str(self.room / "target")})
        mock.start()
        self.addCleanup(mock.stop)
        fails = f"echo '{more}'; echo 'FAILED {test} - assert 1 == 2'; echo '1 failed, 7 passed in 3.21s'; exit 1"
        return Step("suite", 60, fails, repeated=True)

    def test_a_test_that_passes_three_times_alone_is_named_as_unsteady(self) -> None:
        status, text = self.run_lanes([self.failing_once("faults/test_x.py::test_x[a b]", 0)])
        self.assertEqual(status, 0, text)
        self.assertIn("UNSTEADY, to be mended: faults/test_x.py::test_x[a b] failed once", text)
        self.assertTrue(text.endswith("8 passed, 0 failed\n"), text)
        repeat = "-m 'not oracle' -c tests/pytest.ini tests/faults/test_x.py::test_x[a b]\n"
        self.assertEqual((self.room / "repeats").read_text(), repeat * 3)

    def test_a_test_that_fails_again_fails_the_run(self) -> None:
        status, text = self.run_lanes([self.failing_once("faults/test_x.py::test_x", 1)])
        self.assertEqual(status, 1)
        self.assertIn("failed: faults/test_x.py::test_x", text)
        self.assertNotIn("UNSTEADY", text)

    def test_a_repeat_that_runs_no_test_fails_the_run(self) -> None:
        step = self.failing_once("faults/test_x.py::test_x", 0, ends_with="")
        status, text = self.run_lanes([step])
        self.assertEqual(status, 1)
        self.assertNotIn("UNSTEADY", text)

    def test_a_name_with_the_letters_of_a_pattern_is_repeated_as_it_is(self) -> None:
        log = self.room / "logs" / "x.log"
        log.write_text("not ok 3 - what (a+b) is\n")
        [(_, alone)] = outputs.read(log).failed
        self.assertIn(r"'what\ \(a\+b\)\ is'", alone)

    def test_a_crash_of_the_server_is_never_chance(self) -> None:
        step = self.failing_once("faults/test_x.py::test_x", 0, more="thread main panicked at crates/engine")
        status, _ = self.run_lanes([step])
        self.assertEqual(status, 1)
        self.assertFalse((self.room / "repeats").exists())

    def test_more_than_two_unsteady_tests_fail_the_run(self) -> None:
        steps = [self.failing_once(f"faults/test_x.py::test_{number}", 0) for number in range(3)]
        status, text = self.run_lanes(steps)
        self.assertEqual(status, 1)
        self.assertEqual(text.count("UNSTEADY"), 2, text)

    def test_the_limit_of_the_run_ends_a_step(self) -> None:
        status, text = self.run_lanes([Step("long", 60, "sleep 1000")], limit_s=0)
        self.assertEqual(status, 1)
        self.assertIn("long: the run is at its limit of 0 s", text)

    def test_a_signal_ends_the_run_and_its_processes(self) -> None:
        script = f"""
            import sys; sys.path.insert(0, {str(TESTS)!r})
            from pathlib import Path
            from gate.steps import *
            run = Run(Path({str(self.room / "logs")!r}), dict(os.environ), 60)
            try:
                run.lanes([Step("server", 60, "cd {self.room}; echo $$ >begun; mkfifo ready; cat ready")])
            except Failed:
                sys.exit(run.report())
        """
        run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        while not (self.room / "ready").exists():
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(60), 1)
        self.assert_is_gone("begun")

    def test_failures_of_pytest_are_named_with_their_command(self) -> None:
        log = self.room / "logs" / "x.log"
        log.write_text("FAILED faults/test_groups.py::test_x[a-b] - assert 1 == 2\n1 failed, 7 passed in 3.21s\n")
        output = outputs.read(log)
        self.assertEqual(output.passed, 7)
        name, alone = output.failed[0]
        self.assertEqual(name, "faults/test_groups.py::test_x[a-b]")
        self.assertIn("tests/faults/test_groups.py::test_x[a-b]", alone)

    def test_a_failed_comparison_is_repeated_beside_the_same_peer(self) -> None:
        log = self.room / "logs" / "x.log"
        log.write_text("FAILED differential/test_y.py::test_y[valkey-9.1-resp2] - differs\n")
        [(_, alone)] = outputs.read(log).failed
        self.assertIn(" --seed 1 --peer valkey-9.1 ", alone)


if __name__ == "__main__":
    unittest.main()
