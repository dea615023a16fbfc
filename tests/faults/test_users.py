"""Users are data: they go wherever the data goes, and their rights hold at once, on every connection."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import redis

from harness.couch import Couch
from harness.groups import group_of, others, wait_leader, wait_voters
from harness.replicas import call, error_of, follower_of, wait_following, wait_same
from harness.resp import Closed, encode
from harness.server import run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

PASSWORD = "not-in-any-text"
LOCKED = (403, "forbidden", "Account is temporarily locked due to multiple authentication failures")
RULES = ("on", f">{PASSWORD}", "~a*", "&news*", "+@read", "+subscribe", "+publish", "(~b +set)")


def add_user(server, name: str = "anna") -> None:
    """Makes a user."""
    assert call(server, "ACL", "SETUSER", name, *RULES) == b"OK"


def users(server) -> list[bytes]:
    """All users with their rules."""
    return call(server, "ACL", "LIST")


def log_in(server, name: str = "anna", password: str = PASSWORD):
    """A connection of a user."""
    connection = server.connect()
    assert connection.call("AUTH", name, password) == b"OK"
    return connection


def wait_closed(connection) -> None:
    """Reads until the server has closed the connection."""
    with pytest.raises(Closed):
        while True:
            connection.read()


@pytest.mark.oracle
@pytest.mark.parametrize("between", ["nothing", "SAVE", "FLUSHALL"])
def test_users_hold_after_kill_9(server, between):
    add_user(server)
    if between != "nothing":
        assert call(server, between) == b"OK"
    before = users(server)
    assert len(before) == 2
    server.kill()
    server.start()
    assert users(server) == before
    with log_in(server) as anna:
        assert error_of(anna.call("GET", "c")) == "NOPERM No permissions to access a key"
        assert anna.call("GET", "a") is None


def test_a_user_is_on_disk_before_its_ok(server):
    for number in range(10):
        assert call(server, "ACL", "SETUSER", f"user-{number}", "on", "nopass") == b"OK"
        server.kill()
        server.start()
        assert f"user-{number}".encode() in call(server, "ACL", "USERS")


def test_a_replica_has_the_users_of_its_leader(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    add_user(leader)
    wait_same(leader, replica)
    assert users(replica) == users(leader)
    refused = error_of(call(replica, "ACL", "SETUSER", "anna", "off"))
    assert refused.startswith("READONLY"), refused
    with log_in(replica) as anna:
        assert anna.call("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
        # Nobody else talks to the replica: it finds out by itself.
        assert call(leader, "ACL", "SETUSER", "anna", "resetchannels") == b"OK"
        wait_closed(anna)
    with log_in(replica) as anna:
        assert call(leader, "ACL", "DELUSER", "anna") == 1
        wait_closed(anna)


def test_a_failover_of_a_group_keeps_the_users(new_server):
    servers = group_of(new_server)
    leader = wait_leader(servers)
    add_user(leader)
    before = users(leader)
    rest = others(servers, leader)
    leader.kill()
    leader = wait_leader(rest)
    assert users(leader) == before
    with log_in(leader) as anna:
        assert error_of(anna.call("DEL", "a")) == "NOPERM User anna has no permissions to run the 'del' command"


def test_a_backup_has_the_users(new_server, server, tmp_path):
    add_user(server)
    before = users(server)
    saved = run_sheaf("backup", str(tmp_path / "backup"), "--from", f"http://127.0.0.1:{server.http_port}")
    assert saved.returncode == 0, saved.stderr
    restored = new_server()
    made = run_sheaf("restore", str(tmp_path / "backup"), "--dir", str(restored.directory))
    assert made.returncode == 0, made.stderr
    restored.start()
    assert users(restored) == before
    with log_in(restored) as anna:
        assert anna.call("GET", "a") is None


def test_a_change_ends_subscriptions_and_connections_at_once(server):
    add_user(server)
    with log_in(server) as listener, log_in(server) as idle:
        assert listener.call("SUBSCRIBE", "news.a") == [b"subscribe", b"news.a", 1]
        assert idle.call("GET", "a") is None
        assert call(server, "ACL", "SETUSER", "anna", "resetchannels", "&other") == b"OK"
        wait_closed(listener)
        assert idle.call("GET", "a") is None, "it listens to nothing"
        assert call(server, "ACL", "DELUSER", "anna") == 1
        wait_closed(idle)


def test_a_waiting_client_gets_nothing_after_its_rights_are_gone(server):
    assert call(server, "ACL", "SETUSER", "anna", "on", f">{PASSWORD}", "~*", "+blpop") == b"OK"
    with log_in(server) as anna:
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(anna.call("BLPOP", "list", 0)))
        waiting.start()
        wait_until("the client to wait", lambda: b" flags=b " in call(server, "CLIENT", "LIST"))
        assert call(server, "ACL", "SETUSER", "anna", "resetkeys") == b"OK"
        assert call(server, "RPUSH", "list", "secret") == 1
        waiting.join()
        assert error_of(answers[0]) == "NOPERM No permissions to access a key"
        assert call(server, "LRANGE", "list", 0, -1) == [b"secret"]


def test_passwords_are_in_no_text(server):
    assert call(server, "CONFIG", "SET", "slowlog-log-slower-than", 0) == b"OK"
    with server.connect() as monitor:
        monitor.call("MONITOR")
        add_user(server)
        call(server, "ACL", "SETUSER", "anna", f">{PASSWORD}", "+nosuch")
        with log_in(server) as anna:
            anna.call("GET", "a")
        call(server, "AUTH", "anna", f"{PASSWORD}-wrong")
        call(server, "SET", "last", "1")
        shown = []
        while not shown or b'"last"' not in shown[-1]:
            shown.append(monitor.read())
    for text in (shown, call(server, "SLOWLOG", "GET", 100), call(server, "ACL", "LOG"), call(server, "CLIENT", "LIST")):
        assert PASSWORD not in str(text)
    server.kill()
    assert PASSWORD not in run_sheaf("log", str(server.directory)).stdout
    assert PASSWORD not in server.log()
    for file in server.directory.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file


def test_the_file_of_users(new_server, tmp_path):
    path = tmp_path / "users.acl"
    path.write_text(f"user default on nopass ~* &* +@all\nuser anna on >{PASSWORD} ~a* +@read\n")
    server = new_server(extra=("--aclfile", str(path))).start()
    assert call(server, "ACL", "USERS") == [b"anna", b"default"]
    assert call(server, "ACL", "SETUSER", "bert", "on", "nopass", "+ping") == b"OK"
    server.kill()
    server.start()
    assert call(server, "ACL", "USERS") == [b"anna", b"bert", b"default"], "a restart undoes nothing"
    assert call(server, "ACL", "SAVE") == b"OK"
    saved = path.read_text()
    assert PASSWORD not in saved and "user bert on nopass" in saved and path.stat().st_mode & 0o077 == 0
    path.write_text(saved.replace("user bert", "user carl"))
    assert call(server, "ACL", "LOAD") == b"OK"
    assert call(server, "ACL", "USERS") == [b"anna", b"carl", b"default"]
    path.write_text("user carl +nosuch\n")
    assert "Unknown command or category name in ACL" in error_of(call(server, "ACL", "LOAD"))
    assert call(server, "ACL", "USERS") == [b"anna", b"carl", b"default"]


def needs_password(server) -> bool:
    """Whether clients have to log in."""
    with server.connect() as client:
        return error_of(client.call("PING")).startswith("NOAUTH")


def test_requirepass_changes_the_record_of_default(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    assert call(leader, "ACL", "SETUSER", "default", "-debug") == b"OK"
    wait_same(leader, replica)
    refused = error_of(call(replica, "CONFIG", "SET", "requirepass", "other"))
    assert refused.startswith("READONLY 'requirepass' belongs to the data"), refused
    assert call(replica, "CONFIG", "SET", "masterauth", "other") == b"OK"
    assert call(leader, "CONFIG", "SET", "requirepass", "other") == b"OK"
    for server in (leader, replica):
        wait_until("the password to hold", lambda server=server: needs_password(server))
        with server.connect() as client:
            assert client.call("AUTH", "other") == b"OK"
            assert b"-debug" in client.call("ACL", "LIST")[0]


def test_a_restricted_default_user_opens_no_door_over_http(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", "/db").status == 201
        assert couch.send("POST", "/_redis", [["GET", "k"]]).status == 200
        assert call(server, "ACL", "SETUSER", "admin", "on", ">pw", "~*", "&*", "+@all") == b"OK"
        assert call(server, "ACL", "SETUSER", "default", "nopass", "resetkeys", "-@all", "+get") == b"OK"
        requests = [("PUT", "/other", None), ("GET", "/_all_dbs", None), ("POST", "/_redis", [["GET", "k"]])]
        assert [couch.send(*request).status for request in requests] == [401, 401, 401]
    url = f"http://127.0.0.1:{server.http_port}"
    saved = run_sheaf("backup", str(server.directory.parent / "backup"), "--from", url)
    assert saved.returncode != 0 and "admin" in saved.stderr, saved.stderr
    with server.connect() as client:
        assert error_of(client.call("SET", "k", "v")).startswith("NOPERM")


def test_commands_over_http_have_the_rights_of_their_admin(new_server):
    server = new_server(extra=("--admin-user", "root", "--admin-password", "of the admin")).start()
    commands = [["ACL", "WHOAMI"], ["SET", "k", "v"], ["SET", "a", "v"]]
    with Couch(server.http_port, ("root", "of the admin")) as root, Couch(server.http_port, ("anna", "pw")) as anna:
        # HTTP does not know this password.
        assert call(server, "ACL", "SETUSER", "default", ">unknown to http", "-flushall") == b"OK"
        assert root.ok("POST", "/_redis", commands) == ["default", "OK", "OK"]
        assert root.ok("POST", "/_redis", [["ACL", "SETUSER", "anna", "on", ">pw", "~a", "&*", "+@all"]]) == ["OK"]
        assert root.ok("POST", "/_redis", [["FLUSHALL"]])[0]["error"].startswith("NOPERM")
        whoami, refused, done = anna.ok("POST", "/_redis", commands)
        assert (whoami, done) == ("anna", "OK") and refused["error"].startswith("NOPERM"), refused
        # The rights of `default` do not count for another user.
        assert root.ok("POST", "/_redis", [["ACL", "SETUSER", "default", "off", "resetkeys", "-@all"]]) == ["OK"]
        assert anna.ok("POST", "/_redis", commands)[2] == "OK"


@pytest.mark.oracle
def test_a_changed_password_of_default_holds_after_kill_9(new_server):
    server = new_server(requirepass="secret").start()
    with server.connect() as client:
        assert client.call("ACL", "SETUSER", "default", "-debug") == b"OK"
        assert client.call("CONFIG", "SET", "requirepass", "other") == b"OK"
    server.kill()
    server.options = replace(server.options, requirepass="other")
    server.start()
    with server.connect() as client:
        assert b"-debug" in client.call("ACL", "LIST")[0]
        assert error_of(client.call("AUTH", "secret")).startswith("WRONGPASS")
        assert client.call("CONFIG", "GET", "requirepass") == [b"requirepass", b"other"]


def test_requirepass_works_as_before(new_server):
    server = new_server(requirepass="secret").start()
    with server.connect() as client:
        assert client.call("ACL", "WHOAMI") == b"default"
        assert client.call("CONFIG", "SET", "requirepass", "other") == b"OK"
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=server.port, password="secret", protocol=2).ping()
    assert redis.Redis(port=server.port, password="other").ping()
    assert redis.Redis(port=server.port, username="default", password="other").ping()


def text(reply) -> str:
    """A reply of redis-py as text: it decodes some by itself."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def texts(replies) -> list[str]:
    """Replies of redis-py as texts."""
    return [text(reply) for reply in replies]


def test_the_methods_of_redis_py(client):
    assert text(client.acl_whoami()) == "default"
    assert client.acl_setuser(
        "anna", enabled=True, passwords=[f"+{PASSWORD}"], categories=["+@read"], commands=["+set", "-get"], keys=["a*"], channels=["news"]
    )
    shown = client.acl_getuser("anna")
    assert "on" in texts(shown["flags"]) and shown["enabled"]
    assert texts(client.acl_users()) == ["anna", "default"]
    assert len(client.acl_list()) == 2
    assert "read" in texts(client.acl_cat()) and "get" in texts(client.acl_cat("read"))
    assert text(client.acl_dryrun("anna", "set", "a", "1")) == "OK"
    assert "no permissions" in text(client.acl_dryrun("anna", "get", "a"))
    assert len(client.acl_genpass(40)) == 10
    assert isinstance(client.acl_log(), list) and client.acl_log_reset()
    assert client.acl_help()
    assert client.acl_deluser("anna") == 1


AS_SERVERS = ("--masteruser", "servers", "--masterauth", "secret")


def test_a_replica_logs_in_as_a_user_with_few_rights(new_server):
    leader = new_server(requirepass="of-people").start()
    with leader.connect() as admin:
        assert admin.call("ACL", "SETUSER", "servers", "on", ">secret", "+replicate") == b"OK"
        assert admin.call("SET", "k", "v") == b"OK"
    replica = new_server(requirepass="of-people", extra=("--replica-of", f"127.0.0.1:{leader.port}", *AS_SERVERS)).start()

    def value() -> bytes | None:
        with replica.connect() as client:
            return client.call("GET", "k")

    wait_until("the replica to have the data", lambda: value() == b"v")
    assert "copying everything" in replica.log(), "over HTTP, as the same user"
    with leader.connect() as admin, log_in(leader, "servers", "secret") as client:
        assert error_of(client.call("GET", "k")).startswith("NOPERM User servers")
        assert b"role:master" in admin.call("INFO", "replication")


def test_members_of_a_group_log_in_as_a_user_of_the_settings(new_server):
    first = new_server(requirepass="of-people", extra=("--group", "g", *AS_SERVERS)).start()
    join = ("--group", "g", "--join", f"127.0.0.1:{first.port}", *AS_SERVERS)
    second, third = (new_server(requirepass="of-people", extra=join).start() for _ in range(2))

    def writes(*servers) -> bool:
        for server in servers:
            with server.connect() as client:
                if client.call("SET", "k", "v") == b"OK":
                    return True
        return False

    wait_voters([first, second, third], 3)
    assert writes(first)
    with log_in(first, "servers", "secret") as servers:
        for command in (("GET", "k"), ("ACL", "LIST"), ("CONFIG", "GET", "*"), ("FLUSHALL",)):
            assert error_of(servers.call(*command)).startswith("NOPERM User servers"), command
    # A record takes the place of the settings.
    assert call(first, "ACL", "SETUSER", "servers", "on", ">other") == b"OK"
    with first.connect() as client:
        assert error_of(client.call("AUTH", "servers", "secret")).startswith("WRONGPASS")
    assert call(first, "ACL", "DELUSER", "servers") == 1
    first.kill()
    wait_until("another member to lead", lambda: writes(second, third))


def test_metrics_and_backups_are_rights_of_their_own(new_server, tmp_path):
    server = new_server(requirepass="secret").start()
    with server.connect() as client:
        for name, rule in (("watcher", "+info"), ("saver", "+replicate"), ("nobody", "+@read"), ("root", "+@all")):
            assert client.call("ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "-@all", rule) == b"OK"

    def status(name: str, password: str, method: str, path: str) -> int:
        with Couch(server.http_port, user=(name, password)) as couch:
            return couch.send(method, path).status

    assert status("watcher", "pw", "GET", "/metrics") == 200
    assert status("watcher", "wrong", "GET", "/metrics") == 401
    assert status("watcher", "pw", "GET", "/_all_dbs") == 401
    assert status("watcher", "pw", "POST", "/_backup") == 401
    assert status("saver", "pw", "GET", "/metrics") == 401
    assert status("nobody", "pw", "GET", "/metrics") == 401
    assert status("root", "pw", "GET", "/metrics") == status("root", "pw", "GET", "/_all_dbs") == 200
    password_file = tmp_path / "password"
    password_file.write_text("pw")
    url = f"http://127.0.0.1:{server.http_port}"
    for name, code in (("saver", 0), ("watcher", 1)):
        saved = run_sheaf(
            "backup", str(tmp_path / name), "--from", url, "--user", name, "--password-file", str(password_file)
        )
        assert (saved.returncode == 0) == (code == 0), saved.stderr


def test_documents_need_rights_to_their_keys(server):
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", "/shop").status == 201
        assert couch.send("PUT", "/shop/order:1", {"a": 1}).status == 201
        assert couch.send("PUT", "/shop/secret", {"a": 2}).status == 201
    assert call(server, "ACL", "SETUSER", "anna", "on", f">{PASSWORD}", "~job:*", "+@read", "+@write") == b"OK"
    get, put = ("DOC.GET", "shop", "order:1"), ("DOC.PUT", "shop", "order:2", "{}")
    with log_in(server) as anna:
        for command in (get, put):
            assert error_of(anna.call(*command)) == "NOPERM No permissions to access a key"
        assert call(server, "ACL", "SETUSER", "anna", "%R~shop/order:*") == b"OK"
        assert b'"a":1' in anna.call(*get)
        for command in (put, ("DOC.DEL", "shop", "order:1", "1-a"), ("DOC.GET", "shop", "secret")):
            assert error_of(anna.call(*command)) == "NOPERM No permissions to access a key", command
            assert b"no permissions to access" in call(server, "ACL", "DRYRUN", "anna", *command)
        assert call(server, "ACL", "SETUSER", "anna", "~shop/order:*") == b"OK"
        assert anna.call(*put).startswith(b"1-")
        # A database whose name goes on after that of another one is none of its documents.
        with Couch(server.http_port) as couch:
            assert couch.send("PUT", "/shop%2Fprivate").status == 201
            assert couch.send("PUT", "/shop%2Fprivate/a", {"a": 3}).status == 201
        assert call(server, "ACL", "SETUSER", "anna", "~shop/*") == b"OK"
        other = ("DOC.GET", "shop/private", "a")
        assert error_of(anna.call(*other)) == "NOPERM No permissions to access a key"
        assert call(server, "ACL", "SETUSER", "anna", "~shop%2Fprivate/*") == b"OK"
        assert b'"a":3' in anna.call(*other)


def test_a_monitor_that_lost_the_right_is_closed(server):
    assert call(server, "ACL", "SETUSER", "anna", "on", f">{PASSWORD}", "~*", "&*", "+@all") == b"OK"
    with log_in(server) as anna, log_in(server) as other:
        assert anna.call("MONITOR") == b"OK"
        assert call(server, "ACL", "SETUSER", "anna", "-monitor") == b"OK"
        wait_closed(anna)
        assert other.call("PING") == b"PONG"


def test_failed_logins_are_counted_logged_and_slowed_down(server):
    add_user(server)
    with server.connect() as client:
        for _ in range(25):
            assert error_of(client.call("AUTH", "anna", f"{PASSWORD}-wrong")).startswith("WRONGPASS")
        assert b"acl_access_denied_auth:25" in call(server, "INFO", "stats")
        # From here on it takes time, and the right password is accepted after that.
        assert client.call("AUTH", "anna", PASSWORD) == b"OK"
    assert server.log().count("a client failed to log in") == 1
    assert "127.0.0.1" in server.log() and PASSWORD not in server.log() and "anna" not in server.log()
    with Couch(server.http_port) as couch:
        assert b'sheaf_denied_total{reason="auth"} 25' in couch.send("GET", "/metrics").body


def test_an_address_that_guesses_waits_on_all_its_connections(new_server):
    server = new_server(requirepass="secret").start()
    guesses = 100
    with server.connect() as guesser, ThreadPoolExecutor(60) as pool:
        guesser.send(encode("AUTH", "guess") * guesses)
        first = [error_of(guesser.read()) for _ in range(30)]
        # Between two of them, HTTP does not look at a password either: some have a place and wait, the others are
        # refused. None is anonymous, also on a route that is open to all.
        couches = [Couch(server.http_port, ("default", "guess")) for _ in range(60)]
        answered = list(pool.map(lambda couch: couch.get("/_session"), couches))
        assert {it.status for it in answered} == {401, 403}
        assert {it.told() for it in answered if it.status == 403} == {LOCKED}
        assert all(text.startswith("WRONGPASS") for text in first)
        # The right password is accepted after the wait, at both ports.
        with Couch(server.http_port, user=("default", "secret")) as couch:
            assert couch.ok("GET", "/_session")["userCtx"]["name"] == "default"
        assert all(error_of(guesser.read()).startswith("WRONGPASS") for _ in range(guesses - len(first)))
        with server.connect() as client:
            assert client.call("PING") == b"PONG"


def test_passwords_come_from_files(new_server, tmp_path):
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    files = ("--requirepass-file", str(password), "--masterauth-file", str(password))
    server = new_server(extra=(*files, "--admin-user", "root", "--admin-password", "of the admin"))
    server.spawn()

    def answers() -> bool:
        try:
            with server.connect() as client:
                return client.call("AUTH", PASSWORD) == b"OK" and client.call("PING") == b"PONG"
        except (OSError, Closed):
            return False

    wait_until("the server to know its password", answers)
    with server.connect() as client:
        assert error_of(client.call("GET", "a")).startswith("NOAUTH")
        assert error_of(client.call("AUTH", "more")).startswith("WRONGPASS")
        assert client.call("AUTH", PASSWORD) == b"OK"
        # Redis shows passwords, but has no files for those that nobody may see, and no second door.
        for name in ("requirepass", "masterauth", "primaryauth", "admin-password"):
            assert client.call("CONFIG", "GET", name) == [name.encode(), b""], name


def test_a_replica_logs_in_as_a_user_whose_change_waits_for_it(new_server):
    server = new_server().start()
    assert call(server, "ACL", "SETUSER", "servers", "on", ">secret", "+replicate") == b"OK"
    replica = follower_of(new_server, server, extra=AS_SERVERS)
    for setting in (("ack-timeout", 1), ("ack-replicas", 1)):
        assert call(server, "CONFIG", "SET", *setting) == b"OK"
    replica.kill()
    assert error_of(call(server, "ACL", "SETUSER", "servers", "+info")).startswith("NOREPLICAS")
    replica.start()
    wait_following(replica)
    assert call(server, "SET", "k", "v") == b"OK"


def test_an_unacknowledged_change_of_a_user_holds_up_only_that_user(new_server):
    server = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    replica = follower_of(new_server, server)
    add_user(server)
    with log_in(server) as anna:
        replica.kill()
        assert error_of(call(server, "ACL", "SETUSER", "anna", "+set")).startswith("NOREPLICAS")
        assert error_of(anna.call("GET", "a")).startswith("NOREPLICAS")
    for restarts in (False, True):
        if restarts:
            server.kill()
            server.start()
        with server.connect() as default:
            for shown in (("ACL", "LIST"), ("ACL", "GETUSER", "anna"), ("AUTH", "anna", PASSWORD), ("AUTH", "bob", "x")):
                assert error_of(default.call(*shown)).startswith("NOREPLICAS"), shown
        with server.connect() as default:
            assert default.call("PING") == b"PONG"
            assert default.call("GET", "a") is None
            assert default.call("ACL", "WHOAMI") == b"default"


def test_an_unacknowledged_right_opens_no_document_over_http(new_server):
    server = new_server(extra=("--ack-replicas", "1", "--ack-timeout", "1")).start()
    replica = follower_of(new_server, server)
    assert call(server, "CONFIG", "SET", "admin-password", "secret") == b"OK"
    logins = [("admin", "secret"), ("carl", "c"), ("eve", PASSWORD)]
    admin, carl, eve = (Couch(server.http_port, login) for login in logins)
    not_replicated = (503, "not_replicated")
    with admin, carl, eve, Couch(server.http_port) as browser:
        for path in ("/_users", "/db"):
            admin.ok("PUT", path)
        user = {"name": "carl", "type": "user", "roles": [], "password": "c"}
        admin.ok("PUT", "/_users/org.couchdb.user:carl", user)
        changed = admin.ok("GET", "/_users/org.couchdb.user:carl") | {"roles": ["reader"]}
        admin.ok("PUT", "/db/_security", {"members": {"names": ["eve"], "roles": ["reader"]}})
        admin.put("db", {"_id": "a"})
        assert carl.get("/db/a").status == 403
        begun = browser.send("POST", "/_session", {"name": "carl", "password": "c"})
        cookie = begun.headers["Set-Cookie"].split(";")[0]
        replica.kill()
        assert error_of(call(server, "ACL", "SETUSER", "eve", *RULES)).startswith("NOREPLICAS")
        for path in ("/db/a", "/_session", "/"):
            assert eve.get(path).told()[:2] == not_replicated, path
        login = {"name": "eve", "password": PASSWORD}
        assert browser.send("POST", "/_session", login).told()[:2] == not_replicated
        assert admin.ok("GET", "/db/a"), "an unchanged user is served"
        assert admin.send("PUT", "/_users/org.couchdb.user:carl", changed).told()[:2] == not_replicated
        assert carl.get("/db/a").told()[:2] == not_replicated
        assert browser.get("/db/a", Cookie=cookie).told()[:2] == not_replicated
        assert call(server, "CONFIG", "SET", "ack-replicas", 0) == b"OK"
        assert eve.ok("GET", "/db/a") and carl.ok("GET", "/db/a")


def test_a_login_right_after_very_many_logouts_is_a_session(new_server):
    server = new_server(extra=("--admin-password", "secret")).start()
    login = {"name": "admin", "password": "secret"}
    with Couch(server.http_port) as browser:

        def cookie() -> str:
            answer = browser.send("POST", "/_session", login)
            return answer.headers["Set-Cookie"].split(";")[0]

        for _ in range(1030):
            browser.ok("DELETE", "/_session", Cookie=cookie())
            # Also in the second in which all sessions of the user were ended.
            assert browser.ok("GET", "/_session", Cookie=cookie())["userCtx"]["name"] == "admin"


def test_a_replica_is_disconnected_when_its_user_loses_the_right(new_server):
    leader = new_server().start()
    rules = ("on", f">{PASSWORD}", "+replicate")
    assert call(leader, "ACL", "SETUSER", "servers", *rules) == b"OK"
    replica = new_server(extra=("--masteruser", "servers", "--masterauth", PASSWORD)).start()
    assert call(replica, "REPLICAOF", "127.0.0.1", leader.port) == b"OK"

    def follows() -> bool:
        return "master_link_status:up" in call(replica, "INFO", "replication").decode()

    wait_until("the replica to follow", follows)
    for taken, given in (("-replicate", "+replicate"), (None, "+replicate")):
        change = ("DELUSER", "servers") if taken is None else ("SETUSER", "servers", taken)
        assert call(leader, "ACL", *change) in (b"OK", 1)
        wait_until("the replica to be disconnected", lambda: not follows())
        assert call(leader, "SET", "secret", taken or "deleted") == b"OK"
        assert call(leader, "ACL", "SETUSER", "servers", *rules) == b"OK"
        wait_until("the replica to follow again", follows)
        wait_same(leader, replica)


def test_a_session_goes_on_at_the_next_leader(new_server):
    servers = group_of(new_server)
    leader = wait_leader(servers)
    assert call(leader, "ACL", "SETUSER", "anna", "on", f">{PASSWORD}", "~*", "+@all") == b"OK"
    for server in servers:
        # Without an admin, everybody is one, whatever cookie they show.
        assert call(server, "CONFIG", "SET", "admin-password", PASSWORD) == b"OK"
    with Couch(leader.http_port) as couch:
        answer = couch.send("POST", "/_session", {"name": "anna", "password": PASSWORD})
        assert answer.status == 200
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    rest = others(servers, leader)
    leader.kill()
    leader = wait_leader(rest)
    with Couch(leader.http_port) as couch:

        def who() -> str | None:
            answer = couch.get("/_session", Cookie=cookie)
            return answer.json["userCtx"]["name"] if answer.status == 200 else None

        wait_until("the session at the next leader", lambda: who() == "anna")
        assert call(leader, "ACL", "SETUSER", "anna", "resetpass", f">{PASSWORD}-2") == b"OK"
        wait_until("the session to end with the password", lambda: who() is None)


def session_of(server, name: str) -> str:
    """The cookie of a session that begins now."""
    with Couch(server.http_port) as couch:
        answer = couch.send("POST", "/_session", {"name": name, "password": PASSWORD})
    assert answer.status == 200, answer
    return answer.headers["Set-Cookie"].partition(";")[0]


def name_of_session(server, cookie: str) -> str | None:
    """The user whose session a server takes the cookie for."""
    with Couch(server.http_port) as couch:
        answer = couch.get("/_session", Cookie=cookie)
    return answer.json["userCtx"]["name"] if answer.status == 200 else None


def test_a_session_belongs_to_one_user_and_not_to_the_next_one_of_its_name(new_server):
    leader = new_server().start()
    replica = follower_of(new_server, leader)
    for server in (leader, replica):
        assert call(server, "CONFIG", "SET", "admin-password", PASSWORD) == b"OK"
    document = "/_users/org.couchdb.user:anna"
    with Couch(leader.http_port, ("admin", PASSWORD)) as couch:
        couch.ok("PUT", "/_users")
        couch.ok("PUT", document, {"type": "user", "name": "anna", "roles": [], "password": PASSWORD})
        of_document = session_of(leader, "anna")
        assert call(leader, "ACL", "DELUSER", "anna") == 1
        # The document declares the same password again.
        couch.ok("PUT", document, couch.ok("GET", document) | {"roles": ["reader"]})
    add_user(leader, "bob")
    of_acl = session_of(leader, "bob")
    assert call(leader, "ACL", "SETUSER", "bob", "reset", *RULES) == b"OK"
    assert name_of_session(leader, of_acl) == "bob", "it is the same user, with other rules"
    wait_same(leader, replica)
    assert name_of_session(replica, of_acl) == "bob"
    with log_in(leader, "bob") as connection, leader.connect() as operator:
        operator.call("MULTI")
        operator.call("ACL", "DELUSER", "bob")
        operator.call("ACL", "SETUSER", "bob", *RULES)
        assert operator.call("EXEC") == [1, b"OK"]
        wait_closed(connection)
    wait_same(leader, replica)

    def check() -> None:
        for server in (leader, replica):
            for name, ended in (("anna", of_document), ("bob", of_acl)):
                assert name_of_session(server, ended) is None, name
                assert name_of_session(server, session_of(server, name)) == name

    check()
    assert call(leader, "SAVE") == b"OK"
    leader.kill()
    leader.start()
    assert call(leader, "CONFIG", "SET", "admin-password", PASSWORD) == b"OK"
    check()


def test_the_file_of_users_keeps_the_sessions_of_those_who_stay(new_server, tmp_path):
    file = tmp_path / "users.acl"
    file.write_text(f"user default on nopass ~* &* +@all\nuser anna on >{PASSWORD} ~a* +get\n")
    server = new_server(extra=("--admin-password", PASSWORD, "--aclfile", str(file))).start()
    cookie = session_of(server, "anna")
    assert call(server, "ACL", "LOAD") == b"OK"
    assert name_of_session(server, cookie) == "anna"
    assert call(server, "ACL", "DELUSER", "anna") == 1
    assert call(server, "ACL", "LOAD") == b"OK"
    assert name_of_session(server, cookie) is None
    assert name_of_session(server, session_of(server, "anna")) == "anna"


def test_a_right_password_without_the_right_is_no_guess(new_server):
    server = new_server(requirepass="secret").start()
    with server.connect() as client:
        assert client.call("ACL", "SETUSER", "nobody", "on", f">{PASSWORD}") == b"OK"
    with Couch(server.http_port, ("nobody", PASSWORD)) as couch:
        for _ in range(40):
            answer = couch.get("/metrics")
            assert (answer.status, "needs the right to INFO" in answer.json["reason"]) == (401, True)
        assert couch.get("/_session").json["userCtx"]["name"] == "nobody", "its address need not wait"
    with server.connect() as client:
        assert b"acl_access_denied_auth:0" in client.call("INFO", "stats")


def test_a_password_that_is_not_that_of_the_default_user_is_reported_at_the_start(new_server):
    server = new_server().start()
    assert call(server, "ACL", "SETUSER", "default", "resetpass", ">of the record") == b"OK"
    server.stop()
    server.options.requirepass = "of the record"
    server.start()
    assert "requirepass has no effect" not in server.log()
    with server.connect() as client:
        assert client.call("ACL", "SETUSER", "default", "nopass") == b"OK"
    server.stop()
    server.options.requirepass = "another"
    server.start()
    assert "requirepass has no effect" in server.log()
