"""The packages: what is in them, installed and started as their users do, and removed."""

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import resp
from harness.server import ROOT, Server, die_with_parent, environment, free_port, run_sheaf, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd/sheaf.service"
# systemd's own measure, from 0 to 10 in tenths; a unit without any of its restrictions has 96.
EXPOSURE_TENTHS_MAX = 20
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts and users")


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if not shutil.which(tool)]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed")


def ran(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the binary under test."""
    out = tmp_path_factory.mktemp("packages")
    ran(PACKAGING / "build", "--binary", sheaf_binary(), "--out", out, "--fast", *([] if shutil.which("dpkg-deb") else ["--no-deb"]))
    return out


def test_the_version_names_the_commit():
    printed = run_sheaf("--version").stdout
    assert re.fullmatch(r"sheaf \d+\.\d+\.\d+ \([0-9a-f]{12}\)\n", printed), printed


def test_the_archive_has_a_stripped_binary_and_what_belongs_to_it(packages, tmp_path):
    archive = next(packages.glob("*.tar.gz"))
    ran("tar", "-xzf", archive, "-C", tmp_path)
    root = tmp_path / archive.name.removesuffix(".tar.gz")
    assert ran(root / "bin/sheaf", "--version") == run_sheaf("--version").stdout
    assert ".symtab" not in ran("objdump", "-h", root / "bin/sheaf")
    names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "share/sheaf/systemd/sheaf.service"} <= names
    assert {"docs/groups.md", "docs/guides/queues.md", "docs/images/architecture.svg"} <= names
    assert {"share/sheaf/monitoring/dashboard.json", "share/sheaf/monitoring/alerts.yml"} <= names
    assert {"share/man/man1/sheaf.1", "share/man/man1/sheaf-serve.1"} <= names
    assert {"share/bash-completion/completions/sheaf", "share/zsh/vendor-completions/_sheaf"} <= names
    sums = next(packages.glob("*.sha256sums"))
    ran("sha256sum", "--check", sums.name, cwd=packages)


@needs("cc")
def test_a_binary_that_needs_a_newer_glibc_than_is_promised_is_refused(tmp_path):
    promised = re.search(r"for glibc ([\d.]+) and newer", (ROOT / "docs/packages.md").read_text())
    assert promised and f'GLIBC_MAX = "{promised[1]}"' in (PACKAGING / "build").read_text()
    # hypot has a version of 2.35, which is taken if this machine has it.
    (tmp_path / "newer.c").write_text("#include <math.h>\nint main(int n, char **v) { return (int)hypot(n, n + 1.0); }\n")
    ran("cc", "-O0", "-fno-builtin", "-o", tmp_path / "newer", tmp_path / "newer.c", "-lm")
    if "GLIBC_2.35" not in ran("objdump", "-T", tmp_path / "newer"):
        pytest.skip("an older glibc")
    done = subprocess.run(
        [PACKAGING / "build", "--binary", tmp_path / "newer", "--out", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "hypot of 2.35" in done.stderr, done.stderr
    assert not list((tmp_path / "out").glob("*"))


@contextlib.contextmanager
def in_root(root: Path, owner: str, command: list[str], extra: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A process whose file system is this one, with the libraries and /proc of the machine; in no other process are
    they mounted there. `owner` is a user and group by name or number.
    """
    mounts = [f"mount --rbind /{name} {root}/{name}" for name in ("proc", "usr/lib", "lib", "lib64")]
    for name in ("proc", "usr/lib", "lib", "lib64"):
        (root / name).mkdir(parents=True, exist_ok=True)
    words = ["chroot", f"--userspec={owner}", str(root), *command]
    script = " && ".join([*mounts, 'exec "$@"'])
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", *words],
        env=environment() | extra,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def called(port: int, *words: str) -> object:
    with resp.Connection(port) as connection:
        return connection.call(*words)


@NEEDS_ROOT
@needs("dpkg", "dpkg-deb", "systemd-sysusers", "unshare", "chroot")
def test_the_debian_package_is_installed_started_stopped_and_removed(packages, tmp_path):
    root, port, http_port = tmp_path / "root", free_port(), free_port()
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--log=/dev/null"]
    ran(*dpkg, "--install", next(packages.glob("*.deb")))

    user = next(line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("sheaf:"))
    owner = tuple(map(int, user[2:4]))
    settings = root / "etc/sheaf/sheaf.toml"
    assert (stat.S_IMODE(settings.stat().st_mode), settings.stat().st_gid) == (0o640, owner[1])
    # As systemd does it for StateDirectory.
    data = root / "var/lib/sheaf"
    data.mkdir(mode=0o700)
    os.chown(data, *owner)
    unit = (root / "lib/systemd/system/sheaf.service").read_text()
    command = re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()

    (root / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(root / "run/notify"))
        supervisor.settimeout(PATIENCE_S)
        os.chmod(root / "run/notify", 0o777)
        ports = ["--port", str(port), "--http-port", str(http_port)]
        extra = {"NOTIFY_SOCKET": "/run/notify"}
        with in_root(root, "{}:{}".format(*owner), [*command, *ports], extra) as server:
            assert supervisor.recv(1000).split() == [b"READY=1"]
            # It is ready: the first try is served.
            assert called(port, "SET", "k", "v") == b"OK"
            assert "ok" in run_sheaf("health", f"http://127.0.0.1:{http_port}").stdout
            server.send_signal(signal.SIGTERM)
            assert supervisor.recv(1000).split() == [b"STOPPING=1"]
            assert server.wait(PATIENCE_S) == 0
    assert {path.stat().st_uid for path in data.iterdir()} == {owner[0]}

    ran(*dpkg, "--remove", "sheaf")
    assert not (root / "usr/bin/sheaf").exists() and settings.exists()
    assert "is kept" in ran(*dpkg, "--purge", "sheaf")
    assert not settings.parent.exists() and list(data.glob("log-*"))


@needs("systemd-analyze")
def test_the_unit_is_valid_and_restricted(tmp_path):
    binary = tmp_path / "sheaf"
    shutil.copy("/bin/true", binary)
    unit = tmp_path / "sheaf.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/sheaf", str(binary)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sheaf.service" in line]) == (0, []), done
    ran("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_TENTHS_MAX}", UNIT)


def expanded(group: str) -> set[str]:
    """The calls of a group of systemd, with those of the groups in it."""
    listed = ran("systemd-analyze", "--no-pager", "syscall-filter", group).splitlines()[1:]
    names = [line.split("#")[0].strip() for line in listed]
    found = {name for name in names if name and not name.startswith("@")}
    return found.union(*(expanded(name) for name in names if name.startswith("@")))


@needs("systemd-analyze", "strace")
def test_the_unit_allows_what_the_server_calls(new_server: Callable[..., Server], tmp_path):
    """A start, work of all kinds, a restart with a snapshot: all by calls that the filter lets through."""
    trace = tmp_path / "trace"
    server = new_server(wrapper=("strace", "-D", "-f", "-qq", "-o", str(trace)), port=free_port())
    for _ in range(2):
        server.start()
        with server.connect() as connection:
            connection.call("SET", "k", "v")
            assert connection.call("EVAL", "return redis.call('INCR', 'n')", "0") in (1, 2)
            assert connection.call("DOC.PUT", "orders", f"id-{server.pid}", "{}")
            connection.call("SAVE")
            connection.call("INFO", "everything")
        server.stop()
    called_names = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert "execve" in called_names and "openat" in called_names
    filters = re.findall("^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE)
    allowed = set[str]()
    for group in filters:
        allowed = allowed - expanded(group[1:]) if group.startswith("~") else allowed | expanded(group)
    assert sorted(called_names - allowed - expanded("@default")) == []


def container() -> dict[str, list[str]]:
    """The instructions of the last stage of the Containerfile, by name."""
    text = (PACKAGING / "container/Containerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    found: dict[str, list[str]] = {}
    for line in last.splitlines():
        word, _, rest = line.partition(" ")
        if word.isupper():
            found.setdefault(word, []).append(rest)
    return found


def words_of(instruction: str) -> list[str]:
    """The words of a command in the form of a list."""
    return re.findall(r'"([^"]*)"', instruction[instruction.index("[") :])


@NEEDS_ROOT
@needs("unshare", "chroot")
def test_the_container_serves_without_root_or_a_shell(tmp_path):
    """No daemon of containers is here: the last stage of the file is built and run by hand."""
    stage, root = container(), tmp_path / "root"
    assert stage["USER"] == ["nonroot:nonroot"] and stage["VOLUME"] == ["/data"]
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(sheaf_binary(), root / "usr/bin/sheaf")
    (root / "data").mkdir()
    # nonroot of the base image.
    os.chown(root / "data", 65532, 65532)
    variables = dict(pair.split("=") for line in stage["ENV"] for pair in line.split())
    port, http_port = free_port(), free_port()
    variables |= {"SHEAF_PORT": str(port), "SHEAF_HTTP_PORT": str(http_port), "SHEAF_REQUIREPASS": "secret"}
    health = words_of(stage["HEALTHCHECK"][0])

    def healthy() -> int:
        with in_root(root, "65532:65532", health, variables) as check:
            return check.wait(PATIENCE_S)

    with in_root(root, "65532:65532", words_of(stage["ENTRYPOINT"][0]), variables) as server:
        wait_until("the container to be healthy", lambda: healthy() == 0)
        assert called(port, "PING") == resp.ErrorReply("NOAUTH Authentication required.")
        with resp.Connection(port) as connection:
            assert connection.call("AUTH", "secret") == b"OK"
            assert connection.call("SET", "k", "v") == b"OK"
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
        assert healthy() == 1
    assert list((root / "data").glob("log-*"))


def test_health_says_why_a_server_does_not_serve(new_server: Callable[..., Server]):
    done = run_sheaf("health", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1 and "no answer" in done.stderr
    server = new_server(extra=("--ack-replicas", "1")).start()
    done = run_sheaf("health", f"http://127.0.0.1:{server.http_port}")
    assert done.returncode == 1 and "503" in done.stderr and "too_few_acks" in done.stderr, done
