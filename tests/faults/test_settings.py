"""Settings that change while the server runs: values after a restart, in the file, and after a signal."""

import os
import resource
import signal
import stat

import httpx
import pytest

from harness.couch import Couch
from harness.replicas import call, error_of
from harness.server import ANY_PORTS, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

LASTING = {
    "requirepass": "geheim",
    "masterauth": 'with "quotes" and \\',
    "maxmemory": "104857600",
    "maxmemory-policy": "allkeys-lfu",
    "notify-keyspace-events": "xKE",
    "client-output-buffer-limit": "normal 3 2 1 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    "slowlog-log-slower-than": "-1",
    "script-rollback": "yes",
    "replica-retention-seconds": "77",
}
CONFIGURATION = """\
# The cache of the shop.

  maxmemory = "1gb"   # half of the machine
timeout = 7
protected-mode = true
hash-max-ziplist-entries = 100

# The end.
"""


def setting(server, name: str) -> str:
    """The value in CONFIG GET."""
    return call(server, "CONFIG", "GET", name)[1].decode()


def test_config_set_survives_kill_9(new_server):
    server = new_server().start()
    pairs = [word for pair in LASTING.items() for word in pair]
    assert call(server, "CONFIG", "SET", *pairs) == b"OK"
    server.options.requirepass = LASTING["requirepass"]
    server.kill()
    server.start()
    assert {name: setting(server, name) for name in LASTING} == LASTING
    kept = server.directory / "settings.toml"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600, "it has passwords"
    assert "settings that clients have set" in server.log() and "requirepass" in server.log()
    assert "geheim" not in server.log()
    assert call(server, "CONFIG", "SET", "maxmemory", "0") == b"OK"
    server.kill()
    server.start()
    assert setting(server, "maxmemory") == "0"


def test_a_flag_overrides_a_kept_setting_with_a_message(new_server, tmp_path):
    server = new_server(extra=("--timeout", "5")).start()
    assert call(server, "CONFIG", "SET", "timeout", 9, "maxmemory", "1mb") == b"OK"
    assert setting(server, "timeout") == "9"
    server.wait_for_log("changed until the next start only")
    server.kill()
    server.start()
    assert (setting(server, "timeout"), setting(server, "maxmemory")) == ("5", "1048576")
    assert "timeout (flag)" in server.log()
    file = tmp_path / "sheaf.toml"
    file.write_text("timeout = 7\n")
    with_file = new_server(extra=("--timeout", "5", "--config", str(file))).start()
    assert call(with_file, "CONFIG", "SET", "timeout", 5) == b"OK", "as it is"
    assert "changed until the next start only" not in with_file.log()
    assert call(with_file, "CONFIG", "SET", "timeout", 7) == b"OK", "as in the file"
    with_file.wait_for_log("changed until the next start only")


@pytest.mark.parametrize("damage", ["timeout = 1\nmaxmem", 'timeout = 1\nmaxmemory = "much"\n'])
def test_a_damaged_file_of_settings_refuses_the_start(new_server, damage):
    server = new_server().start()
    assert call(server, "CONFIG", "SET", "timeout", 1) == b"OK"
    server.kill()
    kept = server.directory / "settings.toml"
    kept.write_text(damage)
    refused = run_sheaf("serve", "--dir", str(server.directory), *ANY_PORTS)
    assert refused.returncode not in (0, 101)
    assert f"{kept}, line 2: " in refused.stderr


def refused_everywhere(server) -> str:
    """What a start says, and `sheaf check` too."""
    refused = run_sheaf("serve", "--dir", str(server.directory), *ANY_PORTS)
    checked = run_sheaf("check", str(server.directory))
    assert refused.returncode == 1, refused.stdout
    assert checked.returncode == 1, checked.stdout
    assert refused.stderr.splitlines()[-1] == checked.stderr.splitlines()[-1]
    return refused.stderr


def test_settings_that_were_lost_or_cut_refuse_the_start(new_server):
    server = new_server().start()
    assert call(server, "CONFIG", "SET", "requirepass", "geheim") == b"OK"
    server.kill()
    kept = server.directory / "settings.toml"
    whole = kept.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, whole.index(b"requirepass"), len(whole) - 1):
        kept.write_bytes(whole[:length])
        assert f"cannot read the settings of {kept}: it " in refused_everywhere(server), length
    kept.write_bytes(whole.replace(b"geheim", b"geheiM"))
    assert "checksum mismatch" in refused_everywhere(server)
    kept.write_bytes(whole.replace(b"geheim", b"\xffeheim"))
    assert "it is not text in UTF-8. Restore the file from a copy" in refused_everywhere(server)
    kept.unlink()
    assert f"{kept} is missing, with the settings" in refused_everywhere(server)
    assert not kept.exists()
    kept.write_bytes(whole)
    server.options.requirepass = "geheim"
    server.start()
    assert setting(server, "requirepass") == "geheim"


def test_settings_are_edited_without_their_checksum(new_server):
    server = new_server().start()
    assert call(server, "CONFIG", "SET", "timeout", 7) == b"OK"
    kept = server.directory / "settings.toml"
    seal, rest = kept.read_text().split("\n", 1)
    assert seal.startswith("# checksum ")
    assert "remove this line" in seal
    server.kill()
    kept.write_text(rest.replace("7", "8"))
    assert run_sheaf("check", str(server.directory)).returncode == 0
    server.start()
    assert setting(server, "timeout") == "8"
    server.wait_for_log("the file of settings had no checksum")
    edited = kept.read_text()
    assert edited.startswith("# checksum ")
    assert edited.endswith("\n" + rest.replace("7", "8"))
    server.kill()
    kept.write_text("# none\n")
    server.start()
    assert setting(server, "timeout") == "0"


def test_settings_of_an_earlier_version_are_marked(new_server):
    server = new_server().start()
    server.kill()
    kept = server.directory / "settings.toml"
    kept.write_text("timeout = 7\n")
    server.start()
    server.wait_for_log("the file of settings had no checksum")
    assert setting(server, "timeout") == "7"
    server.kill()
    kept.unlink()
    assert "is missing" in refused_everywhere(server)


def test_a_running_server_does_not_set_values_in_a_file_that_was_lost_or_cut(server):
    assert call(server, "CONFIG", "SET", "timeout", 7) == b"OK"
    kept = server.directory / "settings.toml"
    whole = kept.read_bytes()
    for damage, said in ((None, "no longer exists"), (b"", "it is empty"), (whole[:-3], "checksum mismatch")):
        if damage is None:
            kept.unlink()
        else:
            kept.write_bytes(damage)
        assert said in error_of(call(server, "CONFIG", "SET", "timeout", 8))
        assert setting(server, "timeout") == "7"
    kept.write_bytes(whole)
    assert call(server, "CONFIG", "SET", "timeout", 8) == b"OK"


def test_values_that_are_not_text_are_refused_and_not_changed(server):
    for name, value in (("requirepass", b"p\xe9ss"), ("durable-channels", b"\xff*"), ("masterauth", b"\xc3")):
        before = setting(server, name)
        refused = error_of(call(server, "CONFIG", "SET", name, value))
        assert refused.endswith(f"'{name}') - the value is not UTF-8"), refused
        assert setting(server, name) == before
    assert "not UTF-8" in error_of(call(server, "REPLICAOF", b"h\xf6st", "6379"))
    assert call(server, "CONFIG", "SET", "requirepass", "p\u00e9ss") == b"OK"
    assert call(server, "AUTH", "p\u00e9ss".encode()) == b"OK"
    assert "WRONGPASS" in error_of(call(server, "AUTH", b"p\xe9ss"))


def test_a_password_that_is_not_utf8_is_refused(new_server):
    # What a decoder would put in the place of a byte that is no text.
    server = new_server(requirepass="p\ufffdss").start()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for password, status in (("p%E9ss", 400), ("p%EF%BF%BDss", 200)):
        url = f"http://127.0.0.1:{server.http_port}/_session"
        body = f"name=default&password={password}".encode()
        answer = httpx.post(url, content=body, headers=form)
        assert answer.status_code == status, answer.text


def test_a_configuration_file_is_rewritten_in_place(new_server, tmp_path):
    file = tmp_path / "sheaf.toml"
    file.write_text(CONFIGURATION)
    file.chmod(0o644)
    server = new_server(extra=("--config", str(file))).start()
    assert call(server, "CONFIG", "REWRITE") == b"OK"
    assert file.read_text() == CONFIGURATION, "nothing has changed"
    changes = ("maxmemory", "2gb", "protected-mode", "no", "hash-max-listpack-entries", 200, "slowlog-max-len", 64)
    assert call(server, "CONFIG", "SET", *changes) == b"OK"
    assert file.read_text() == CONFIGURATION, "CONFIG SET alone leaves it"
    assert call(server, "CONFIG", "REWRITE") == b"OK"
    expected = CONFIGURATION.replace('"1gb"', '"2147483648"').replace("true", "false")
    expected = expected.replace("entries = 100\n", "entries = 200\nslowlog-max-len = 64\n")
    assert file.read_text() == expected
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/_node/_local/_config/chttpd/enable_cors", "true")
    assert file.read_text() == expected.replace("len = 64\n", 'len = 64\ncors = "yes"\n')
    server.kill()
    server.start()
    assert (setting(server, "maxmemory"), setting(server, "slowlog-max-len")) == ("2147483648", "64")
    assert not (server.directory / "settings.toml").exists()


def test_a_refused_change_leaves_the_configuration_file_as_it_is(new_server, tmp_path):
    file = tmp_path / "sheaf.toml"
    file.write_text("timeout = 7\n")
    server = new_server(extra=("--config", str(file))).start()
    assert call(server, "CONFIG", "SET", "maxclients", 700) == b"OK"
    edited = "timeout = 7\nbogus = 1\n"
    file.write_text(edited)
    assert "line 2: unknown setting 'bogus'" in error_of(call(server, "CONFIG", "REWRITE"))
    with Couch(server.http_port) as couch:
        refused = couch.send("PUT", "/_node/_local/_config/couchdb/max_document_size", "1000000")
        assert refused.status == 400 and "line 2" in refused.json["reason"], refused.json
        assert couch.get("/_node/_local/_config/couchdb/max_document_size").json == "8000000"
    assert file.read_text() == edited
    file.write_text("timeout = 7\n")
    assert call(server, "CONFIG", "REWRITE") == b"OK"
    assert file.read_text() == "timeout = 7\nmaxclients = 700\n"


def test_a_client_is_told_what_it_can_set(server):
    refused = error_of(call(server, "CONFIG", "SET", "rename-command", "x"))
    assert "'rename-command' cannot be set here: commands keep their names" in refused, refused


def test_words_of_redis_set_what_they_mean(server):
    assert setting(server, "appendfsync") == "always"
    assert call(server, "CONFIG", "SET", "appendfsync", "everysec", "loglevel", "warning", "lua-time-limit", 700) == b"OK"
    names = ("durability", "appendfsync", "loglevel", "busy-reply-threshold")
    assert [setting(server, name) for name in names] == ["interval", "everysec", "warn", "700"]
    assert server.stop() == 0
    server.start()
    # The durability is a flag of this server, which holds again.
    assert [setting(server, name) for name in names] == ["strict", "always", "warn", "700"]
    assert call(server, "CONFIG", "SET", "durability", "commit") == b"OK"
    assert call(server, "CONFIG", "SET", "appendfsync", "always") == b"OK"
    assert setting(server, "durability") == "commit"


def test_settings_without_an_effect_last_until_the_server_stops(server):
    assert call(server, "CONFIG", "SET", "hz", 50, "slave-priority", 7) == b"OK"
    refused = error_of(call(server, "CONFIG", "SET", "hz", 60, "pidfile", "x"))
    assert refused == "ERR CONFIG SET failed (possibly related to argument 'pidfile') - can't set immutable config"
    assert (setting(server, "hz"), setting(server, "replica-priority")) == ("50", "7")
    assert server.log().count("has no effect here") == 2
    assert call(server, "CONFIG", "SET", "hz", 70) == b"OK"
    assert server.log().count("has no effect here") == 2, "said once"
    assert server.stop() == 0
    server.start()
    assert (setting(server, "hz"), setting(server, "replica-priority")) == ("10", "100")


def test_the_level_of_the_log_changes_at_once(server):
    assert call(server, "CONFIG", "SET", "loglevel", "warn") == b"OK"
    assert call(server, "CONFIG", "SET", "hz", 50) == b"OK"
    assert call(server, "CONFIG", "SET", "loglevel", "notice") == b"OK"
    assert call(server, "CONFIG", "SET", "dynamic-hz", "no") == b"OK"
    assert 'setting="dynamic-hz"' in server.log()
    assert 'setting="hz"' not in server.log()



def test_a_removed_configuration_file_is_not_made_anew(new_server, tmp_path):
    file = tmp_path / "sheaf.toml"
    file.write_text("timeout = 7\n")
    server = new_server(extra=("--config", str(file))).start()
    file.unlink()
    assert "no longer exists" in error_of(call(server, "CONFIG", "REWRITE"))
    with Couch(server.http_port) as couch:
        refused = couch.send("PUT", "/_node/_local/_config/chttpd/enable_cors", "true")
    assert refused.told() == (400, "bad_request", f"{file} no longer exists")
    assert not file.exists()


def test_the_size_of_segments_is_that_of_the_directory(new_server):
    server = new_server(log_segment_bytes="1mb").start()
    server.kill()
    server.options.log_segment_bytes = "4mb"
    server.start()
    assert setting(server, "log-segment-bytes") == "1048576"
    server.wait_for_log("log-segment-bytes was fixed when the directory was created")
    refused = error_of(call(server, "CONFIG", "SET", "log-segment-bytes", "4mb"))
    assert refused.endswith("'log-segment-bytes' was fixed when the directory was created")


def test_the_file_of_kept_settings_begins_with_its_purpose(server):
    assert call(server, "CONFIG", "SET", "timeout", 7, "maxmemory", "1mb") == b"OK"
    assert call(server, "CONFIG", "SET", "timeout", 0) == b"OK"
    seal, first, *rest = (server.directory / "settings.toml").read_text().splitlines()
    assert seal.startswith("# checksum ")
    assert first.startswith("# What this server was told to keep")
    assert not any(line.startswith("#") for line in rest)


def test_a_hangup_reads_the_configuration_file_again(new_server, tmp_path):
    file = tmp_path / "sheaf.toml"
    file.write_text("timeout = 7\nmaxmemory = 0\nworkers = 3\n")
    server = new_server(extra=("--config", str(file))).start()
    assert call(server, "CONFIG", "SET", "timeout", 8) == b"OK"
    file.write_text('timeout = 7\nmaxmemory = "5mb"\nlog-format = "json"\n')
    server.signal(signal.SIGHUP)
    server.wait_for_log("SIGHUP: the configuration file was read again")
    wait_until("the new value", lambda: setting(server, "maxmemory") == "5242880")
    assert setting(server, "timeout") == "8", "the file says nothing new of it"
    assert "log-format" in server.log()
    file.write_text("timeout = never\n")
    server.signal(signal.SIGHUP)
    server.wait_for_log("SIGHUP: the configuration file changes nothing")
    assert f"{file}, line 1" in server.log()
    assert setting(server, "maxmemory") == "5242880"


def test_a_hangup_without_a_configuration_file_changes_nothing(server):
    for _ in range(3):
        server.signal(signal.SIGHUP)
    server.wait_for_log("SIGHUP: there is no configuration file")
    assert call(server, "PING") == b"PONG"


@pytest.mark.parametrize(
    ("name", "value", "environment", "said"),
    [
        (None, None, {"SHEAF_PORT": "many"}, "SHEAF_PORT: "),
        (None, None, {"SHEAF_MAXMEMORY": "1 potato"}, "SHEAF_MAXMEMORY: "),
        ("maxmemory", "1 potato", {}, "--maxmemory: "),
    ],
)
def test_the_error_of_a_bad_value_names_its_place(tmp_path, name, value, environment, said):
    flags = (f"--{name}", value) if name else ()
    refused = run_sheaf("serve", "--dir", str(tmp_path / "data"), *flags, extra_environment=environment)
    assert refused.returncode not in (0, 101)
    assert said in refused.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--replica-of", "nowhere"), "replica-of is neither HOST:PORT"),
        (("--group", "a b"), "is not a name of a group"),
        (("--group", "shop", "--join", "nowhere"), "join is not HOST:PORT"),
        (("--join", "127.0.0.1:7001"), "--join needs the name of the group"),
        (("--bind", ""), "no address to listen on"),
        (("--port", "6390", "--http-port", "6390"), "port and http-port both name port 6390"),
        (("--port", "6390", "--sentinel-port", "6390"), "port and sentinel-port both name port 6390: leave sentinel-port out"),
        (("--port", "0", "--http-port", "6390", "--sentinel-port", "6390"), "http-port and sentinel-port both name port"),
        (("--workers", "-1"), "must be a number from 0 to 128"),
        (("--log-segment-bytes", "63mb"), "must be a power of two"),
        (("--maxmemroy", "1gb"), "a similar argument exists: '--maxmemory'"),
        (("--daemonize", "yes"), "--daemonize is not known here: the server stays in the foreground"),
        (("--save", "900", "x"), "every write is in the log"),
        (("--appendonly", "no"), "can only be yes: every write is in the log"),
        (("--config", "/nowhere/redis.conf"), "cannot read the settings of /nowhere/redis.conf"),
    ],
)
def test_a_wrong_value_has_an_exit_status_of_its_own(tmp_path, flags, said):
    ports = () if "--port" in flags else ANY_PORTS
    refused = run_sheaf("serve", "--dir", str(tmp_path / "data"), *ports, *flags)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr


def test_mistyped_variables_are_told_in_one_line(new_server):
    of_tests = {"SHEAF_SIM_SEED": "1", "SHEAF_BINARY": "x"}
    mistyped = {"SHEAF_PROT": "6390", "SHEAF_REPLICAOF": "db1:6379"}
    server = new_server(extra_environment=of_tests | mistyped).start()
    server.wait_for_log("SHEAF_PROT is no setting; did you mean SHEAF_PORT?")
    lines = [line for line in server.log().splitlines() if "is no setting" in line]
    assert len(lines) == 1 and "WARN" in lines[0], lines
    assert "SHEAF_REPLICAOF is no setting: use --replica-of HOST:PORT" in lines[0]
    assert not any(name in lines[0] for name in of_tests)


def test_a_lower_limit_of_memory_evicts_without_any_write(server):
    with server.connect() as connection:
        for number in range(2000):
            connection.call("SET", f"k:{number}", "x" * 1000)
        assert connection.call("DBSIZE") == 2000
        assert connection.call("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "allkeys-lru") == b"OK"
        wait_until("what is too much to go", lambda: connection.call("DBSIZE") < 1000)


def limited(*limits: str) -> tuple[str, ...]:
    """The prefix of a command line that sets these limits of open files."""
    # A user that may raise the hard limit has all descriptors.
    powerless = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource") if os.geteuid() == 0 else ()
    return (*powerless, "sh", "-c", "; ".join(f"ulimit {limit}" for limit in limits) + '; exec "$@"', "sh")


def redis_clients_max(open_files_max: int) -> int:
    """The descriptors besides the server's own files, without HTTP's quarter."""
    room = open_files_max - 96
    return room - room // 4


def test_the_soft_limit_of_open_files_is_raised(new_server):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = new_server(wrapper=limited("-Sn 256")).start()
    soft, _ = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    assert soft >= min(most, 20_000)
    assert int(setting(server, "maxclients")) == min(10_000, redis_clients_max(most))


def test_no_more_clients_are_allowed_than_there_can_be(new_server):
    server = new_server(wrapper=limited("-Sn 256", "-Hn 1096")).start()
    assert setting(server, "maxclients") == "750"
    assert server.log().count("maxclients is lowered") == 1
    refused = error_of(call(server, "CONFIG", "SET", "maxclients", 1000))
    assert "try with 750" in refused
    assert call(server, "CONFIG", "SET", "maxclients", 400) == b"OK"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "on other machines, clients of the Redis protocol are refused"),
        (("--protected-mode", "no"), "everybody who reaches this address"),
        (("--requirepass", "x"), None),
    ],
)
def test_a_door_that_is_open_to_others_is_warned_of(new_server, flags, said):
    password = "x" if said is None else None
    server = new_server(bind="0.0.0.0", extra=flags if password is None else (), requirepass=password).start()
    assert ("bind goes beyond this machine" in server.log()) == (said is not None)
    assert said is None or said in server.log()


def test_a_file_of_redis_is_read_as_redis_server_reads_it(new_server, tmp_path):
    included, file = tmp_path / "included.conf", tmp_path / "redis.conf"
    included.write_text("maxmemory 1gb\nhz 50\n")
    lines = f"# a comment\nsave 900 1\nrequirepass 'it\\'s'\ninclude {included}\ndaemonize no\nappendfsync everysec\n"
    file.write_text(lines)
    server = new_server(requirepass="it's", durability="commit", extra=("--config", str(file))).start()
    shown = {name: call(server, "CONFIG", "GET", name)[1] for name in ("maxmemory", "hz", "requirepass", "durability")}
    assert shown == {"maxmemory": b"1073741824", "hz": b"50", "requirepass": b"it's", "durability": b"commit"}
    told = next(line for line in server.log().splitlines() if "have no effect here" in line)
    assert all(name in told for name in ("save", "hz", "daemonize", "appendfsync")), told
    assert call(server, "CONFIG", "SET", "maxmemory", "2gb") == b"OK"
    assert "sheaf config convert" in error_of(call(server, "CONFIG", "REWRITE"))
    assert file.read_text() == lines
    # Read again at a signal, with those that it includes.
    included.write_text("maxmemory 3gb\nhz 50\n")
    os.kill(server.pid, signal.SIGHUP)
    wait_until("the new value", lambda: call(server, "CONFIG", "GET", "maxmemory")[1] == b"3221225472")


def test_a_file_of_redis_is_converted_and_a_wrong_one_refused(tmp_path):
    file = tmp_path / "redis.conf"
    file.write_text('port 7001\nrename-command FLUSHALL ""\n')
    converted = run_sheaf("config", "convert", str(file))
    assert converted.returncode == 1 and "\nport = 7001\n" in converted.stdout, converted
    assert "1 line was not taken over" in converted.stderr, converted
    assert "line 2: 'rename-command' is not known here: commands keep their names" in converted.stdout
    directory = run_sheaf("config", "convert", str(tmp_path))
    assert directory.returncode == 1 and f"{tmp_path}: it is a directory" in directory.stderr, directory
    # As in `redis-server redis.conf`: the file comes first.
    refused = run_sheaf(str(file), "--dir", str(tmp_path / "data"))
    assert refused.returncode == 2 and f"{file}, line 2: 'rename-command' is not known here" in refused.stderr, refused.stderr
    assert not (tmp_path / "data").exists()
