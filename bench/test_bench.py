"""Tests of the harness itself: its parsers, its computations, and the end of its processes.

    python3 -m unittest discover -s bench

They need no installed peer. Small scripts play the servers.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import driver  # noqa: E402
import fill as fill_module  # noqa: E402
import messages  # noqa: E402
import pouchdb  # noqa: E402
import procfs  # noqa: E402
import replication  # noqa: E402
import report  # noqa: E402
import resp  # noqa: E402
import servers  # noqa: E402
import stall  # noqa: E402
import starts  # noqa: E402
import suite  # noqa: E402
import tarantool  # noqa: E402
import transactions  # noqa: E402
from cases import CASES, CPU, OPS_S, UNMERGED, WRITES_PER_SYNC, Target, baseline, during  # noqa: E402
from document_cases import DOCUMENT_CASES, DocumentRun  # noqa: E402
from fill import Fill  # noqa: E402

REPORT = """SET: rps=0.0 (overall: 14000.0) avg_msec=0.105 (overall: 0.105)\r====== SET ======
  20000 requests completed in 0.22 seconds

Latency by percentile distribution:
0.000% <= 0.023 milliseconds (cumulative count 119)
99.805% <= 0.207 milliseconds (cumulative count 19961)
99.902% <= 0.247 milliseconds (cumulative count 19985)
100.000% <= 0.495 milliseconds (cumulative count 20000)

Cumulative distribution of latencies:
99.965% <= 0.303 milliseconds (cumulative count 19993)

Summary:
  throughput summary: 93023.26 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.035     0.016     0.039     0.047     0.071     0.495
"""

# Answers PING with PONG and INFO with its process id; `mode` selects a kind of failure.
FAKE_SERVER = """#!{python}
import os, socket, sys
arguments = sys.argv[1:]
port = int(arguments[arguments.index("--port") + 1])
if "--die" in arguments:
    print("no luck today", flush=True)
    sys.exit(3)
pid = 1 if "--wrong-pid" in arguments else os.getpid()
info = b"process_id:%d" % pid
listener = socket.create_server(("127.0.0.1", port))
while True:
    connection, _ = listener.accept()
    asked = connection.recv(1000)
    connection.sendall(b"+PONG\\r\\n" if b"PING" in asked else b"$%d\\r\\n%b\\r\\n" % (len(info), info))
    connection.close()
"""

# Answers every HTTP request with the given text.
FAKE_HTTP_SERVER = """#!{python}
import socket, sys
port, welcome = int(sys.argv[sys.argv.index("--port") + 1]), sys.argv[-1].encode()
listener = socket.create_server(("127.0.0.1", port))
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(welcome), welcome))
    connection.close()
"""


def load_case(name: str):
    return next(case for case in CASES if case.name == name)


class Reading(unittest.TestCase):
    def test_the_report_of_an_operation(self):
        expected = driver.Figures(93023.26, 0.039, 0.071, p999_ms=0.247, longest_ms=0.495, client_share=0.0)
        self.assertEqual(driver.parse_report(REPORT), expected)

    def test_a_run_too_short_for_percentiles_has_its_longest(self):
        few = REPORT.replace("99.902%", "98.902%").replace("100.000%", "90.000%").replace("99.965%", "90.000%")
        self.assertEqual(driver.parse_report(few).p999_ms, 0.495)

    def test_no_report_and_two_reports_are_errors(self):
        for output in ("", REPORT[: REPORT.index("Summary")], REPORT.replace("0.039", "nan?"), REPORT * 2):
            with self.assertRaises(driver.DriverFailed):
                driver.parse_report(output)

    def test_metric_sums_its_labels_and_nothing_else(self):
        page = '# HELP a_total x\na_total 3\nb_total{x="1"} 2\nb_total{x="2"} 5e1\na_total_more 9\n'
        self.assertEqual(servers.metric(page, "a_total"), 3)
        self.assertEqual(servers.metric(page, "b_total"), 52)
        self.assertIsNone(servers.metric(page, "c_total"))

    def test_filesystem_is_that_of_the_deepest_and_latest_mount(self):
        mounts = (
            "1 0 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
            "2 1 0:5 / /data rw - xfs /dev/vdb rw\n"
            "3 1 0:6 / /data rw,noatime shared:1 - tmpfs tmpfs rw\n"
        )
        self.assertEqual(procfs.parse_filesystem(mounts, Path("/data/a")), "tmpfs (rw,noatime)")
        self.assertEqual(procfs.parse_filesystem(mounts, Path("/database")), "ext4 (rw,relatime)")

    def test_cpu_clock_counts_this_process(self):
        before = procfs.cpu_s(os.getpid())
        sum(range(100_000))
        self.assertGreater(procfs.cpu_s(os.getpid()), before)
        with self.assertRaises(OSError):
            procfs.cpu_s(2**22 + 1)  # above the largest possible process id


class Loading(unittest.TestCase):
    def serve(self, answer):
        """Runs `answer(connection)` for one connection; returns the port."""
        listener = socket.create_server(("127.0.0.1", 0))

        def work():
            with listener:
                connection, _ = listener.accept()
                with connection:
                    answer(connection)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        return listener.getsockname()[1]

    def test_every_key_is_sent_once_and_answered(self):
        count = resp.LOAD_BLOCK_KEYS + 3
        expected = b"".join(resp.command(b"SET", b"k:%d" % number, b"xx") for number in range(count))
        received = bytearray()

        def answer(connection):
            while len(received) < len(expected):
                received.extend(connection.recv(1 << 16))
            connection.sendall(resp.OK * count)

        resp.load(self.serve(answer), b"k:%d", count, 2)
        self.assertEqual(bytes(received), expected)

    def test_an_error_among_the_replies_is_raised(self):
        port = self.serve(lambda connection: connection.sendall(resp.OK + b"-OOM no room\r\n"))
        with self.assertRaisesRegex(resp.ServerReply, "OOM no room"):
            resp.load(port, b"k:%d", 5, 2)

    def test_a_closed_connection_is_raised(self):
        port = self.serve(lambda connection: connection.sendall(resp.OK[:3]))
        with self.assertRaises(OSError):
            resp.load(port, b"k:%d", 5, 2)

    def test_replies_may_be_cut_anywhere(self):
        self.assertEqual(resp._take_oks(resp.OK * 2 + b"+O"), b"+O")
        self.assertEqual(resp._take_oks(resp.OK * 2), b"")


class Filling(unittest.TestCase):
    def test_a_probe_expects_the_values_sent(self):
        for fill in (Fill.HASHES, Fill.HEX_STRINGS):
            count = fill_module.BLOCK_THINGS + 3
            requests, commands = zip(*fill.blocks(count), strict=True)
            self.assertEqual(sum(commands), count)
            for number in (0, 1, count - 1):
                words, reply = fill.probe(number)
                written = [words[1], reply] if isinstance(reply, str) else [words[1], *reply]
                request = resp.command({"GET": b"SET", "HGETALL": b"HSET"}[words[0]], *(w.encode() for w in written))
                self.assertEqual(b"".join(requests).count(request), 1)

    def test_entries_of_streams_are_commands_with_the_fields_of_their_shape(self):
        for fill, fields in ((Fill.STREAM, {5}), (Fill.STREAM_SHAPES, {3, 4, 5, 6, 7})):
            requests = b"".join(block for block, _commands in fill.blocks(100))
            commands = requests.split(b"$4\r\nXADD\r\n")[1:]
            words = [[word for word in it.split(b"\r\n")[1::2] if word] for it in commands]
            self.assertEqual({len(it[2:]) // 2 for it in words if it[:2] == [b"large", b"*"]}, fields)
            shapes = {tuple(it[2::2]) for it in words}
            self.assertTrue(all(set(shape) <= set(fill_module.FIELD_NAMES) for shape in shapes))
            self.assertTrue(all(len(set(shape)) == len(shape) for shape in shapes), "no name comes twice")
            self.assertEqual(len(words), 100)

    def test_rows_differ(self):
        self.assertEqual(len({Fill.HEX_STRINGS.probe(n)[1] for n in range(10_000)}), 10_000)
        self.assertEqual(len({tuple(Fill.HASHES.probe(n)[1]) for n in range(10_000)}), 10_000)


class Starting(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name)

    def test_the_newest_snapshot_alone_is_weighed(self):
        names = ("snap-0000000000001000.0.part", "snap-0000000000003000.0.part", "snap-0000000000003000.manifest")
        (self.directory / "snapshots").mkdir()
        for size, name in enumerate(names, 1):
            (self.directory / "snapshots" / name).write_bytes(b"x" * size)
        (self.directory / "log-0000000000000000.seg").write_bytes(b"x" * 100)
        self.assertEqual(starts.snapshot_bytes(self.directory), 2 + 3)

    def test_a_directory_without_snapshots_weighs_nothing(self):
        self.assertEqual(starts.snapshot_bytes(self.directory), 0)

    def test_the_console_of_tarantool_is_read_to_the_end_of_the_answer(self):
        listener = socket.create_server(("127.0.0.1", 0))
        program = servers.Program("tarantool", "tarantool")
        server = tarantool.TarantoolServer(program, self.directory, servers.Persistence.OFF)
        server.ports = servers.Ports(listener.getsockname()[1], 0)

        def answer():
            with listener:
                for reply in (b"complete", b"'7 rows instead of 9'"):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(b"Tarantool 2.6.0 (Lua console)\ntype 'help' for interactive help\n")
                        connection.recv(1000)
                        connection.sendall(b"---\n- " + reply[:3])
                        connection.sendall(reply[3:] + b"\n...\n")

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        server.check(Fill.HASHES, 9)
        with self.assertRaisesRegex(servers.ServerFailed, ": 7 rows instead of 9$"):
            server.check(Fill.HASHES, 9)


class Messages(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.program = Path(scratch.name) / "traffic"
        self.server = servers.Server(servers.Program("redis", "redis"), Path(scratch.name), servers.Persistence.OFF)
        self.server._process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(self.server.kill)

    def measure(self, script: str):
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)
        return messages.measure([str(self.program)], self.server, 1, ("publish",))

    def test_figures_are_read_from_the_output_of_the_program(self):
        figures = self.measure("""echo '{"publishes_s": 12.5, "cpu_us_per_delivery": null}'""")
        self.assertEqual(figures, {"publishes_s": 12.5, "cpu_us_per_delivery": None})

    def test_messages_that_go_wrong_are_no_figure(self):
        with self.assertRaisesRegex(driver.DriverFailed, "redis: .*: traffic: messages: 3 lost"):
            self.measure("echo 'traffic: messages: 3 lost' >&2; exit 1")

    def test_an_output_without_figures_is_an_error(self):
        for printed in ("", "12", '{"publishes_s": "many"}'):
            with self.assertRaises(driver.DriverFailed):
                messages.parse_figures(printed)


class Documents(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name)

    def start(self, welcome: str) -> pouchdb.PouchServer:
        binary = self.directory / "package/bin/pouchdb-server"
        binary.parent.mkdir(parents=True)
        binary.write_text(FAKE_HTTP_SERVER.format(python=sys.executable))
        binary.chmod(0o755)
        (self.directory / "package/package.json").write_text('{"version": "4.5.6"}')
        program = servers.Program("pouchdb-server", str(binary), (welcome,))
        server = pouchdb.PouchServer(program, self.directory / "data", servers.Persistence.SYNCED)
        self.addCleanup(server.kill)
        server.start()
        return server

    def test_pouchdb_server_is_known_by_its_welcome(self):
        server = self.start('{"express-pouchdb": "Welcome!"}')
        self.assertTrue((server.directory / "config.json").exists())
        self.assertTrue((server.directory / "databases").is_dir())
        self.assertEqual(server.program.version(), "pouchdb-server 4.5.6")

    def test_another_server_on_the_port_is_noticed(self):
        with self.assertRaisesRegex(servers.ServerFailed, "belongs to another server"):
            self.start('{"couchdb": "Welcome"}')

    def test_a_quick_run_has_fewer_documents_and_seconds(self):
        run = DocumentRun("PUT", ("put", "--updates"), 20_000)
        self.assertEqual(run.words(1), ("put", "--updates", "--filled", "20000", "--seconds", "8"))
        self.assertEqual(run.words(10), ("put", "--updates", "--filled", "2000", "--seconds", "2"))
        self.assertEqual(DocumentRun("pull", ("pull",), is_timed=False).words(10), ("pull",))

    def test_every_server_of_a_case_has_something_to_do(self):
        for case in DOCUMENT_CASES:
            for name in case.contenders:
                self.assertTrue(case.runs_of(name), case.name)
            for target in case.targets:
                self.assertIn(target.op, {run.op for run in case.runs_of("sheaf")})


class Replicas(unittest.TestCase):
    def test_age_is_the_time_since_the_leader_was_last_seen_at_the_position(self):
        age = replication.Age()
        self.assertEqual(age.of(5, 0.0), 0.0, "nothing is known of the leader")
        for now_s, position in ((1.0, 10), (2.0, 10), (3.0, 30)):
            age.note(now_s, position)
        for position, expected_s in ((30, 0.0), (40, 0.0), (5, 9.0), (10, 8.0), (29, 8.0)):
            self.assertEqual(age.of(position, 10.0), expected_s, position)

    def answer_transactions(self, *answers):
        """Writes two transactions of two rows on one connection; each is answered with the next answer."""
        listener = socket.create_server(("127.0.0.1", 0))

        def work():
            with listener, listener.accept()[0] as connection:
                for answer in answers:
                    request = b""
                    while not request.endswith(resp.command(b"EXEC")):
                        request += connection.recv(1 << 16)
                    connection.sendall(answer[:7])
                    connection.sendall(answer[7:])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            writes = transactions.Writes(1, 2, value_bytes=3, keys=10, are_atomic=True)
            return transactions.drive(listener.getsockname()[1], writes, rows=4)
        finally:
            thread.join()

    def test_transactions_are_answered_as_expected_or_are_an_error(self):
        good = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n"
        self.assertGreater(self.answer_transactions(good, good).ops_s, 0)
        for bad in (good.replace(b"+QUEUED", b"-ERR no", 1), good + b"+OK\r\n"):
            with self.assertRaises(resp.ServerReply):
                self.answer_transactions(good, bad)


class Stalls(unittest.TestCase):
    def test_the_blocks_build_each_value_once(self):
        size = stall.BLOCK_THINGS + stall.PER_COMMAND + 3
        requests, commands = zip(*stall.blocks(size), strict=True)
        sent = b"".join(requests)
        self.assertEqual(sum(commands), sent.count(b"*"))
        for key in stall.KEYS:
            self.assertIn(b"\r\n%b\r\n" % key.encode(), sent)
        self.assertEqual(sent.count(b"\r\nm:%d\r\n" % (size - 1)), 3)  # of the sorted set, the set and the hash
        self.assertEqual(sent.count(b"\r\ne%07d\r\n" % (size - 1)), 1)

    def test_renames_come_in_pairs_that_restore_the_name(self):
        for step in stall.STEPS:
            if step.name.startswith("RENAME"):
                first, second = step.arguments(0, 10), step.arguments(1, 10)
                self.assertEqual(first[1:], second[:0:-1])
                self.assertEqual(step.calls % 2, 0)

    def test_every_command_has_a_name_of_its_own(self):
        self.assertEqual(len(set(stall.OPERATIONS)), len(stall.OPERATIONS))


class Judging(unittest.TestCase):
    def test_ratios_are_those_of_the_medians(self):
        result = suite.Result(load_case("none-p64"))
        for redis, sheaf in ((1.0, 0.9), (2.0, 0.5), (9.0, 0.6)):
            result.add("redis", "SET", {"cpu_s_per_1m": redis})
            result.add("sheaf", "SET", {"cpu_s_per_1m": sheaf})
        verdicts = {verdict.target.words(): verdict for verdict in report.judge(result)}
        against_redis = verdicts["SET CPU s/1M <= 0.35x redis"]
        self.assertAlmostEqual(against_redis.value, 0.3)
        self.assertTrue(against_redis.met)
        self.assertIsNone(verdicts["SET CPU s/1M <= 0.65x valkey"].met)

    def test_bounds_are_inclusive_and_directed(self):
        self.assertTrue(Target("SET", OPS_S, True, 3.0).met_by(3.0))
        self.assertFalse(Target("SET", OPS_S, True, 3.0).met_by(2.99))
        self.assertTrue(Target("SET", CPU, False, 0.35).met_by(0.35))
        self.assertFalse(Target("SET", CPU, False, 0.35).met_by(0.36))

    def test_a_target_against_another_operation_is_about_sheaf_alone(self):
        result = suite.Result(load_case("snapshot-load"))
        for server, calm, disturbed in (("sheaf", 100.0, 90.0), ("redis", 100.0, 10.0)):
            result.add(server, "SET", {"ops_s": calm})
            result.add(server, during("SET"), {"ops_s": disturbed})
        verdicts = {verdict.target.words(): verdict for verdict in report.judge(result)}
        self.assertAlmostEqual(verdicts["SET during ops/s >= 0.85x SET"].value, 0.9)

    def test_writes_per_sync_is_a_difference_quotient(self):
        self.assertEqual(suite.writes_per_sync((10, 4), (110, 14)), 10)
        self.assertIsNone(suite.writes_per_sync((10, 4), (10, 4)))
        self.assertIsNone(suite.writes_per_sync(None, (10, 4)))

    def test_every_target_names_servers_and_operations_of_its_case(self):
        for case in CASES:
            self.assertIn("sheaf", case.contenders)
            self.assertIn(baseline(case), case.contenders)
            for target in case.targets:
                self.assertIn(target.metric, case.metrics)
                self.assertIn(target.op, getattr(case, "operations", ("LOAD",)))
                self.assertIn(target.against, (*case.contenders, *getattr(case, "operations", ()), None))

    def test_columns_without_any_figure_are_left_out(self):
        result = suite.Result(load_case("strict-c1"))
        result.add("redis", "SET", {"ops_s": 5000.0, "writes_per_sync": None})
        self.assertNotIn(WRITES_PER_SYNC.heading, report.figures_table(result)[0])
        result.add("sheaf", "SET", {"ops_s": 6000.0, "writes_per_sync": 7.0})
        heading, sheaf, redis = report.figures_table(result)
        column = heading.index(WRITES_PER_SYNC.heading)
        self.assertEqual((sheaf[0], sheaf[column]), ("sheaf", "7.0"))
        self.assertEqual((redis[0], redis[column]), ("redis", "–"))


class Processes(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name)
        self.binary = self.directory / "fake-server"
        self.binary.write_text(FAKE_SERVER.format(python=sys.executable))
        self.binary.chmod(0o755)

    def server(self, *extra: str) -> servers.Server:
        program = servers.Program("redis", str(self.binary), extra)
        return servers.Server(program, self.directory / "data", servers.Persistence.OFF)

    def test_a_paused_server_is_ended_with_its_fleet(self):
        server = self.server()
        with servers.Fleet([server]):
            self.assertGreater(server.start(), 0)
            pid = server.pid
            server.pause()
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_server_that_ends_at_start_is_quoted(self):
        with self.assertRaisesRegex(servers.ServerFailed, "status 3:\nno luck today"):
            self.server("--die").start()

    def test_another_process_on_the_port_is_noticed(self):
        server = self.server("--wrong-pid")
        with servers.Fleet([server]), self.assertRaisesRegex(servers.ServerFailed, "belongs to process 1,"):
            server.start()

    def test_servers_die_with_a_killed_harness(self):
        harness = subprocess.Popen(
            [sys.executable, "-c", _HARNESS, str(Path(__file__).parent), str(self.binary), str(self.directory)],
            stdout=subprocess.PIPE,
            text=True,
        )
        with harness:
            pid = int(harness.stdout.readline())
            # A file descriptor of the process itself: it becomes readable when that process has ended.
            server = os.pidfd_open(pid)
            self.addCleanup(os.close, server)
            harness.send_signal(signal.SIGKILL)
        ended, _, _ = select.select([server], [], [], 10)
        self.assertEqual(ended, [server])


_HARNESS = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import servers
program = servers.Program("redis", sys.argv[2])
server = servers.Server(program, Path(sys.argv[3]) / "data", servers.Persistence.OFF)
server.start()
server.pause()
print(server.pid, flush=True)
time.sleep(60)
"""


class CommandLines(unittest.TestCase):
    def test_shown_commands_hold_nothing_of_this_run(self):
        program = servers.Program("valkey", "/somewhere/valkey-server", preload="libjemalloc.so.2")
        shown = program.shown(servers.Persistence.SYNCED)
        self.assertTrue(shown.startswith("LD_PRELOAD=libjemalloc.so.2 valkey-server --dir DIR "))
        self.assertIn('--save "" --appendonly yes --appendfsync always', shown)

    def test_sheaf_durability_follows_the_case(self):
        program = servers.Program(UNMERGED, "sheaf", ("--log-merge", "false"))
        self.assertIn("--durability strict --log-merge false", program.shown(servers.Persistence.SYNCED))
        self.assertIn("--durability none", program.shown(servers.Persistence.OFF))
        self.assertIn("--durability none", program.shown(servers.Persistence.LOGGED))

    def test_sheaf_settings_of_the_shell_do_not_reach_the_server(self):
        os.environ["SHEAF_DURABILITY"] = "none"
        self.addCleanup(os.environ.pop, "SHEAF_DURABILITY")
        self.assertNotIn("SHEAF_DURABILITY", servers.Program("sheaf", "sheaf").environment())


if __name__ == "__main__":
    unittest.main()
