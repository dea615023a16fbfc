"""Starting with mistakes, starting twice, access from outside, stopping."""

import contextlib
import signal
import subprocess
import urllib.request

import pytest

from harness.resp import Closed, ErrorReply, encode
from harness.server import free_port, run_sheaf, sheaf_binary
from harness.storm import Reader, Storm, Writer
from harness.terminal import Terminal
from harness.waiting import PATIENCE_S, wait_until

OUTSIDE = "198.18.0.1"


@pytest.mark.sheaf_only
class TestRefusedStarts:
    """Each with a message that names the mistake, and a non-zero exit status."""

    @pytest.mark.parametrize(
        ("toml", "named"),
        [
            ("prot = 6379", "prot"),
            ("[server]\nport = 6379", "server"),
            ('port = "many"', "port"),
            ("port = 70000", "port"),
            ('durability = "mostly"', "durability"),
            ("maxclients = 0", "maxclients"),
            ('maxmemory = "1 potato"', "maxmemory"),
            ("workers = [1]", "workers"),
            ("port = ", "line 1"),
        ],
    )
    def test_configuration_files(self, tmp_path, toml, named):
        config = tmp_path / "sheaf.toml"
        config.write_text(toml + "\n")
        refused = run_sheaf("serve", "--dir", str(tmp_path / "data"), "--config", str(config))
        assert refused.returncode not in (0, 101), refused.stderr
        assert named in refused.stderr
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            (("--prot", "1"), "--prot"),
            (("--port", "many"), "port"),
            (("--durability", "mostly"), "durability"),
            (("--workers", "-1"), "-1"),
            (("--port",), "--port"),
            (("--config", "/nowhere/sheaf.toml"), "/nowhere/sheaf.toml"),
            (("--log-segment-bytes", "5"), "log-segment-bytes"),
        ],
    )
    def test_flags(self, tmp_path, flags, named):
        refused = run_sheaf("serve", "--dir", str(tmp_path / "data"), *flags)
        assert refused.returncode not in (0, 101), refused.stderr
        assert named in refused.stderr

    def test_environment(self, tmp_path):
        refused = run_sheaf("serve", "--dir", str(tmp_path / "data"), extra_environment={"SHEAF_PORT": "many"})
        assert refused.returncode not in (0, 101), refused.stderr
        assert "port" in refused.stderr

    def test_unknown_commands(self):
        refused = run_sheaf("server")
        assert refused.returncode not in (0, 101)
        assert "server" in refused.stderr

    def test_a_second_server_on_the_same_directory(self, server):
        second = run_sheaf(
            *("serve", "--dir", str(server.directory)), *("--port", str(free_port())), *("--http-port", str(free_port()))
        )
        assert second.returncode not in (0, 101), second.stderr
        assert str(server.pid) in second.stderr
        assert "sheaf.lock" in second.stderr
        with server.connect() as connection:
            assert connection.call("SET", "k", "v") == b"OK"

    def test_a_port_that_is_taken(self, server, tmp_path):
        second = run_sheaf("serve", "--dir", str(tmp_path / "other"), "--port", str(server.port), "--http-port", "0")
        assert second.returncode not in (0, 101), second.stderr
        assert str(server.port) in second.stderr

    def test_a_directory_that_is_a_file(self, tmp_path):
        place = tmp_path / "file"
        place.write_text("not a directory")
        refused = run_sheaf("serve", "--dir", str(place), "--port", str(free_port()), "--http-port", "0")
        assert refused.returncode not in (0, 101), refused.stderr
        assert str(place) in refused.stderr
        assert place.read_text() == "not a directory"

    @pytest.mark.parametrize("command", ["serve", "import"])
    def test_a_directory_with_files_of_somebody_else(self, tmp_path, command):
        place = tmp_path / "home"
        place.mkdir()
        (place / "thesis.odt").write_text("years of work")
        dump = tmp_path / "dump.rdb"
        dump.write_bytes(b"")
        ports = ("--port", str(free_port()), "--http-port", "0") if command == "serve" else (str(dump),)
        refused = run_sheaf(command, *ports, "--dir", str(place))
        assert refused.returncode == 1, refused.stderr
        for part in (str(place), "thesis.odt", "not empty and not a data directory", "--dir"):
            assert part in refused.stderr, part
        assert [path.name for path in place.iterdir()] == ["thesis.odt"]


@pytest.mark.sheaf_only
def test_hidden_files_and_those_of_the_file_system_are_ignored(new_server):
    server = new_server()
    (server.directory / "lost+found").mkdir(parents=True)
    (server.directory / ".gitkeep").write_text("")
    server.start()
    # From then on it is a data directory, with any other files in it.
    server.stop()
    (server.directory / "notes.txt").write_text("")
    server.start()


@pytest.mark.sheaf_only
class TestTheHoldOnTheDirectory:
    """One server per directory, regardless of its lock file; a server that has lost the directory
    acknowledges nothing.
    """

    def test_without_the_lock_file_a_second_server_is_refused(self, server):
        # A server that runs would notice that the file is gone, and stop.
        server.signal(signal.SIGSTOP)
        (server.directory / "sheaf.lock").unlink()
        ports = ("--port", str(free_port()), "--http-port", str(free_port()))
        second = run_sheaf("serve", "--dir", str(server.directory), *ports)
        assert second.returncode == 1, second.stderr
        assert "a directory serves one server at a time" in second.stderr

    def test_a_start_waits_for_a_process_that_is_ending(self, server, new_server):
        second = new_server(directory=server.directory)
        second.spawn()
        second.wait_for_log("Waiting, in case that process is ending")
        server.kill()
        wait_until("the second to serve", second.answers)

    @pytest.mark.parametrize("loss", ["file removed", "file replaced", "moved", "replaced"])
    @pytest.mark.parametrize("is_idle", [False, True])
    def test_a_server_that_has_lost_its_directory_stops_with_the_reason(self, new_server, loss, is_idle):
        server = new_server().start()
        kept = server.directory
        with server.connect() as connection:
            assert connection.call("SET", "before", "1") == b"OK"
            match loss:
                case "file removed":
                    (kept / "sheaf.lock").unlink()
                case "file replaced":
                    (kept / "new").write_text("")
                    (kept / "new").rename(kept / "sheaf.lock")
                case _:
                    kept = kept.with_name("elsewhere")
                    server.directory.rename(kept)
                    if loss == "replaced":
                        server.directory.mkdir()
                        (server.directory / "sheaf.lock").write_text("")
            if not is_idle:
                with contextlib.suppress(Closed, OSError):
                    reply = connection.call("SET", "after", "1")
                    assert isinstance(reply, ErrorReply), reply
        assert server.wait_exit() == 66
        assert "was moved, replaced or removed" in server.log()
        if loss == "replaced":
            assert [path.name for path in server.directory.iterdir()] == ["sheaf.lock"], "nothing was made in another's directory"
            (server.directory / "sheaf.lock").unlink()
            server.directory.rmdir()
        if kept != server.directory:
            kept.rename(server.directory)
        server.start()
        with server.connect() as connection:
            assert connection.call("GET", "before") == b"1"


@pytest.mark.sheaf_only
def test_settings_from_file_environment_and_flags(new_server, tmp_path):
    config = tmp_path / "sheaf.toml"
    config.write_text('maxclients = 11\nmaxmemory = "1mb"\ntimeout = 7\n')
    server = new_server(
        extra=("--config", str(config), "--timeout", "9"),
        extra_environment={"SHEAF_MAXMEMORY": "2mb", "SHEAF_TIMEOUT": "8"},
    ).start()
    with server.connect() as connection:
        assert connection.call("CONFIG", "GET", "maxclients")[1] == b"11"
        assert connection.call("CONFIG", "GET", "maxmemory")[1] == b"2097152"
        assert connection.call("CONFIG", "GET", "timeout")[1] == b"9"
        assert connection.call("CONFIG", "SET", "maxclients", "12") == b"OK"
        assert connection.call("CONFIG", "REWRITE") == b"OK"
    assert "12" in config.read_text()


@pytest.mark.sheaf_only
def test_the_banner_names_ports_directory_and_durability(server):
    for part in (str(server.port), str(server.http_port), str(server.directory), "strict", "version"):
        assert part in server.log(), part


@pytest.mark.sheaf_only
def test_a_recovery_begins_with_nothing_done(new_server):
    """Progress is never 100 % of nothing, and never goes back."""
    server = new_server(log_segment_bytes="64mb").start()
    with server.connect() as connection:
        connection.send(b"".join(encode("SET", f"key:{number}", "x" * 100) for number in range(200_000)))
        assert {connection.read() for _ in range(200_000)} == {b"OK"}
    server.kill()
    ports = ("--port", free_port(), "--http-port", free_port())
    with Terminal("serve", "--dir", server.directory, *ports) as terminal:
        terminal.wait_for("ready")
        percents = terminal.percents()
    assert percents, "it was fast, but not that fast"
    assert percents[0] == 0
    assert percents == sorted(percents)


class TestProtectedMode:
    """A network namespace with an address other than the machine's loopback."""

    @pytest.fixture
    def reach(self, new_server):
        """Starts a server in a namespace; returns a function that runs redis-cli from outside loopback."""
        if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("no network namespaces on this machine")
        setup = f'ip link set lo up && ip address add {OUTSIDE}/32 dev lo && exec "$@"'
        wrapper = ("unshare", "--net", "sh", "-c", setup, "in-namespace")

        def start(**options):
            server = new_server(bind="0.0.0.0", wrapper=wrapper, **options)
            server.spawn()

            def cli(*arguments: str, host: str = OUTSIDE) -> str:
                command = ["nsenter", f"--net=/proc/{server.pid}/ns/net", "redis-cli", "-h", host, "-p", str(server.port)]
                done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                return done.stdout

            password = ("-a", options["requirepass"]) if "requirepass" in options else ()
            wait_until("the server in its namespace", lambda: cli(*password, "PING", host="127.0.0.1") == "PONG\n")
            return server, cli

        return start

    def test_strangers_are_denied_without_a_password(self, reach):
        _, cli = reach()
        assert cli("SET", "k", "v").startswith("DENIED")
        assert cli("SET", "k", "v", host="127.0.0.1") == "OK\n"

    @pytest.mark.sheaf_only
    def test_strangers_get_no_backups_without_a_password(self, reach, tmp_path):
        server, cli = reach()

        def backup(name: str):
            command = ["nsenter", f"--net=/proc/{server.pid}/ns/net", sheaf_binary(), "backup", str(tmp_path / name)]
            command += ["--from", f"{OUTSIDE}:{server.http_port}"]
            return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

        denied = backup("denied")
        assert denied.returncode == 1
        assert "protected-mode" in denied.stderr
        assert cli("CONFIG", "SET", "protected-mode", "no", host="127.0.0.1") == "OK\n"
        allowed = backup("allowed")
        assert allowed.returncode == 0, allowed.stderr

    def test_a_password_ends_protected_mode(self, reach):
        _, cli = reach(requirepass="secret")
        assert cli("SET", "k", "v").startswith("NOAUTH")
        assert "OK" in cli("-a", "secret", "SET", "k", "v")

    def test_protected_mode_can_be_switched_off(self, reach):
        _, cli = reach()
        assert cli("CONFIG", "SET", "protected-mode", "no", host="127.0.0.1") == "OK\n"
        assert cli("SET", "k", "v") == "OK\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_under_load_is_a_clean_stop(server, number):
    writers = [Writer(index, seed=5) for index in range(6)]
    readers = [Reader(writers, seed=5)]
    storm = Storm(server, writers, readers).start(acknowledgements=3000)
    storm.wait()
    server.signal(number)
    assert server.wait_exit() == 0
    storm.join()
    server.start()
    for writer in writers:
        writer.check(server)
    for reader in readers:
        reader.check()


@pytest.mark.sheaf_only
def test_a_server_that_cannot_write_log_lines_serves(new_server):
    server = new_server(wrapper=("sh", "-c", 'exec "$0" "$@" 2>/dev/full'), extra=("--loglevel", "debug")).start()
    with server.connect() as connection:
        assert connection.call("SET", "k", "v") == b"OK"
        assert connection.call("BGSAVE") == b"Background saving started"
    assert server.stop() == 0
    server.start()
    with server.connect() as connection:
        assert connection.call("GET", "k") == b"v"


def test_a_clean_stop_is_told_and_seen(server):
    with server.connect() as connection:
        connection.send(b"".join(encode("SET", f"k{number}", "v") for number in range(1000)))
        assert [connection.read() for _ in range(1000)] == [b"OK"] * 1000
    assert server.stop() == 0
    assert "stopped in order" in server.log()
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0
    assert "closed in order" in checked.stdout
    assert "1000 records" in checked.stdout


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_everything_is_there_after_a_restart(server, stop):
    with server.connect() as connection:
        connection.call("SET", "plain", "v")
        connection.call("SET", "expiring", "v", "PXAT", 4_102_444_800_123)
        connection.call("SET", "short", "v", "PX", 1)
        connection.call("INCRBYFLOAT", "float", "1.5")
        connection.call("SETRANGE", "range", 5, "x")
        connection.call("SELECT", 9)
        connection.call("SET", "other database", b"\0\r\n\xff")
        connection.call("SWAPDB", 9, 10)
    getattr(server, stop)()
    server.start()
    with server.connect() as connection:
        assert connection.call("GET", "plain") == b"v"
        assert connection.call("PEXPIRETIME", "expiring") == 4_102_444_800_123
        assert connection.call("GET", "float") == b"1.5"
        assert connection.call("GET", "range") == b"\0\0\0\0\0x"
        assert connection.call("SELECT", 10) == b"OK"
        assert connection.call("GET", "other database") == b"\0\r\n\xff"
        connection.call("SELECT", 0)
        wait_until("the short-lived key to be gone", lambda: connection.call("EXISTS", "short") == 0)


@pytest.mark.sheaf_only
def test_flushall_gives_the_disk_space_back(new_server):
    server = new_server(log_segment_bytes="1mb").start()
    with server.connect() as connection:
        connection.send(encode("SET", "k", "x" * 100_000) * 100)
        assert [connection.read() for _ in range(100)] == [b"OK"] * 100
        assert len(list(server.directory.glob("log-*.seg"))) > 9
        assert connection.call("FLUSHALL") == b"OK"
        wait_until("old segments to be removed", lambda: len(list(server.directory.glob("log-*.seg"))) <= 4)
        assert connection.call("SET", "k", "after") == b"OK"
    server.kill()
    server.start()
    with server.connect() as connection:
        assert connection.call("GET", "k") == b"after"


@pytest.mark.sheaf_only
def test_durability_can_be_changed_while_running(server):
    with server.connect() as connection:
        for durability in ("none", "interval", "commit", "strict"):
            assert connection.call("CONFIG", "SET", "durability", durability) == b"OK"
            assert connection.call("SET", durability, "v") == b"OK"
    server.kill()
    server.start()
    with server.connect() as connection:
        assert connection.call("DBSIZE") == 4


def test_a_large_write_to_an_idle_server_gets_the_segments_that_it_needs(new_server):
    """While nothing else is written, the waiting command itself must have them made."""
    server = new_server(log_segment_bytes="1mb").start()
    server.wait_until_idle()
    document = b'{"text": "' + b"x" * 5_000_000 + b'"}'
    assert server_http(server, "PUT", "/db", b"") == 201
    assert server_http(server, "PUT", "/db/large", document) == 201
    with server.connect() as connection:
        assert connection.call("SETRANGE", "big", 100_000_000, "x") == 100_000_001
        server.wait_until_idle()
        # These run on threads of their own.
        assert connection.call("COPY", "big", "copied") == 1
        server.wait_until_idle()
        assert connection.call("BITOP", "NOT", "inverted", "big") == 100_000_001


def server_http(server, method: str, path: str, body: bytes) -> int:
    """The status of one request."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}{path}", body or None, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.status
