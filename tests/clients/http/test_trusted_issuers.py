"""Users whom another server has authenticated: the issuer of tokens, or a proxy, as CouchDB trusts them."""

import base64
import hashlib
import hmac
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.couch import Couch, rest_of
from harness.replicas import call, error_of
from harness.server import run_sheaf
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

PASSWORD = "not-in-any-text"
SECRET = b"a secret of thirty-two bytes, or more"
OTHER_SECRET = b"another secret of thirty-two bytes, or more"
PROXY_SECRET = "shared with the proxy"
HOUR_S = 3600


def _openssl(*arguments: str, data: bytes | None = None) -> bytes:
    return subprocess.run(
        ["openssl", *arguments], input=data, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
    ).stdout


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Issuer:
    """Signs tokens; its keys are in a file of the form that CouchDB has."""

    def __init__(self, directory: Path):
        self.directory = directory
        directory.mkdir()
        self.keys = directory / "keys.ini"
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self._path("rsa"))
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self._path("ec"))
        lines = ["[jwt_keys]", f"hmac:_default = {base64.b64encode(SECRET).decode()}"]
        for kind in ("rsa", "ec"):
            pem = self.public(kind).replace("\n", "\\n")
            lines.append(f"{kind}:{kind}-key = {pem}")
        self.keys.write_text("\n".join(lines) + "\n")

    def _path(self, kind: str) -> str:
        return str(self.directory / f"{kind}.pem")

    def public(self, kind: str) -> str:
        """The public key of this kind, in PEM."""
        return _openssl("pkey", "-pubout", "-in", self._path(kind)).decode()

    def token(self, algorithm: str = "HS256", kid: str | None = None, secret: bytes = SECRET, **claims: object) -> str:
        """A token with these claims, which holds for an hour if they do not say how long."""
        header = {"typ": "JWT", "alg": algorithm} | ({} if kid is None else {"kid": kid})
        claims = {"exp": int(time.time()) + HOUR_S} | claims
        parts = [json.dumps(part).encode() for part in (header, {k: v for k, v in claims.items() if v is not None})]
        return self.signed(parts, algorithm, secret)

    def signed(self, parts: list[bytes], algorithm: str = "HS256", secret: bytes = SECRET) -> str:
        """A token with this header and these claims, as they are written here."""
        signed = ".".join(map(_encoded, parts))
        return f"{signed}.{_encoded(self._signature(algorithm, signed.encode(), secret))}"

    def _signature(self, algorithm: str, signed: bytes, secret: bytes) -> bytes:
        digest = f"sha{algorithm[2:]}"
        if algorithm.startswith("HS"):
            return hmac.new(secret, signed, digest).digest()
        if algorithm.startswith("RS"):
            return _openssl("dgst", f"-{digest}", "-sign", self._path("rsa"), data=signed)
        if algorithm.startswith("ES"):
            return _fixed(_openssl("dgst", f"-{digest}", "-sign", self._path("ec"), data=signed))
        return b""


def _fixed(der: bytes) -> bytes:
    """The two numbers of a signature, each in 32 bytes."""
    first = der[4 : 4 + der[3]]
    second = der[4 + der[3] + 2 :]
    return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in (first, second))


@pytest.fixture
def issuer(tmp_path) -> Issuer:
    """An issuer of tokens."""
    return Issuer(tmp_path / "issuer")


@pytest.fixture
def server(new_server, issuer):
    """A server that trusts the issuer, with a database for the role `writers`."""
    server = new_server(extra=("--admin-password", PASSWORD, "--jwt-keys-file", str(issuer.keys))).start()
    with admin_of(server) as admin:
        admin.ok("PUT", "/notes")
        admin.ok("PUT", "/notes/_security", {"admins": {}, "members": {"names": ["named"], "roles": ["writers"]}})
    return server


def admin_of(server) -> Couch:
    """The admin."""
    return Couch(server.http_port, ("admin", PASSWORD))


def holder(server, token: str) -> Couch:
    """A client that shows this token."""
    client = Couch(server.http_port)
    client.headers["Authorization"] = f"Bearer {token}"
    return client


@pytest.mark.parametrize(
    ("algorithm", "kid"),
    [("HS256", None), ("HS384", None), ("HS512", "_default"), ("RS256", "rsa-key"), ("RS512", "rsa-key"), ("ES256", "ec-key")],
)
def test_a_token_says_who_sends_a_request(server, issuer, algorithm, kid):
    token = issuer.token(algorithm, kid, sub="anna", **{"_couchdb.roles": ["writers", "x"]})
    with holder(server, token) as anna:
        who = anna.ok("GET", "/_session")
        assert who["userCtx"] == {"name": "anna", "roles": ["writers", "x"]}
        assert who["info"]["authenticated"] == "jwt" and "jwt" in who["info"]["authentication_handlers"]
        assert anna.put("notes", {"_id": "a"})
        assert anna.send("PUT", "/other").told()[0] == 401
    with holder(server, issuer.token(algorithm, kid, sub="named")) as named:
        assert named.get("/notes/a").status == 200
    with holder(server, issuer.token(algorithm, kid, sub="bert")) as bert:
        assert bert.get("/notes/a").status == 403
    with holder(server, issuer.token(algorithm, kid, sub="root", **{"_couchdb.roles": ["_admin"]})) as root:
        root.ok("PUT", f"/db-{algorithm.lower()}")
        assert root.get("/metrics").status == 200


def test_tokens_that_are_refused(server, issuer):
    now = int(time.time())
    public = issuer.public("rsa").encode()
    forged = issuer.token(sub="root", **{"_couchdb.roles": ["_admin"]})
    signed, _, signature = forged.rpartition(".")
    other = _encoded(json.dumps({"sub": "admin", "exp": now + HOUR_S}).encode())
    refused = {
        issuer.token("none", sub="anna"): (400, "Invalid alg header parameter"),
        f"{signed}.": (400, "Bad HMAC"),
        f"{signed.split('.')[0]}.{other}.{signature}": (400, "Bad HMAC"),
        issuer.token(secret=b"guessed", sub="anna"): (400, "Bad HMAC"),
        issuer.token("HS256", secret=public, sub="anna"): (400, "Bad HMAC"),
        issuer.token("HS256", "rsa-key", secret=public, sub="anna"): (400, "Unknown kid"),
        issuer.token("RS256", "ec-key", sub="anna"): (400, "Unknown kid"),
        issuer.token("RS256", sub="anna"): (400, "Unknown kid"),
        issuer.token(kid="unknown", sub="anna"): (400, "Unknown kid"),
        issuer.token(sub="anna", exp=now - 1): (401, "exp not in future"),
        issuer.token(sub="anna", exp=None): (400, "Missing exp claim"),
        issuer.token(sub="anna", nbf=now + HOUR_S): (401, "nbf not in past"),
        issuer.token(sub=""): (401, "Token missing sub claim."),
        issuer.token(): (401, "Token missing sub claim."),
        "a.b": (400, "Malformed token"),
        issuer.signed([b'{"alg":"HS256"}', b'{"sub":"anna","sub":"root","exp":%d}' % (now + HOUR_S)]): (400, "Malformed token"),
        issuer.signed([b'{"alg":"HS256"}', b'{"sub":"anna","exp":1,"exp":%d}' % (now + HOUR_S)]): (400, "Malformed token"),
    }
    for token, (status, reason) in refused.items():
        for path in ("/notes/a", "/_session", "/_all_dbs", "/metrics"):
            with holder(server, token) as stranger:
                answer = stranger.get(path)
                assert (answer.status, answer.json["reason"]) == (status, reason), (path, token)
    denied = next(line for line in call(server, "INFO", "stats").decode().splitlines() if "access_denied_auth" in line)
    assert int(denied.split(":")[1]) >= len(refused)


def test_the_issuer_and_the_audience_can_be_required(server, issuer):
    for name, value in [
        ("jwt-required-claims", 'exp, iat, {iss, "https://id.example"}, {aud, "db"}'),
        ("jwt-roles-claim-path", r"realm\.access.roles"),
    ]:
        assert call(server, "CONFIG", "SET", name, value) == b"OK"
    good = {"sub": "anna", "iat": 1, "iss": "https://id.example", "aud": ["db"], "realm.access": {"roles": ["writers"]}}
    with holder(server, issuer.token(**good)) as anna:
        assert anna.get("/notes").status == 200
    for change in ({"iss": "https://evil.example"}, {"iss": None}, {"aud": "other"}, {"iat": None}):
        with holder(server, issuer.token(**(good | change))) as anna:
            assert anna.get("/notes").status == 400, change
    refused = error_of(call(server, "CONFIG", "SET", "jwt-required-claims", "sub"))
    assert "is no claim that can be required" in refused


def test_keys_can_be_replaced_and_are_never_shown(server, issuer):
    old = issuer.token(sub="anna", **{"_couchdb.roles": ["writers"]})
    new = issuer.token(secret=OTHER_SECRET, sub="anna", **{"_couchdb.roles": ["writers"]})

    def status(token: str) -> int:
        with holder(server, token) as anna:
            return anna.get("/notes").status

    assert (status(old), status(new)) == (200, 400)
    kept = issuer.keys.read_text()
    issuer.keys.write_text("hmac:_default = " + base64.b64encode(OTHER_SECRET).decode())
    server.signal(signal.SIGHUP)
    wait_until("the new key to be in force", lambda: status(new) == 200)
    assert status(old) == 400
    # A file with an error changes nothing.
    issuer.keys.write_text("hmac:_default = ???")
    server.signal(signal.SIGHUP)
    server.wait_for_log("the earlier keys of users over HTTP stay in force")
    assert status(new) == 200
    refused = error_of(call(server, "CONFIG", "SET", "jwt-keys-file", str(issuer.keys)))
    assert "line 1: the secret is not in base64" in refused
    issuer.keys.write_text("; short\nhmac:_default = " + base64.b64encode(SECRET[:31]).decode())
    refused = error_of(call(server, "CONFIG", "SET", "jwt-keys-file", str(issuer.keys)))
    assert "line 2: the secret has less than 32 bytes" in refused
    issuer.keys.write_text(kept)
    assert call(server, "CONFIG", "SET", "jwt-keys-file", str(issuer.keys)) == b"OK"
    assert (status(old), status(new)) == (200, 400)
    shown = json.dumps([str(part) for part in call(server, "CONFIG", "GET", "*")])
    with admin_of(server) as admin:
        shown += admin.get("/_node/_local/_config").body.decode() + server.log()
    for secret in (SECRET, OTHER_SECRET):
        assert base64.b64encode(secret).decode() not in shown and secret.decode() not in shown


def test_a_feed_ends_with_its_token(server, issuer):
    token = issuer.token(sub="named", exp=int(time.time()) + 3)
    with holder(server, token) as named:
        feed = named.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100")
        assert feed.readline() == b"\n", "it waits"
        # Nothing changes meanwhile.
        assert b"last_seq" in rest_of(feed)
        assert named.get("/notes").told() == (401, "unauthorized", "exp not in future")


def test_a_feed_ends_with_the_key_of_its_token(server, issuer):
    """Though the token has an hour left; the feeds by other keys go on."""
    both = issuer.keys.read_text()
    by_secret, by_rsa = (issuer.token(sub="named"), issuer.token("RS256", "rsa-key", sub="named"))
    with holder(server, by_secret) as first, holder(server, by_rsa) as other, admin_of(server) as admin:
        feeds = [one.begin("GET", "/notes/_changes?feed=continuous&heartbeat=100") for one in (first, other)]
        assert [feed.readline() for feed in feeds] == [b"\n", b"\n"], "they wait"
        issuer.keys.write_text("\n".join(line for line in both.splitlines() if not line.startswith("hmac:")) + "\n")
        server.signal(signal.SIGHUP)
        assert b"last_seq" in rest_of(feeds[0])
        admin.put("notes", {"_id": "later"})
        while b'"later"' not in (line := feeds[1].readline()):
            assert line == b"\n", line


def test_without_keys_a_token_means_nothing(new_server, issuer, tmp_path):
    server = new_server(extra=("--admin-password", PASSWORD)).start()
    with holder(server, issuer.token(sub="root", **{"_couchdb.roles": ["_admin"]})) as root:
        assert root.ok("GET", "/_session")["userCtx"] == {"name": None, "roles": []}
        assert root.send("PUT", "/db").status == 401
    server.close()
    for flag in ("--jwt-keys-file", "--proxy-auth-secret-file"):
        started = run_sheaf("serve", "--dir", str(tmp_path / "d"), "--port", "0", "--http-port", "0", flag, "/nowhere")
        assert started.returncode == 2 and flag[2:] in started.stderr, started.stderr


def proxied(server, name: str, token: str | None, roles: str = "") -> Couch:
    """A client whose requests come with the headers of a proxy."""
    client = Couch(server.http_port)
    client.headers |= {"X-Auth-CouchDB-UserName": name, "X-Auth-CouchDB-Roles": roles}
    if token is not None:
        client.headers["X-Auth-CouchDB-Token"] = token
    return client


def test_a_proxy_names_users(new_server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(PROXY_SECRET + "\n")
    server = new_server(extra=("--admin-password", PASSWORD)).start()
    right = hmac.new(PROXY_SECRET.encode(), b"anna", hashlib.sha256).hexdigest()
    # Without the secret, the headers of anybody would be believed: they mean nothing.
    with proxied(server, "anna", right, "_admin") as anna:
        assert anna.ok("GET", "/_session")["userCtx"]["name"] is None
        assert anna.send("PUT", "/db").status == 401
    assert call(server, "CONFIG", "SET", "proxy-auth-secret-file", str(secret)) == b"OK"
    older = hmac.new(PROXY_SECRET.encode(), b"anna", hashlib.sha1).hexdigest()
    for token in (right, older):
        with proxied(server, "anna", token, "writers, readers") as anna:
            who = anna.ok("GET", "/_session")
            assert who["userCtx"] == {"name": "anna", "roles": ["writers", "readers"]}
            assert who["info"]["authenticated"] == "proxy"
    with proxied(server, "root", hmac.new(PROXY_SECRET.encode(), b"root", "sha256").hexdigest(), "_admin") as root:
        root.ok("PUT", "/db")
    for name, token in [("anna", None), ("bert", right), ("anna", right[:-1]), ("", right), ("anna", "")]:
        with proxied(server, name, token, "_admin") as forger:
            assert forger.get("/db").status == 401, (name, token)
    assert PROXY_SECRET not in str(call(server, "CONFIG", "GET", "*"))


def test_public_members_of_users_are_for_all_users(new_server):
    server = new_server(extra=("--admin-password", PASSWORD)).start()
    with admin_of(server) as admin:
        admin.ok("PUT", "/_users")
        for name in ("anna", "bert"):
            user = {"name": name, "type": "user", "roles": ["r"], "password": PASSWORD, "motto": f"I am {name}"}
            admin.ok("PUT", f"/_users/org.couchdb.user:{name}", user)
        anna = Couch(server.http_port, ("anna", PASSWORD))
        bert = "/_users/org.couchdb.user:bert"
        assert anna.get(bert).status == 404
        shown = admin.ok("PUT", "/_node/_local/_config/chttpd_auth/public_fields", "name, motto, derived_key, salt")
        assert shown == ""
        document = anna.ok("GET", bert)
        assert set(document) == {"_id", "_rev", "name", "motto"}
        assert anna.ok("GET", "/_users/org.couchdb.user:anna")["roles"] == ["r"]
        assert anna.get("/_users/org.couchdb.user:nobody").status == 404
        assert anna.send("PUT", bert, document).status in (403, 404)
        assert anna.get("/_users/_all_docs").status == 403
        with Couch(server.http_port) as stranger:
            assert stranger.get(bert).status == 401
