"""Users for both protocols: documents of `_users`, ACL SETUSER, sessions, the rights of databases."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from harness.couch import Couch, rest_of
from harness.replicas import error_of
from harness.server import Server

pytestmark = pytest.mark.sheaf_only

ADMIN = ("admin", "secret")
# With the user as whom a replica copies from its leader.
GUARDED = ("--admin-password", "secret", "--masteruser", "servers", "--masterauth", "between")
WRONG = (401, "unauthorized", "Name or password is incorrect.")
NOT_MEMBER = (403, "forbidden", "You are not allowed to access this db.")
FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def _id(name: str) -> str:
    return f"org.couchdb.user:{name}"


def _user(name: str, password: str | None = None, roles: list[str] | None = None, **more: Any) -> dict[str, Any]:
    user = {"_id": _id(name), "name": name, "type": "user", "roles": roles or []} | more
    return user | ({"password": password} if password else {})


@pytest.fixture
def guarded(new_server) -> Server:
    """A server that has an admin."""
    return new_server(extra=GUARDED).start()


@pytest.fixture
def admin(guarded):
    """A connection of the admin to a server with `_users`, and with anna, a writer."""
    with Couch(guarded.http_port, ADMIN) as client:
        client.server = guarded
        client.ok("PUT", "/_users")
        client.put("_users", _user("anna", "apple", ["writers"]))
        yield client


def _log_in(couch: Couch, name: str, password: str) -> str:
    answer = couch.send("POST", "/_session", {"name": name, "password": password})
    assert answer.status == 200, answer.body
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_a_password_is_kept_as_couchdb_keeps_it(admin):
    stored = admin.ok("GET", f"/_users/{_id('anna')}")
    assert "password" not in stored
    assert (stored["password_scheme"], stored["pbkdf2_prf"], stored["iterations"]) == ("pbkdf2", "sha256", 600_000)
    assert (len(stored["derived_key"]), len(stored["salt"])) == (64, 32)
    changed = admin.put("_users", _user("anna", "pear", ["writers"]) | {"_rev": stored["_rev"]})
    again = admin.ok("GET", f"/_users/{_id('anna')}?rev={changed}")
    assert again["salt"] != stored["salt"]
    with Couch(admin.server.http_port, ("anna", "apple")) as before, Couch(admin.server.http_port, ("anna", "pear")) as now:
        assert before.get("/_uuids").told() == WRONG
        assert now.ok("GET", "/_session")["userCtx"] == {"name": "anna", "roles": ["writers"]}
    directory = admin.server.directory
    everything = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    assert b'"password":' not in everything


def test_documents_are_refused_with_the_texts_of_couchdb(admin):
    bob = _user("bob", "pw")
    for document, reason in (
        (bob | {"type": "x"}, "doc.type must be user"),
        (bob | {"name": ""}, "doc.name is required"),
        ({key: bob[key] for key in bob if key != "roles"}, "doc.roles must exist"),
        (bob | {"roles": "a"}, "doc.roles must be an array"),
        (bob | {"roles": [1]}, "doc.roles can only contain strings"),
        (bob | {"name": "rob"}, "Doc ID must be of the form org.couchdb.user:name"),
        (bob | {"roles": ["_admin"]}, "No system roles (starting with underscore) in users db."),
        (_user("_bob"), "Username may not start with underscore."),
        (_user("b:ob"), "Character `:` is not allowed in usernames."),
        (_user("bob", password_scheme="bcrypt"), "Password scheme `bcrypt` not supported."),
    ):
        for path, method in ((f"/_users/{quote(document['_id'])}", "PUT"), ("/_users", "POST")):
            assert admin.send(method, path, document).told() == (403, "forbidden", reason)
        [row] = admin.ok("POST", "/_users/_bulk_docs", {"docs": [document]})
        assert (row["error"], row["reason"]) == ("forbidden", reason)
    assert admin.send("PUT", f"/_users/{_id('bob')}", bob | {"password": 1}).status == 400
    assert admin.get(f"/_users/{_id('bob')}").status == 404
    assert admin.send("PUT", "/_users/_security", {}).told()[:2] == (403, "forbidden")
    assert admin.send("DELETE", "/_users").told()[:2] == (403, "forbidden")
    with admin.server.connect() as connection:
        for command in (("DOC.PUT", "_users", _id("bob"), json.dumps(bob)), ("DOC.DEL", "_users", _id("anna"), "1-" + "a" * 32)):
            assert connection.call(*command).text.startswith("NOTIMPLEMENTED "), command


def test_users_have_their_own_document_and_no_other(admin):
    own, other = f"/_users/{_id('anna')}", f"/_users/{_id('ben')}"
    admin.put("_users", _user("ben", "banana"))
    port = admin.server.http_port
    with Couch(port) as nobody, Couch(port, ("anna", "apple")) as anna:
        for path in (own, other, "/_users", "/_users/_all_docs"):
            assert nobody.get(path).told()[:2] == (401, "unauthorized"), path
        assert nobody.send("PUT", f"/_users/{_id('eve')}", _user("eve", "pw")).told()[:2] == (401, "unauthorized")
        document = anna.ok("GET", own)
        assert document["name"] == "anna"
        for method, path in (("GET", other), ("PUT", other), ("DELETE", f"{other}?rev=1-a"), ("GET", f"{other}/photo")):
            assert anna.send(method, path, {}).told() == (404, "not_found", "missing"), path
        for method, path in (
            ("GET", "_all_docs"), ("POST", "_all_docs"), ("GET", "_changes"), ("POST", "_find"), ("POST", "_bulk_docs"),
            ("POST", "_bulk_get"), ("POST", "_revs_diff"), ("POST", "_missing_revs"), ("POST", "_purge"),
            ("POST", "_explain"), ("GET", "_index"), ("GET", "_security"), ("PUT", "_security"), ("POST", "_compact"),
            ("GET", ""), ("GET", "_design_docs"), ("GET", "_local/x"), ("GET", "_design/x"), ("PUT", "_revs_limit"),
        ):  # fmt: skip
            answer = anna.send(method, f"/_users/{path}".rstrip("/"), {})
            assert answer.told()[:2] == (403, "forbidden"), path
        for posted in (_user("ben"), _user("eve"), {"_id": "_local/x"}, {"_id": "_design/x"}, {"_id": "x"}):
            assert anna.send("POST", "/_users", posted).told()[:2] == (403, "forbidden"), posted
        assert anna.send("PUT", own, document | {"roles": ["admins"]}).told() == (403, "forbidden", "Only _admin may edit roles")
        own_key = {"password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "salt": "aa", "derived_key": "bb" * 32}
        costly = anna.send("PUT", own, document | own_key | {"iterations": 1_000_001})
        assert costly.told() == (403, "forbidden", "Iteration count is too high for this server")
        changed = anna.ok("PUT", own, document | {"password": "avocado", "colour": "green"})
        assert anna.get(own).told() == WRONG, "the password is another one by now"
    with Couch(port, ("anna", "avocado")) as anna:
        assert anna.ok("GET", own)["colour"] == "green"
        assert anna.ok("DELETE", f"{own}?rev={changed['rev']}")["ok"]
        assert anna.get("/_uuids").told() == WRONG, "there is no such user any more"


def test_a_user_that_is_deleted_and_made_again_at_once_is_another_one(admin):
    rev = admin.ok("GET", f"/_users/{_id('anna')}")["_rev"]
    with admin.server.connect() as owner, admin.server.connect() as anna:
        assert owner.call("ACL", "SETUSER", "anna", ">other", "~*", "+@all") == b"OK"
        assert anna.call("AUTH", "anna", "other") == b"OK"
        deletion = {"_id": _id("anna"), "_rev": rev, "_deleted": True}
        made = admin.ok("POST", "/_users/_bulk_docs", {"docs": [deletion, _user("anna", "apple", ["writers"])]})
        assert [one.get("ok") for one in made] == [True, True]
        assert anna.read_to_end() == b"", "its connections end"
        with admin.server.connect() as again:
            assert error_of(again.call("AUTH", "anna", "other")).startswith("WRONGPASS")
            assert again.call("AUTH", "anna", "apple") == b"OK"
            assert error_of(again.call("GET", "k")).startswith("NOPERM"), "nor does it have its rights"


def test_rules_and_roles_of_a_user_are_bounded_together(admin):
    stored = admin.ok("GET", f"/_users/{_id('anna')}")
    with admin.server.connect() as owner:
        assert owner.call("ACL", "SETUSER", "anna", *(f"~{'k' * 1000}{number}" for number in range(60))) == b"OK"
        roles = [f"{'r' * 1000}{number}" for number in range(30)]
        refused = admin.send("PUT", f"/_users/{_id('anna')}", stored | {"roles": roles})
        assert refused.told() == (403, "forbidden", "A user has more than 64 KiB of rules and roles.")
        assert admin.ok("GET", f"/_users/{_id('anna')}") == stored


def test_a_user_keeps_a_password_of_many_iterations_that_an_admin_has_given(admin):
    own = f"/_users/{_id('carl')}"
    key = {"password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "salt": "aa", "derived_key": "bb" * 32}
    admin.put("_users", _user("carl", roles=["writers"]) | key | {"iterations": 5_000_000})
    with admin.server.connect() as connection, Couch(admin.server.http_port, ("carl", "cherry")) as carl:
        # Another password of his own, which is checked at once.
        connection.call("ACL", "SETUSER", "carl", ">cherry")
        document = carl.ok("GET", own)
        assert document["iterations"] == 5_000_000
        changed = carl.ok("PUT", own, document | {"colour": "red"})["rev"]
        again = document | {"_rev": changed, "salt": "ab"}
        assert carl.send("PUT", own, again).told()[1:] == ("forbidden", "Iteration count is too high for this server")
        carl.ok("PUT", own, again | {"iterations": 1_000_000})


def test_a_user_gets_no_lost_roles_back_by_a_branch(admin):
    own = f"/_users/{_id('carl')}"
    user = _user("carl", "cherry", ["writers"])
    admin.put("_users", user)
    branches = "Only admins may make or change branches of a user doc."

    def roles() -> list[str]:
        return carl.ok("GET", "/_session")["userCtx"]["roles"]

    with Couch(admin.server.http_port, ("carl", "cherry")) as carl:
        for rev in (f"1-{'0' * 32}", f"50-{'f' * 32}"):
            fork = user | {"_rev": rev}
            assert carl.send("PUT", f"{own}?new_edits=false", fork).told() == (403, "forbidden", branches)
        # An admin's replication may bring a branch.
        losing = f"1-{'0' * 32}"
        admin.ok("PUT", f"{own}?new_edits=false", carl.ok("GET", own) | {"_rev": losing})
        winner = admin.ok("GET", own)
        revoked = admin.ok("PUT", own, winner | {"roles": []})
        assert roles() == []
        extended = winner | {"_rev": losing, "roles": []}
        assert carl.send("PUT", own, extended).told() == (403, "forbidden", branches)
        deleted = carl.send("DELETE", f"{own}?rev={revoked['rev']}")
        assert deleted.told() == (403, "forbidden", "Only admins may delete a user doc that has conflicts.")
        assert roles() == []
        # As before, a user changes what is its own, and a stale revision is a conflict.
        assert carl.send("PUT", own, winner | {"roles": []}).status == 409
        document = carl.ok("GET", own) | {"colour": "red"}
        assert carl.send("PUT", own, document).status == 201


def test_one_user_logs_in_by_both_protocols(admin):
    with admin.server.connect() as connection, admin.server.connect() as other:
        assert other.call("AUTH", "anna", "apple") == b"OK"
        assert b" user=anna " in connection.call("CLIENT", "LIST")
        assert other.call("PING") == b"PONG"
        for denied in (("GET", "k"), ("ACL", "LIST"), ("CLIENT", "LIST"), ("DOC.GET", "_users", _id("anna"))):
            assert other.call(*denied).text.startswith("NOPERM "), denied
        assert other.call("AUTH", "anna", "wrong").text.startswith("WRONGPASS ")
        assert connection.call("ACL", "SETUSER", "anna", "~notes:*", "+@read", "role:readers") == b"OK"
        assert other.call("GET", "notes:1") is None
        line = next(line for line in connection.call("ACL", "LIST") if line.startswith(b"user anna "))
        assert b"#pbkdf2-sha256$600000$" in line and line.count(b"role:") == 2
        assert connection.call("ACL", "SETUSER", "bob", "on", ">banana", "role:writers") == b"OK"
        with Couch(admin.server.http_port, ("anna", "apple")) as anna, Couch(admin.server.http_port, ("bob", "banana")) as bob:
            assert anna.ok("GET", "/_session")["userCtx"]["roles"] == ["writers", "readers"]
            assert bob.ok("GET", "/_session")["userCtx"] == {"name": "bob", "roles": ["writers"]}
            assert _log_in(bob, "bob", "banana").startswith("AuthSession=")
            assert bob.get("/_all_dbs").told() == (401, "unauthorized", "You are not a server admin.")
            connection.call("ACL", "SETUSER", "bob", "+@admin")
            assert bob.ok("GET", "/_session")["userCtx"]["roles"] == ["_admin", "writers"]
            assert bob.get("/_all_dbs").status == 200
            connection.call("ACL", "DELUSER", "bob", "anna")
            assert bob.get("/_all_dbs").told() == WRONG
            assert anna.get("/_uuids").told() == WRONG


def test_a_password_that_takes_long_to_check_is_checked_for_a_transaction(admin):
    admin.put("_users", _user("ben", "banana"))
    with admin.server.connect() as connection:
        assert connection.call("MULTI") == b"OK"
        for name, password in (("anna", "apple"), ("ben", "wrong")):
            assert connection.call("AUTH", name, password) == b"QUEUED"
        accepted, refused = connection.call("EXEC")
        assert accepted == b"OK"
        assert error_of(refused).startswith("WRONGPASS")
        assert error_of(connection.call("GET", "x")).startswith("NOPERM User anna has")


def test_users_and_sessions_outlive_kill_and_restart(admin):
    server = admin.server
    with Couch(server.http_port) as couch:
        cookie = _log_in(couch, "anna", "apple")
    server.kill()
    server.start()
    with Couch(server.http_port) as couch, server.connect() as connection:
        assert couch.ok("GET", "/_session", Cookie=cookie)["userCtx"] == {"name": "anna", "roles": ["writers"]}
        assert connection.call("AUTH", "anna", "apple") == b"OK"


def test_a_replica_knows_users_and_their_sessions(admin, new_server):
    leader = admin.server
    leader_url = f"127.0.0.1:{leader.port}"
    with Couch(leader.http_port) as couch:
        cookie = _log_in(couch, "anna", "apple")
    replica = new_server(extra=(*GUARDED, "--replica-of", leader_url)).start()
    with leader.connect() as connection:
        assert connection.call("WAIT", "1", "60000") == 1
    with Couch(replica.http_port) as couch, Couch(replica.http_port, ("anna", "apple")) as anna:
        assert couch.ok("GET", "/_session", Cookie=cookie)["userCtx"]["name"] == "anna"
        assert anna.ok("GET", f"/_users/{_id('anna')}")["name"] == "anna"


def test_a_session_ends_with_its_time_a_logout_and_the_password(admin):
    with Couch(admin.server.http_port) as couch:
        name_of = lambda cookie: couch.ok("GET", "/_session", Cookie=cookie)["userCtx"]["name"]  # noqa: E731
        first, second = _log_in(couch, "anna", "apple"), _log_in(couch, "anna", "apple")
        assert (name_of(first), name_of(second)) == ("anna", "anna")
        couch.ok("DELETE", "/_session", Cookie=first)
        assert (name_of(first), name_of(second)) == (None, "anna")
        stored = admin.ok("GET", f"/_users/{_id('anna')}")
        changed = admin.put("_users", stored | {"password": "apricot"})
        assert name_of(second) is None
        third = _log_in(couch, "anna", "apricot")
        admin.ok("DELETE", f"/_users/{_id('anna')}?rev={changed}")
        assert name_of(third) is None
        refused = couch.send("POST", "/_session", {"name": "anna", "password": "apricot"})
        assert refused.told() == WRONG
        assert refused.headers["Set-Cookie"].startswith("AuthSession=;")


def test_a_log_in_by_form_goes_on_where_the_query_says(admin):
    with Couch(admin.server.http_port) as couch:
        body = b"name=anna&password=apple"
        answer = couch.send("POST", "/_session?next=/notes/_all_docs", body, **FORM)
        assert answer.status == 302
        assert answer.headers["Location"].endswith("/notes/_all_docs")
        assert answer.json == {"ok": True, "name": "anna", "roles": ["writers"]}
        assert "SameSite=Strict" in answer.headers["Set-Cookie"]
        failed = couch.send("POST", "/_session?fail=/login", b"name=anna&password=x", **FORM)
        assert (failed.status, failed.headers["Location"].endswith("/login")) == (302, True)
        for elsewhere in ("//evil.example", "http://evil.example", "/%5Cevil.example", "evil"):
            assert couch.send("POST", f"/_session?next={elsewhere}", body, **FORM).status == 400, elsewhere
        assert couch.send("POST", "/_session", {"password": "x"}).told() == (
            400, "bad_request", "request body must contain a username",
        )  # fmt: skip
        assert couch.send("POST", "/_session", {"name": "a", "username": "b"}).told() == (
            400, "bad_request", "request body contains different usernames",
        )  # fmt: skip
        assert couch.get("/_session?basic=true").told() == (401, "unauthorized", "Please login.")
        with admin.server.connect() as connection:
            connection.call("CONFIG", "SET", "http-session-same-site", "lax")
        assert "SameSite=Lax" in couch.send("POST", "/_session", body, **FORM).headers["Set-Cookie"]


def test_a_database_is_for_those_that_security_names(admin):
    port = admin.server.http_port
    admin.ok("PUT", "/notes")
    admin.put("_users", _user("ben", "banana"))
    with Couch(port) as nobody, Couch(port, ("anna", "apple")) as anna, Couch(port, ("ben", "banana")) as ben:
        assert nobody.get("/notes").told() == (401, "unauthorized", "You are not authorized to access this db.")
        assert anna.get("/notes").told() == NOT_MEMBER, "only admins, at first"
        assert anna.send("PUT", "/other").told() == (401, "unauthorized", "You are not a server admin.")
        members = {"admins": {"names": ["ben"], "roles": []}, "members": {"names": [], "roles": ["writers"]}}
        admin.ok("PUT", "/notes/_security", members)
        anna.put("notes", {"_id": "a"})
        ben.put("notes", {"_id": "_design/b", "views": {}})
        refused = (403, "forbidden", "You are not a db or server admin.")
        assert anna.send("PUT", "/notes/_design/a", {}).told() == refused
        assert anna.send("PUT", "/notes/_security", {}).told() == refused
        ben.ok("PUT", "/notes/_security", members | {"members": {"names": ["ben"]}})
        assert anna.get("/notes/a").told() == NOT_MEMBER
        admin.ok("PUT", "/notes/_security", {"members": {"names": [], "roles": []}})
        assert nobody.get("/notes/a").status == 200, "a database without members is open to all"


@pytest.mark.parametrize("how", ["security", "user", "off", "password", "resetpass"])
def test_a_feed_ends_with_the_right_to_it(admin, how):
    port = admin.server.http_port
    admin.ok("PUT", "/notes")
    admin.ok("PUT", "/notes/_security", {"members": {"names": ["anna"]}})
    admin.put("notes", {"_id": "first"})
    with Couch(port, ("anna", "apple")) as anna:
        feed = anna.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100")
        assert json.loads(feed.readline())["id"] == "first"
        stored = admin.ok("GET", f"/_users/{_id('anna')}")
        match how:
            case "security":
                admin.ok("PUT", "/notes/_security", {"members": {"names": ["ben"]}})
            case "user":
                admin.ok("DELETE", f"/_users/{_id('anna')}?rev={stored['_rev']}")
            case "password":
                admin.put("_users", stored | {"password": "another"})
            case rule:
                with admin.server.connect() as connection:
                    connection.call("ACL", "SETUSER", "anna", rule)
        admin.put("notes", {"_id": "second"})
        rest = feed.read()
        assert b"second" not in rest
        assert b"last_seq" in rest


@pytest.mark.parametrize("how", ["security", "user", "off", "password", "logout", "timeout"])
def test_a_feed_in_which_nothing_changes_ends_with_the_right_to_it(admin, how):
    admin.ok("PUT", "/notes")
    admin.ok("PUT", "/notes/_security", {"members": {"names": ["anna"]}})
    port, server = admin.server.http_port, admin.server
    if how == "timeout":
        with server.connect() as connection:
            assert connection.call("CONFIG", "SET", "http-session-timeout", "10") == b"OK"
    with Couch(port) as couch, Couch(port) as asking:
        cookie = _log_in(asking, "anna", "apple")
        feed = couch.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100", Cookie=cookie)
        assert feed.readline() == b"\n", "it waits"
        stored = admin.ok("GET", f"/_users/{_id('anna')}")
        match how:
            case "security":
                admin.ok("PUT", "/notes/_security", {"members": {"names": ["ben"]}})
            case "user":
                admin.ok("DELETE", f"/_users/{_id('anna')}?rev={stored['_rev']}")
            case "password":
                admin.put("_users", stored | {"password": "another"})
            case "logout":
                asking.ok("DELETE", "/_session", Cookie=cookie)
            case "off":
                with server.connect() as connection:
                    connection.call("ACL", "SETUSER", "anna", "off")
        assert b"last_seq" in rest_of(feed)


def test_the_feed_of_all_databases_ends_with_its_admin(admin):
    with admin.server.connect() as connection, Couch(admin.server.http_port, ("root", "r")) as root:
        connection.call("ACL", "SETUSER", "root", "on", ">r", "+@all")
        feed = root.begin("GET", "/_db_updates?feed=continuous&heartbeat=100&since=now")
        while feed.readline() != b"\n":
            pass
        connection.call("ACL", "SETUSER", "root", "-@admin")
        assert b"last_seq" in rest_of(feed)


def test_a_feed_ends_with_the_logout_of_its_session(admin):
    admin.ok("PUT", "/notes")
    admin.ok("PUT", "/notes/_security", {"members": {"names": ["anna"]}})
    admin.put("notes", {"_id": "first"})
    port = admin.server.http_port
    with Couch(port) as couch, Couch(port) as asking, Couch(port) as other:
        cookie, second = _log_in(asking, "anna", "apple"), _log_in(asking, "anna", "apple")
        feed = couch.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100", Cookie=cookie)
        kept = other.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100", Cookie=second)
        assert [json.loads(one.readline())["id"] for one in (feed, kept)] == ["first", "first"]
        asking.ok("DELETE", "/_session", Cookie=cookie)
        admin.put("notes", {"_id": "second"})
        rest = feed.read()
        assert b"second" not in rest
        assert b"last_seq" in rest
        while not (line := kept.readline().strip()):
            pass
        assert json.loads(line)["id"] == "second", "another session of the same user goes on"


def test_every_route_needs_a_user_if_that_is_set(admin):
    admin.ok("PUT", "/open")
    admin.ok("PUT", "/open/_security", {"members": {"names": [], "roles": []}})
    port = admin.server.http_port
    with Couch(port) as nobody, Couch(port, ("anna", "apple")) as anna, admin.server.connect() as connection:
        for path in ("/", "/open", "/open/_all_docs", "/_session", "/_uuids"):
            assert nobody.get(path).status == 200, path
        refused = nobody.get("/_all_dbs", X_CouchDB_WWW_Authenticate="Cookie")
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Cookie")
        assert nobody.get("/_all_dbs").headers["WWW-Authenticate"] is None
        connection.call("CONFIG", "SET", "http-require-valid-user", "yes")
        for method, path in (
            ("GET", "/"), ("GET", "/open"), ("GET", "/open/_all_docs"), ("GET", "/_session"), ("GET", "/_uuids"),
            ("DELETE", "/_session"), ("GET", "/_all_dbs"), ("PUT", "/open/x"), ("GET", "/nosuch"), ("GET", "/_users"),
        ):  # fmt: skip
            refused = nobody.send(method, path)
            assert refused.told() == (401, "unauthorized", "Authentication required."), path
            assert refused.headers["WWW-Authenticate"] == 'Basic realm="server"'
        assert nobody.get("/_up").status == 200
        assert _log_in(nobody, "anna", "apple")
        assert anna.get("/open/_all_docs").status == 200


def test_no_route_shows_anything_before_a_login(admin):
    admin.ok("PUT", "/notes")
    admin.put("notes", {"_id": "a"})
    routes = [
        ("GET", ""), ("HEAD", ""), ("POST", ""), ("PUT", "/b"), ("GET", "/a"), ("DELETE", "/a?rev=1-a"), ("COPY", "/a"),
        ("GET", "/_all_docs"), ("POST", "/_all_docs"), ("POST", "/_all_docs/queries"), ("GET", "/_design_docs"),
        ("POST", "/_bulk_docs"), ("POST", "/_bulk_get"), ("GET", "/_changes"), ("POST", "/_changes"), ("POST", "/_revs_diff"),
        ("POST", "/_missing_revs"), ("POST", "/_purge"), ("POST", "/_find"), ("POST", "/_explain"), ("GET", "/_index"),
        ("POST", "/_index"), ("DELETE", "/_index/_design/a/json/b"), ("GET", "/_security"), ("PUT", "/_security"),
        ("GET", "/_revs_limit"), ("PUT", "/_revs_limit"), ("POST", "/_compact"), ("POST", "/_view_cleanup"),
        ("POST", "/_ensure_full_commit"), ("GET", "/a/photo"), ("PUT", "/a/photo"), ("GET", "/_local/x"), ("PUT", "/_local/x"),
        ("GET", "/_design/x"), ("PUT", "/_design/x"),
    ]  # fmt: skip
    with Couch(admin.server.http_port) as nobody:
        for database in ("notes", "_users"):
            for method, path in routes:
                answer = nobody.send(method, f"/{database}{path}", {} if method in ("POST", "PUT") else None)
                assert answer.status == 401, (method, database, path)
    for method, path in (
        ("GET", "/_all_dbs"), ("GET", "/_dbs_info"), ("GET", "/_db_updates"), ("GET", "/_active_tasks"), ("PUT", "/new"),
        ("DELETE", "/notes"), ("GET", "/_node/_local/_config"), ("GET", "/metrics"), ("POST", "/_backup"),
        ("POST", "/_redis"),
    ):  # fmt: skip
        # A refused upload may end the connection.
        with Couch(admin.server.http_port) as nobody:
            assert nobody.send(method, path, {} if method == "POST" else None).status == 401, path


def test_the_key_of_sessions_and_hashes_of_passwords_are_not_shown(admin):
    with Couch(admin.server.http_port) as couch:
        _log_in(couch, "anna", "apple")
        token = base64.b64encode(b"anna:apple").decode()
    with admin.server.connect() as connection:
        connection.call("AUTH", "anna", "wrong-password")
        shown = connection.call("ACL", "LOG")
        assert b"wrong-password" not in repr(shown).encode()
        assert connection.call("CONFIG", "GET", "http:*") == []
    for secret in ("apple", token, "wrong-password"):
        assert secret not in admin.server.log()


def test_attachments_of_refused_changes_are_discarded(admin):
    # As many uploads as a database keeps at once, each larger than what is stored with its document.
    data = base64.b64encode(bytes(256 * 1024 + 1)).decode()
    large = {"_attachments": {"x": {"content_type": "text/plain", "data": data}}}
    own = f"/_users/{_id('anna')}"
    with Couch(admin.server.http_port, ("anna", "apple")) as anna:
        refused = json.dumps(anna.ok("GET", own) | large | {"roles": ["admins"]}).encode()
        for _ in range(1025):
            assert anna.send("PUT", own, refused).told() == (403, "forbidden", "Only _admin may edit roles")
        assert anna.send("PUT", own, anna.ok("GET", own) | large).status == 201
