"""redis-benchmark runs to its end with the expected results. Its figures are not checked here: see bench/."""

import csv
import io
import subprocess

import pytest

BENCHMARK_TIMEOUT_S = 150
# Of each command, and the keys that they draw from.
COUNT = 20_000


def run(server, *arguments: str) -> str:
    """The output of one run, which must succeed."""
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), *arguments],
        capture_output=True,
        text=True,
        timeout=BENCHMARK_TIMEOUT_S,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Error" not in output, output
    return done.stdout


def test_the_usual_suite(server):
    tests = "get,set,incr,mset,ping"
    output = run(server, "-t", tests, "-n", str(COUNT), "-P", "16", "-r", str(COUNT), "--csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert [row["test"] for row in rows] == ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"]
    assert all(float(row["rps"]) > 0 for row in rows)
    with server.connect() as connection:
        # As many draws as there are keys for SET and INCR, and ten for each MSET.
        assert COUNT < connection.call("DBSIZE") <= 2 * COUNT


def test_quiet_mode(server):
    output = run(server, "-t", "set,get", "-n", str(COUNT), "-P", "16", "-q")
    assert output.count("requests per second") == 2


@pytest.mark.parametrize(
    "arguments",
    [("-c", "1", "-P", "1"), ("-c", "200", "-P", "1"), ("-c", "50", "-P", "1000"), ("-c", "50", "-P", "16", "-3"), ("-k", "0")],
    ids=" ".join,
)
def test_other_shapes_of_load(server, arguments):
    run(server, "-t", "set,get", "-n", "3000", "-d", "1024", "-r", "1000", "-q", *arguments)


def test_two_threads(server):
    run(server, "--threads", "2", "-t", "set", "-n", str(COUNT), "-P", "16", "-q")
