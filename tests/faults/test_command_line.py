"""The command line as people, packages and shells use it: help, completions, manual pages, doctor, bench."""

import json
import os
import re
import shutil
import subprocess

import pytest

from harness.groups import member, wait_leader
from harness.server import ANY_PORTS, run_sheaf, sheaf_binary

pytestmark = pytest.mark.sheaf_only

TOOLS = ("check", "log", "import", "export", "backup", "restore", "tail", "group", "health", "doctor", "bench", "certs", "config", "completions", "man")


def printed(*arguments: str) -> str:
    # The width of a terminal that nobody has changed.
    ran = run_sheaf(*arguments, extra_environment={"COLUMNS": "80"})
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout


def settings() -> list[str]:
    """The names of all settings, from the long help."""
    words = (line.split() for line in printed("--help").splitlines())
    return [line[0] for line in words if line and line[0].startswith("--")]


def test_help_is_short_or_complete():
    short, long = printed("-h"), printed("--help")
    assert len(short.splitlines()) <= 78, short
    assert all(f"  {tool}  " in short for tool in TOOLS)
    for group in ("Start", "Durability", "Memory", "Network", "Replication", "Documents", "Limits"):
        assert f"\n{group}:\n" in short and f"\n{group}:\n" in long
    assert len(settings()) > 80
    assert "--snapshot-cpu-percent <PERCENT>" in long and "--snapshot-cpu-percent" not in short


def test_the_script_of_bash_completes_commands_and_values():
    script = printed("completions", "bash")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    ask = """
COMP_WORDS=(sheaf che) COMP_CWORD=1; _sheaf sheaf che sheaf; echo ${COMPREPLY[@]}
COMP_WORDS=(sheaf --durability "") COMP_CWORD=2; _sheaf sheaf "" --durability; echo ${COMPREPLY[@]}
"""
    answers = subprocess.run(["bash"], input=script + ask, text=True, capture_output=True, check=True)
    assert answers.stdout.splitlines() == ["check", "strict commit interval none"], answers
    for shell in ("bash", "zsh", "fish"):
        script = printed("completions", shell)
        assert all(tool in script for tool in TOOLS), shell


def test_manual_pages_have_all_commands_and_settings(tmp_path):
    directory = tmp_path / "new" / "man1"
    written = run_sheaf("man", str(directory))
    assert (written.returncode, written.stdout) == (0, ""), written
    assert f"pages; to read one: man {directory}/sheaf.1" in written.stderr
    pages = {page.name for page in directory.iterdir()}
    assert pages == {"sheaf.1", "sheaf-serve.1"} | {f"sheaf-{tool}.1" for tool in TOOLS}
    main = (directory / "sheaf.1").read_text().replace("\\-", "-")
    assert [name for name in settings() if name not in main] == []
    if shutil.which("man"):
        rendered = subprocess.run(
            ["man", "--warnings", "-l", str(directory / "sheaf.1")], capture_output=True, text=True, check=True
        )
        assert "DURABILITY" in rendered.stdout and rendered.stderr == "", rendered.stderr


def test_what_is_refused_leaves_nothing_and_names_its_path(new_server, tmp_path):
    junk, made = tmp_path / "junk.rdb", tmp_path / "made"
    junk.write_text("junk")
    server = new_server().start()
    assert server.stop() == 0
    for refused in (("import", str(junk)), ("restore", str(server.directory), "--to-lsn", str(1 << 40))):
        ran = run_sheaf(*refused, "--dir", str(made))
        assert ran.returncode == 1 and not made.exists(), (refused, ran.stderr)
    made.mkdir()
    assert run_sheaf("import", str(junk), "--dir", str(made)).returncode == 1
    assert made.exists(), "it was there before"
    pages = run_sheaf("man", "/proc/x")
    assert pages.returncode == 1 and "/proc/x" in pages.stderr, pages.stderr
    empty = run_sheaf("log", str(server.directory), "--from", "10", "--to", "5")
    assert empty.returncode == 2 and "--from 10 is behind --to 5" in empty.stderr, empty.stderr


def examined(*arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status of doctor, and its findings by check."""
    ran = run_sheaf("doctor", "--format", "json", *arguments, extra_environment=variables)
    assert ran.stderr == "", ran.stderr
    answer = json.loads(ran.stdout)
    states = [check["state"] for check in answer["checks"]]
    assert ran.returncode == (1 if "change" in states else 2 if "unseen" in states else 0)
    return ran.returncode, {check["check"]: check for check in answer["checks"]}


def test_bytes_that_are_not_utf_8_are_refused_and_not_shown(tmp_path):
    binary, bad = sheaf_binary(), b"secret\xe9"
    told = {
        "argument 2 is not UTF-8": ([binary, "--requirepass", bad], {}),
        "argument 2 is not UTF-8, as all": ([binary, "check", bad], {}),
        "the value of SHEAF_REQUIREPASS is not UTF-8": ([binary, "health"], {b"SHEAF_REQUIREPASS": bad}),
    }
    for error, (line, variables) in told.items():
        ran = subprocess.run(line, env=os.environb | variables, capture_output=True, cwd=tmp_path)
        assert ran.returncode == 2, ran
        assert error in ran.stderr.decode() and b"secret" not in ran.stderr + ran.stdout


def test_doctor_looks_at_a_directory_before_and_while_a_server_runs(server, tmp_path):
    new = tmp_path / "new" / "data"
    _, checks = examined("--dir", str(new))
    assert {"settings", "directory", "file system", "disk sync", "disk space", "open files", "clock"} <= set(checks)
    assert checks["directory"]["state"] == "fine" and "first start creates it" in checks["directory"]["text"]
    assert checks["disk sync"]["text"].startswith("p50 ")
    assert not new.exists() and list(tmp_path.glob("**/.doctor*")) == []

    data = server.directory

    def names() -> list[str]:
        # The server may be preparing the next segment of its log.
        return sorted({path.name.replace(".tmp", ".seg") for path in data.iterdir()})

    before = names()
    _, checks = examined("--dir", str(data))
    assert "a server runs there" in checks["directory"]["text"]
    assert names() == before
    with server.connect() as connection:
        assert connection.call("SET", "k", "v") == b"OK"


def test_doctor_says_what_a_start_would_say(new_server, tmp_path):
    server = member(new_server).start()
    wait_leader([server])
    backup = tmp_path / "backup"
    copied = run_sheaf("backup", str(backup), "--from", f"http://127.0.0.1:{server.http_port}")
    assert copied.returncode == 0, copied.stderr
    assert server.stop() == 0
    lost, damaged = tmp_path / "lost", tmp_path / "damaged"
    for copy in (lost, damaged):
        shutil.copytree(server.directory, copy)
    (lost / "group.json").unlink()
    (damaged / "replication.json").write_text("junk")
    for directory, word in ((backup, "sheaf restore"), (lost, "group.json is missing"), (damaged, "is damaged")):
        status, checks = examined("--dir", str(directory))
        found = checks["directory"]
        assert status == 1 and found["state"] == "change" and word in found["text"], found
        started = run_sheaf("serve", "--dir", str(directory), *ANY_PORTS)
        assert started.returncode != 0 and found["text"] in started.stderr, started.stderr
    _, checks = examined("--dir", str(server.directory))
    assert checks["directory"]["state"] == "fine", checks


def test_doctor_says_what_to_change(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    status, checks = examined("--dir", str(foreign), SHEAF_PROT="1", SHEAF_MAXMEMORY="1000000gb")
    assert status == 1
    assert "is not empty and not a data directory" in checks["directory"]["text"]
    assert "did you mean SHEAF_PORT?" in checks["variables"]["text"]
    assert checks["memory"]["state"] == "change"
    assert [path.name for path in foreign.iterdir()] == ["notes.txt"]

    settings = tmp_path / "sheaf.toml"
    settings.write_text("maxmemroy = 1\n")
    status, checks = examined("--dir", str(tmp_path / "data"), "--config", str(settings))
    assert status == 1 and f"would refuse them: {settings}, line 1: " in checks["settings"]["text"]
    assert "did you mean 'maxmemory'?" in checks["settings"]["text"]
    # Nothing is said of a directory and limits that a server would not have.
    assert checks["directory"]["state"] == "unseen" and not {"disk space", "open files", "memory"} & set(checks)

    in_memory = run_sheaf("doctor", "--dir", "/dev/shm/no-such-directory")
    assert in_memory.returncode == 1 and in_memory.stdout.rstrip().endswith("to change")
    assert any(line.startswith("change  file system  tmpfs") for line in in_memory.stdout.splitlines())


CASES = [f"{verb}, {load}" for verb in ("SET", "GET") for load in ("1 client", "50 clients", "50 clients, pipelines of 16")]


def measured(*arguments: str) -> list[str]:
    """What bench prints. Each case has a rate above 0, and percentiles in order."""
    ran = run_sheaf("bench", "--seconds", "1", *arguments)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    for case in CASES:
        line = next(line for line in ran.stdout.splitlines() if line.startswith(f"{case}  "))
        rate, p50, p99, slowest = re.fullmatch(r" +([\d,]+) +([\d.]+) ms +([\d.]+) ms +([\d.]+) ms", line[len(case) :]).groups()
        assert int(rate.replace(",", "")) > 0 and float(p50) <= float(p99) <= float(slowest), line
    return ran.stdout.splitlines()


def test_bench_measures_a_server_of_its_own_and_leaves_nothing_behind(tmp_path):
    lines = measured("--dir", str(tmp_path))
    assert lines[0].startswith("a server of its own in ") and lines[1].startswith("disk: a durable write of 4 KiB takes ")
    assert list(tmp_path.iterdir()) == []
    refused = run_sheaf("bench", "--seconds", "1", "--dir", str(tmp_path / "missing"))
    assert refused.returncode == 1 and "missing" in refused.stderr, refused


def test_bench_measures_a_running_server_and_removes_its_keys(new_server, tmp_path):
    server = new_server(requirepass="secret").start()
    address = f"127.0.0.1:{server.port}"
    with server.connect() as connection:
        refused = run_sheaf("bench", "--seconds", "1", "--url", address)
        assert refused.returncode == 1 and "NOAUTH" in refused.stderr and "--password-file" in refused.stderr, refused
        password = tmp_path / "password"
        password.write_text("secret\n")
        running = ("--url", address, "--password-file", str(password))
        assert "durability: strict" in measured(*running)
        assert connection.call("KEYS", "*") == []
        connection.call("SET", "mine", "1")
        refused = run_sheaf("bench", "--seconds", "1", *running)
        assert refused.returncode == 1 and "holds keys" in refused.stderr and "--beside-keys" in refused.stderr, refused
        measured(*running, "--beside-keys")
        assert connection.call("KEYS", "*") == [b"mine"]
