"""The audit: what administrators do, and logins that fail, are in the log, for administrators to read."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from harness.couch import Couch
from harness.replicas import call, error_of, follower_of, wait_same
from harness.resp import Closed
from harness.server import Server, environment, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

CHANNEL = "__sheaf__:audit"
SECRET = "not-in-any-text"


@contextlib.contextmanager
def tail(server: Server, *flags: str) -> Iterator[Callable[[str], dict]]:
    """`sheaf tail --audit`: a function that returns the next entry about this action."""
    command = [sheaf_binary(), "tail", "--audit", "--port", str(server.port), *flags]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def entry_of(action: str) -> dict:
        for line in process.stdout:
            entry = json.loads(line[line.index("{") :].encode().decode())
            assert SECRET not in line
            if entry["action"] == action:
                return entry
        raise AssertionError(f"{action} is not in the audit")

    try:
        yield entry_of
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.fixture
def audited(new_server) -> Server:
    """A server with an audit."""
    return new_server(extra=("--audit", "yes", "--admin-password", SECRET)).start()


def test_actions_of_administrators_are_in_the_audit(audited):
    assert call(audited, "CONFIG", "SET", "maxmemory", "1gb", "requirepass", "") == b"OK"
    assert call(audited, "ACL", "SETUSER", "anna", "on", f">{SECRET}", "~*", "+@all") == b"OK"
    assert error_of(call(audited, "CONFIG", "SET", "bogus", "1")).startswith("ERR")
    with audited.connect() as anna:
        assert anna.call("AUTH", "anna", SECRET) == b"OK"
        assert anna.call("MULTI") == b"OK"
        assert anna.call("FLUSHALL") == b"QUEUED"
        assert anna.call("EXEC") == [b"OK"]
        assert error_of(anna.call("AUTH", "anna", "wrong")).startswith("WRONGPASS")
        assert error_of(anna.call("AUTH", SECRET, "wrong")).startswith("WRONGPASS")
    with Couch(audited.http_port, ("admin", SECRET)) as admin:
        admin.ok("PUT", "/notes")
        admin.ok("PUT", "/notes/_security", {"admins": {}, "members": {}})
        admin.ok("PUT", "/_node/_local/_config/log/level", "info")
        admin.ok("PUT", "/_users")
        user = {"name": "bert", "type": "user", "roles": [], "password": SECRET}
        admin.ok("PUT", "/_users/org.couchdb.user:bert", user)
        assert admin.ok("POST", "/_users/_find", {"selector": {"name": "bert"}})["docs"]
        admin.ok("POST", "/_users/_all_docs", {"keys": ["org.couchdb.user:bert"]})
        admin.put("notes", {"_id": "a"})
    with Couch(audited.http_port, ("bert", "wrong")) as stranger:
        assert stranger.get("/notes").status == 401
    with tail(audited) as entry_of:
        entry = entry_of("config|set")
        assert entry["arguments"] == ["maxmemory", "1gb", "requirepass", "(redacted)"]
        assert (entry["user"], entry["succeeded"]) == ("default", True) and entry["client"].startswith("127.0.0.1:")
        entry = entry_of("acl|setuser")
        assert entry["arguments"] == ["anna", *["(redacted)"] * 4]
        entry = entry_of("config|set")
        assert (entry["arguments"], entry["succeeded"]) == (["bogus", "(redacted)"], False)
        assert (entry := entry_of("flushall"))["user"] == "anna" and entry["succeeded"]
        assert (entry := entry_of("auth"))["user"] == "anna" and not entry["succeeded"]
        assert entry_of("auth")["user"] is None, "people type passwords in the place of names"
        for path in ("/notes", "/notes/_security", "/_node/_local/_config/log/level", "/_users"):
            entry = entry_of("HTTP")
            assert (entry["user"], entry["arguments"], entry["succeeded"]) == ("admin", ["PUT", path], True)
        assert entry_of("HTTP")["arguments"] == ["PUT", "/_users/org.couchdb.user:bert"]
        entry = entry_of("HTTP")
        assert (entry["user"], entry["arguments"], entry["succeeded"]) == ("bert", [], False)
        # Commands over HTTP are those of the user over HTTP, not of the one with whose rights they run.
        for user in ("admin", "anna"):
            with Couch(audited.http_port, (user, SECRET)) as console:
                assert console.ok("POST", "/_redis", [["CONFIG", "SET", "maxmemory", "1gb"]]) == ["OK"]
            assert entry_of("config|set")["user"] == user
        # It goes on.
        assert call(audited, "CLIENT", "KILL", "ID", "1000000") is not None
        assert entry_of("client|kill")["arguments"] == ["ID", "1000000"]
    assert SECRET not in audited.log()


def test_who_follows_an_audit_that_is_off_is_told(new_server):
    server = new_server().start()
    command = [sheaf_binary(), "tail", "--audit", "--port", str(server.port)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None and "CONFIG SET audit yes begins it" in process.stderr.readline()
        assert call(server, "CONFIG", "SET", "audit", "yes") == b"OK"
        assert process.stdout is not None and "config|set" in process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_the_audit_survives_and_tells_of_the_end(audited):
    assert call(audited, "CONFIG", "SET", "maxmemory", "2gb") == b"OK"
    with tail(audited) as entry_of:
        assert entry_of("config|set")["arguments"] == ["maxmemory", "2gb"]
    audited.kill()
    audited.start()
    with audited.connect() as connection:
        connection.send(b"SHUTDOWN\r\n")
        with pytest.raises(Closed):
            connection.read()
    assert audited.wait_exit() == 0
    audited.start()
    with tail(audited) as entry_of:
        assert entry_of("config|set")["arguments"] == ["maxmemory", "2gb"]
        assert entry_of("shutdown")["succeeded"]
        # The end of the audit is in it, and nothing after.
        assert call(audited, "CONFIG", "SET", "audit", "no") == b"OK"
        assert entry_of("config|set")["arguments"] == ["audit", "no"]
    assert call(audited, "CONFIG", "SET", "maxmemory", "3gb") == b"OK"
    assert call(audited, "CONFIG", "SET", "audit", "yes") == b"OK"
    assert call(audited, "CONFIG", "SET", "maxmemory", "4gb") == b"OK"
    with tail(audited) as entry_of:
        entry_of("shutdown")
        assert entry_of("config|set")["arguments"] == ["audit", "no"]
        # Its begin is in it, too.
        assert entry_of("config|set")["arguments"] == ["audit", "yes"]
        assert entry_of("config|set")["arguments"] == ["maxmemory", "4gb"]


def test_replicas_have_the_audit_and_their_own_actions_in_their_log(new_server):
    audited = new_server(extra=("--audit", "yes")).start()
    replica = follower_of(new_server, audited)
    assert call(audited, "CONFIG", "SET", "maxmemory", "2gb") == b"OK"
    with tail(replica) as entry_of:
        assert entry_of("config|set")["arguments"] == ["maxmemory", "2gb"]
    wait_same(audited, replica)
    wait_until("the replica to follow the setting", lambda: call(replica, "CONFIG", "GET", "audit")[1] == b"yes")
    assert call(replica, "CONFIG", "SET", "loglevel", "info") == b"OK"
    replica.wait_for_log('"action":"config|set","arguments":["loglevel","info"]')


def test_only_administrators_read_it_and_nobody_writes_it(audited):
    assert error_of(call(audited, "PUBLISH", CHANNEL, "forged")) == "ERR the server alone publishes to its audit"
    assert error_of(call(audited, "SPUBLISH", CHANNEL, "forged")) == "ERR the server alone publishes to its audit"
    rules = ("on", f">{SECRET}", "allchannels", "~*", "+@all", "-@admin")
    assert call(audited, "ACL", "SETUSER", "anna", *rules) == b"OK"
    with audited.connect() as anna:
        assert anna.call("AUTH", "anna", SECRET) == b"OK"
        assert error_of(anna.call("XSUBSCRIBE", CHANNEL, "FROM", "-")).startswith("NOPERM")
        # A right that is given, and taken away again while the entries come.
        assert call(audited, "ACL", "SETUSER", "anna", "+@admin") == b"OK"
        assert anna.call("XSUBSCRIBE", CHANNEL, "FROM", "$")[0] == b"xsubscribe"
        assert call(audited, "ACL", "SETUSER", "anna", "-@admin") == b"OK"
        with pytest.raises(Closed):
            while True:
                anna.read()


def test_a_server_without_it_notes_nothing(new_server):
    server = new_server().start()
    assert call(server, "CONFIG", "SET", "maxmemory", "1gb") == b"OK"
    assert call(server, "CONFIG", "SET", "audit", "yes") == b"OK"
    assert call(server, "CONFIG", "SET", "maxmemory", "2gb") == b"OK"
    with tail(server) as entry_of:
        assert entry_of("config|set")["arguments"] == ["audit", "yes"]
        assert entry_of("config|set")["arguments"] == ["maxmemory", "2gb"]
