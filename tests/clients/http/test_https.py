"""HTTP over TLS, with the certificates of the Redis port: curl, Python's own client, and what differs."""

import http.client
import json
import ssl
import subprocess
import threading

import pytest

from harness.certificates import Certificates
from harness.server import ANY_PORTS, Server, free_port, run_sheaf
from harness.waiting import PATIENCE_S

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return Certificates(tmp_path / "tls")


@pytest.fixture
def new_https_server(new_server, certificates):
    """Starts servers that serve HTTP over TLS: `new_https_server("--admin-password", "secret")`."""

    def start(*flags: str) -> Server:
        port = free_port()
        files = ("--tls-cert-file", certificates.path("server.crt"), "--tls-key-file", certificates.path("server.key"))
        trusted = ("--tls-ca-cert-file", certificates.path("ca.crt"))
        server = new_server(extra=("--http-tls-port", str(port), *files, *trusted, *flags)).start()
        server.https_port = port
        return server

    return start


@pytest.fixture
def server(new_https_server) -> Server:
    return new_https_server()


def connection(server: Server, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("localhost", server.https_port, context=context, timeout=PATIENCE_S)


def call(to: http.client.HTTPSConnection, method: str, path: str, body: object = None, **headers: str):
    """One request: its status, its headers, its JSON."""
    text = None if body is None else json.dumps(body)
    to.request(method, path, text, {"content-type": "application/json"} | headers)
    reply = to.getresponse()
    return reply.status, reply.headers, json.loads(reply.read())


def test_documents_of_every_size(server, certificates):
    to = connection(server, certificates.context(None))
    assert call(to, "PUT", "/db")[0] == 201
    for size in (0, 1, 16_383, 16_384, 100_000, 3_000_000):
        status, headers, _ = call(to, "PUT", f"/db/{size}", {"text": "x" * size})
        assert status == 201 and headers["location"] == f"https://localhost:{server.https_port}/db/{size}"
        assert call(to, "GET", f"/db/{size}")[2]["text"] == "x" * size
    found = call(to, "GET", "/db/_all_docs?include_docs=true")[2]
    assert [len(row["doc"]["text"]) for row in found["rows"]] == [0, 1, 100_000, 16_383, 16_384, 3_000_000]
    # The plain port shows the same.
    plain = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE_S)
    plain.request("GET", "/db")
    assert json.loads(plain.getresponse().read())["doc_count"] == 6


def test_a_changes_feed_arrives_while_it_lasts(server, certificates):
    context = certificates.context(None)
    to, feed = connection(server, context), connection(server, context)
    assert call(to, "PUT", "/db")[0] == 201
    feed.request("GET", "/db/_changes?feed=continuous&heartbeat=1000")
    reply = feed.getresponse()
    seen: list[str] = []

    def read() -> None:
        while len(seen) < 100:
            line = reply.readline().strip()
            if line:
                seen.append(json.loads(line)["id"])

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        assert call(to, "PUT", f"/db/{number}", {})[0] == 201
    reader.join(PATIENCE_S)
    assert seen == [str(number) for number in range(100)]
    feed.close()


def test_cookies_of_encrypted_sessions_are_for_encrypted_connections(new_https_server, certificates):
    server = new_https_server("--admin-password", "secret")
    login = {"name": "admin", "password": "secret"}
    status, headers, _ = call(connection(server, certificates.context(None)), "POST", "/_session", login)
    assert status == 200 and headers["set-cookie"].endswith("; SameSite=Strict; Secure")
    plain = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE_S)
    status, headers, _ = call(plain, "POST", "/_session", login)
    assert status == 200 and "Secure" not in headers["set-cookie"]


def test_clients_show_certificates_only_if_they_are_asked(new_https_server, certificates):
    server = new_https_server("--http-tls-auth-clients", "yes")
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
        call(connection(server, certificates.context(None)), "GET", "/_up")
    assert call(connection(server, certificates.context()), "GET", "/_up")[0] == 200
    with server.connect() as control:
        assert control.call("CONFIG", "SET", "http-tls-auth-clients", "no") == b"OK"
    assert call(connection(server, certificates.context(None)), "GET", "/_up")[0] == 200


def test_http_port_0_leaves_no_plain_door(new_server, certificates):
    port = free_port()
    files = ("--tls-cert-file", certificates.path("server.crt"), "--tls-key-file", certificates.path("server.key"))
    server = new_server(http_port=0, extra=("--http-tls-port", str(port), *files)).start()
    server.wait_for_log(f"http_tls=[127.0.0.1:{port}]")
    assert "http=[] " in server.log()
    server.https_port = port
    assert call(connection(server, certificates.context(None)), "GET", "/_up")[0] == 200


def test_curl_and_plain_clients(server, certificates):
    url = f"https://localhost:{server.https_port}/_up"
    command = ["curl", "-sS", "--cacert", certificates.path("ca.crt"), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert json.loads(done.stdout)["status"] == "ok"
    done = subprocess.run(["curl", "-sS", url], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 60, done.stderr
    plain = http.client.HTTPConnection("127.0.0.1", server.https_port, timeout=PATIENCE_S)
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        plain.request("GET", "/_up")
        plain.getresponse()


def test_backups_and_health_go_over_tls(new_https_server, certificates, tmp_path):
    server = new_https_server()
    with server.connect() as control:
        for number in range(1000):
            control.call("SET", f"k{number}", "v" * 1000)
    url, trusted = f"https://localhost:{server.https_port}", ("--cacert", certificates.path("ca.crt"))
    backup = str(tmp_path / "backup")
    done = run_sheaf("backup", backup, "--from", url, *trusted)
    assert done.returncode == 0, done.stderr
    assert run_sheaf("check", backup).returncode == 0
    assert run_sheaf("health", url, *trusted).returncode == 0
    assert run_sheaf("health", url, "--insecure").returncode == 0
    # The authorities of the system have not signed it.
    refused = run_sheaf("health", url)
    assert refused.returncode == 1 and "certificate" in refused.stderr.lower(), refused.stderr
    refused = run_sheaf("backup", str(tmp_path / "other"), "--from", url)
    assert refused.returncode == 1 and "certificate" in refused.stderr.lower(), refused.stderr


def test_two_doors_at_one_port_are_refused(certificates, tmp_path):
    port = str(free_port())
    flags = (*certificates.server_flags(int(port)), "--http-tls-port", port)
    done = run_sheaf("--dir", str(tmp_path / "data"), *ANY_PORTS, *flags)
    assert done.returncode == 2 and f"tls-port and http-tls-port both name port {port}" in done.stderr
