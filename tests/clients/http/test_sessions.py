"""Permissions: admins, passwords, cookies, security objects."""

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only

WRONG = (401, "unauthorized", "Name or password is incorrect.")
ADMIN = ("admin", "secret")


@pytest.fixture
def guarded(new_server):
    """The port of a server that has an admin."""
    return new_server(extra=("--admin-password", "secret")).start().http_port


def test_without_admins_everybody_is_one(couch):
    who = couch.ok("GET", "/_session")
    assert who["userCtx"] == {"name": None, "roles": ["_admin"]}
    # Clients that send a password are not refused.
    with Couch(couch._connection.port, ("anna", "any")) as other:
        assert other.ok("GET", "/_session")["ok"] is True


def test_a_password_must_be_right(guarded):
    with Couch(guarded) as nobody, Couch(guarded, ADMIN) as admin, Couch(guarded, ("admin", "wrong")) as wrong:
        assert nobody.ok("GET", "/_session")["userCtx"] == {"name": None, "roles": []}
        who = admin.ok("GET", "/_session")
        assert who["userCtx"] == {"name": "admin", "roles": ["_admin"]}
        assert who["info"]["authenticated"] == "default"
        assert nobody.get("/").status == 200
        for path in ("/", "/_session", "/_uuids"):
            assert wrong.get(path).told() == WRONG, path
        # As in CouchDB, also where the body has a right password.
        assert wrong.send("POST", "/_session", {"name": "admin", "password": "secret"}).told() == WRONG
        assert wrong.get("/_up").status == 200, "it is for load balancers"
        malformed = nobody.get("/_session", Authorization="Basic ???")
        assert malformed.told() == (400, "bad_request", "Authorization header has invalid base64 value")
        assert nobody.get("/_node/_local/_config").told() == (401, "unauthorized", "You are not a server admin.")
        assert admin.get("/_node/_local/_config").status == 200


def test_a_session_goes_by_its_cookie(guarded):
    with Couch(guarded) as couch:
        refused = couch.send("POST", "/_session", {"name": "admin", "password": "wrong"})
        assert refused.told() == WRONG
        answer = couch.send("POST", "/_session", {"name": "admin", "password": "secret"})
        assert answer.json == {"ok": True, "name": "admin", "roles": ["_admin"]}
        cookie, _, rest = answer.headers["Set-Cookie"].partition(";")
        assert "HttpOnly" in rest
        who = couch.ok("GET", "/_session", Cookie=f"other=1; {cookie}")
        assert who["userCtx"]["name"] == "admin"
        assert who["info"]["authenticated"] == "cookie"
        assert couch.get("/_node/_local/_config", Cookie=cookie).status == 200
        forged = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
        assert couch.ok("GET", "/_session", Cookie=forged)["userCtx"]["name"] is None
        gone = couch.send("DELETE", "/_session", Cookie=cookie)
        assert gone.json == {"ok": True}
        assert gone.headers["Set-Cookie"].startswith("AuthSession=;")


def test_a_form_logs_in_as_well(guarded):
    with Couch(guarded) as couch:
        body = b"name=admin&password=secret"
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        for kind in (form["Content_Type"], "Application/X-WWW-Form-URLencoded; charset=utf-8"):
            assert couch.ok("POST", "/_session", body, Content_Type=kind)["name"] == "admin"
        assert couch.send("POST", "/_session", b"{}", Content_Type="text/plain").told() == (
            415,
            "bad_content_type",
            "Content-Type must be application/json",
        )


def test_the_password_of_the_redis_port_is_one_for_http_too(new_server):
    server = new_server(requirepass="redis").start()
    with Couch(server.http_port) as nobody, Couch(server.http_port, ("default", "redis")) as default:
        assert nobody.ok("GET", "/_session")["userCtx"]["roles"] == []
        assert default.ok("GET", "/_session")["userCtx"]["roles"] == ["_admin"]


def test_metrics_and_backups_are_for_admins(guarded):
    with Couch(guarded) as nobody, Couch(guarded, ("admin", "secret")) as admin:
        for method, path in (("GET", "/metrics"), ("POST", "/_backup")):
            refused = nobody.send(method, path)
            assert refused.told() == (401, "unauthorized", "You are not a server admin.")
            assert refused.headers["WWW-Authenticate"] == 'Basic realm="sheaf"'
            assert 200 <= admin.send(method, path).status < 300
        assert nobody.send("GET", "/_up").status == 200


def test_without_a_password_the_host_must_be_a_name_of_this_machine(new_server):
    server = new_server(extra=("--http-hosts", "db.example")).start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        # The request of a page whose own name was pointed at this server: its browser treats both as the same
        # origin.
        for host in ("evil.example", f"evil.example:{server.http_port}", "localhost.evil.example"):
            for asked in ("GET /", "GET /db/_all_docs", "PUT /db/a", "GET /metrics", "POST /_backup"):
                assert couch.send(*asked.split(), Host=host).told()[:2] == (403, "forbidden"), (host, asked)
        for host in ("localhost", "127.0.0.1:1", "[::1]:5984", "db.example", "notes.localhost"):
            assert couch.get("/db/_all_docs", Host=host).json["rows"] == [], host
    guarded = new_server(extra=("--admin-password", "secret")).start()
    with Couch(guarded.http_port, ("admin", "secret")) as admin:
        assert admin.get("/_all_dbs", Host="any.example").status == 200, "a password is proof enough"
