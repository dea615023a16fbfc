"""TLS on the Redis port: who gets in, who does not, and what hostile or slow peers do to others."""

import os
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from harness.certificates import Certificates, Encrypted
from harness.couch import Couch
from harness.importing import SourceOptions
from harness.resp import Closed, Connection, ErrorReply, encode
from harness.server import ANY_PORTS, Server, environment, free_port, run_sheaf, sheaf_binary
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only

# More than the handshakes that one thread has at a time, and the sockets that wait for it.
SILENT_PEERS = 1200
# What a peer of which the server wants nothing more gets to see.
REFUSED = (ssl.SSLError, Closed, ConnectionError)


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return Certificates(tmp_path / "tls")


@pytest.fixture
def new_tls_server(new_server, certificates):
    """Starts servers with a door for TLS: `new_tls_server(clients="optional", ...)`; their `tls_port` is added."""

    def start(clients: str = "yes", flags: tuple[str, ...] = (), **settings: str) -> Server:
        port = free_port()
        server = new_server(extra=(*certificates.server_flags(port, clients, **settings), *flags)).start()
        server.tls_port = port
        return server

    return start


@pytest.fixture
def server(new_tls_server) -> Server:
    return new_tls_server()


def ping(server: Server, context: ssl.SSLContext) -> None:
    """Connects and asks once. In TLS 1.3 a client hears that it is refused only when it reads."""
    with Encrypted(server.tls_port, context) as connection:
        assert connection.call("PING") == b"PONG"


def stat(server: Server, name: str) -> int:
    """A figure of INFO."""
    with server.connect() as control:
        return int(control.call("INFO", "stats").decode().split(f"{name}:")[1].split()[0])


def failures(server: Server, reason: str) -> int:
    """The lines of the log that name this reason of a failed handshake."""
    return sum(reason in line for line in server.log().splitlines() if "a handshake failed" in line)


def test_both_doors_lead_to_the_same_data(server, certificates):
    with server.connect() as plain, Encrypted(server.tls_port, certificates.context()) as encrypted:
        assert encrypted.call("SET", "k", "v" * 300_000) == b"OK"
        assert plain.call("GET", "k") == b"v" * 300_000 == encrypted.call("GET", "k")
        info = plain.call("INFO", "server").decode()
        assert f"tcp_port:{server.port}\r\n" in info
        assert f"listener1:name=tls,bind=127.0.0.1,port={server.tls_port}\r\n" in info
    assert stat(server, "tls_handshakes") == 1
    assert stat(server, "tls_cert_expires_in_seconds") > 360 * 86_400


def test_a_pipeline_is_answered_though_its_replies_are_read_late(server, certificates):
    """More than the session and the kernel hold on the way back, while commands still come."""
    with Encrypted(server.tls_port, certificates.context()) as connection:
        assert connection.call("SET", "k", "v" * 20_000) == b"OK"
        connection.send(encode("GET", "k") * 2000)
        assert [connection.read() for _ in range(2000)] == [b"v" * 20_000] * 2000
        assert connection.call("PING") == b"PONG"


def test_messages_and_blocked_commands_arrive(server, certificates):
    context = certificates.context()
    with Encrypted(server.tls_port, context) as listener, Encrypted(server.tls_port, context) as popper, server.connect() as control:
        assert listener.call("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
        popper.send(encode("BLPOP", "l", 0))
        wait_until("the client to block", lambda: b"blocked_clients:1" in control.call("INFO", "clients"))
        control.call("PUBLISH", "c", "m" * 100_000)
        control.call("RPUSH", "l", "e")
        assert listener.read() == [b"message", b"c", b"m" * 100_000]
        assert popper.read() == [b"l", b"e"]


def test_a_subscriber_that_reads_is_kept_and_one_that_does_not_is_cut(server, certificates):
    context = certificates.context()
    with Encrypted(server.tls_port, context) as silent, Encrypted(server.tls_port, context) as reader, server.connect() as control:
        for listener in (silent, reader):
            assert listener.call("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
        over = threading.Event()

        def read() -> None:
            while reader.read()[2] != b"end":
                pass
            over.set()

        thread = threading.Thread(target=read)
        thread.start()
        # Far more than the 32 MiB that a subscriber may leave unread, and the kernel's buffers.
        for _ in range(1000):
            if control.call("PUBLISH", "c", "m" * 100_000) == 1:
                break
        wait_until("the silent one to be cut", lambda: stat(server, "client_output_buffer_limit_disconnections") == 1)
        assert control.call("PUBLISH", "c", "end") == 1
        thread.join(PATIENCE_S)
        assert over.is_set()


def test_port_0_leaves_no_plain_door(new_server, certificates):
    port = free_port()
    flags = certificates.server_flags(port)
    server = new_server(port=0, extra=flags)
    server.spawn()
    server.wait_for_log("ready")
    with Encrypted(port, certificates.context()) as connection:
        info = connection.call("INFO", "server").decode()
        assert f"tcp_port:{port}\r\n" in info and "name=tcp" not in info
    assert "redis=[] " in server.log()


def test_a_client_of_the_wrong_kind_gets_nothing_but_an_end(server, certificates, tmp_path):
    for said in [b"PING\r\n", encode("SET", "k", "v"), b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"\x16\x03\x01\xff\xff" + bytes(70_000)]:
        with Connection(server.tls_port) as connection:
            try:
                connection.send(said)
                rest = connection.read_to_end()
            except (Closed, ConnectionError):
                rest = b""
        # At most an alert.
        assert rest[:1] in (b"", b"\x15") and len(rest) < 100
    with pytest.raises(ssl.SSLError, match="unable to get local issuer|self.signed"):
        ping(server, Certificates(tmp_path / "other").context())
    assert stat(server, "tls_handshakes_failed") >= 5
    ping(server, certificates.context())
    with server.connect() as control:
        assert control.call("EXISTS", "k") == 0
    assert failures(server, "speaks no TLS") == 1, "one line for all of them"


def test_greetings_with_an_illegal_name_write_one_line_of_the_server(server):
    """The library for TLS would write a line of its own for each of them, with the bytes of the peer."""
    greeted = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), greeted, server_hostname="name.example").do_handshake()
    greeting = greeted.read().replace(b"name.example", b"\x1bame\nexample")
    before = len(server.log().splitlines())
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_S) as peer:
            peer.sendall(greeting)
            while peer.recv(4096):
                pass
    wait_until("the line", lambda: "a handshake failed" in server.log())
    lines = server.log().splitlines()[before:]
    assert len(lines) == 1, lines


def test_certificates_of_clients_are_judged(new_tls_server, certificates, tmp_path):
    stranger = Certificates(tmp_path / "stranger")
    certificates.issue("expired", "client", days=-1)
    bad = certificates.context(None)
    bad.load_cert_chain(stranger.path("client.crt"), stranger.path("client.key"))
    for clients, without in [("yes", False), ("optional", True), ("no", True)]:
        server = new_tls_server(clients)
        ping(server, certificates.context())
        for context, gets_in in [(certificates.context(None), without), (bad, clients == "no"), (certificates.context("expired"), clients == "no")]:
            if gets_in:
                ping(server, context)
            else:
                with pytest.raises(REFUSED):
                    ping(server, context)


def test_a_client_refuses_a_server_of_which_the_certificate_has_expired(new_tls_server, certificates):
    certificates.issue("server", "localhost", days=-1)
    server = new_tls_server()
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        ping(server, certificates.context())
    server.wait_for_log("has expired")


def test_a_certificate_logs_its_user_in(new_tls_server, certificates):
    server = new_tls_server("optional", tls_auth_clients_user="CN")
    for name in ("alice", "off", "nobody", "default"):
        certificates.issue(name, name)
    with server.connect() as control:
        for rules in [("alice", "on", "~a*", "+@all"), ("off", "off", "~*", "+@all"), ("bob", "on", "nopass", "~*", "+@all")]:
            assert control.call("ACL", "SETUSER", *rules) == b"OK"
        assert control.call("ACL", "SETUSER", "default", ">secret", "-@dangerous") == b"OK"
    with Encrypted(server.tls_port, certificates.context("alice")) as alice:
        assert alice.call("ACL", "WHOAMI") == b"alice"
        assert alice.call("SET", "a", 1) == b"OK"
        assert alice.call("SET", "b", 1).text.startswith("NOPERM")
        assert b"user=alice" in alice.call("CLIENT", "INFO")
        assert alice.call("AUTH", "bob", "anything").text.startswith("WRONGPASS"), "that is not its certificate"
        # Its rights are those of the moment.
        assert alice.call("ACL", "SETUSER", "alice", "-set") == b"OK"
        assert alice.call("SET", "a", 1).text.startswith("NOPERM")
    # RESET makes it the default user, as in Redis; then it has to log in like any other client.
    with Encrypted(server.tls_port, certificates.context("alice")) as alice:
        assert alice.call("ACL", "WHOAMI") == b"alice"
        assert alice.call("RESET") == b"RESET"
        assert alice.call("GET", "a").text.startswith("NOAUTH")
        assert alice.call("AUTH", "secret") == b"OK"
        assert alice.call("ACL", "WHOAMI") == b"default"
    # No such user, one that is disabled, and no certificate: they have to log in.
    for shown in ("nobody", "off", None):
        with Encrypted(server.tls_port, certificates.context(shown)) as other:
            assert other.call("GET", "a").text.startswith("NOAUTH"), shown
            # A user without a password is not one whom everybody may be.
            assert other.call("AUTH", "bob", "anything").text.startswith("WRONGPASS")
            assert other.call("HELLO", 2, "AUTH", "bob", "").text.startswith("WRONGPASS")
            assert other.call("AUTH", "secret") == b"OK"
    with Connection(server.port) as plain:
        assert plain.call("AUTH", "bob", "anything").text.startswith("WRONGPASS")
    with Encrypted(server.tls_port, certificates.context("alice")) as alice:
        assert alice.call("ACL", "DELUSER", "alice") == 1
        with pytest.raises(REFUSED):
            while True:
                alice.call("PING")


def test_a_user_whom_only_a_certificate_names_has_no_session_over_http(new_tls_server):
    server = new_tls_server("optional")
    with server.connect() as control, Couch(server.http_port) as couch:
        assert control.call("CONFIG", "SET", "admin-password", "pw") == b"OK"
        cookies = {}
        for name, rule in (("alice", "nopass"), ("bob", ">pw")):
            assert control.call("ACL", "SETUSER", name, "on", rule) == b"OK"
            answer = couch.send("POST", "/_session", {"name": name, "password": "pw"})
            cookies[name] = answer.headers["Set-Cookie"].partition(";")[0]

        def names() -> list[str | None]:
            return [couch.get("/_session", Cookie=cookie).json["userCtx"]["name"] for cookie in cookies.values()]

        assert names() == ["alice", "bob"]
        assert control.call("CONFIG", "SET", "tls-auth-clients-user", "CN") == b"OK"
        assert names() == [None, "bob"]


def test_a_user_of_a_certificate_logs_in_although_the_data_were_loading(new_tls_server, certificates):
    server = new_tls_server("optional", tls_auth_clients_user="CN")
    certificates.issue("alice", "alice")
    with server.connect() as control:
        assert control.call("ACL", "SETUSER", "alice", "on", "~*", "+@all") == b"OK"
        # Long enough to load for a client to find it loading, on most machines.
        for begin in range(0, 300_000, 10_000):
            control.send(b"".join(encode("SET", number, "v") for number in range(begin, begin + 10_000)))
            assert all(control.read() == b"OK" for _ in range(10_000))
    server.kill()
    server.options.port = server.port
    server.spawn()

    def connected() -> Encrypted:
        return wait_until("a connection", lambda: Encrypted(server.tls_port, certificates.context("alice")))

    with connected() as alice:
        wait_until("the data", lambda: not isinstance(alice.call("DBSIZE"), ErrorReply))
        assert alice.call("ACL", "WHOAMI") == b"alice"


def test_the_files_are_checked_before_the_server_starts(certificates, tmp_path):
    def said(*flags: str) -> str:
        done = run_sheaf("--dir", str(tmp_path / "data"), *ANY_PORTS, *flags)
        assert done.returncode == 2, done.stderr
        return done.stderr

    flags = certificates.server_flags(free_port())
    assert "tls-cert-file is not set" in said("--tls-port", "1")
    missing = list(flags)
    missing[missing.index("--tls-cert-file") + 1] = certificates.path("none.crt")
    assert "tls-cert-file" in said(*missing) and "No such file" in said(*missing)
    mixed = list(flags)
    mixed[mixed.index("--tls-key-file") + 1] = certificates.path("client.key")
    assert "does not belong to the certificate" in said(*mixed)
    unsigned = list(flags)
    unsigned[unsigned.index("--tls-ca-cert-file") + 1] = ""
    assert "tls-ca-cert-file or tls-ca-cert-dir" in said(*unsigned)
    assert "TLSv1.2 and TLSv1.3" in said(*flags, "--tls-protocols", "TLSv1.1")


def test_a_change_that_cannot_be_used_is_refused_and_changes_nothing(server, certificates):
    with server.connect() as control:
        refused = control.call("CONFIG", "SET", "tls-key-file", certificates.path("client.key"))
        assert "does not belong to the certificate" in refused.text and "'tls-key-file'" in refused.text
        assert control.call("CONFIG", "GET", "tls-key-file") == [b"tls-key-file", certificates.path("server.key").encode()]
        assert "TLSv1.2 and TLSv1.3" in control.call("CONFIG", "SET", "tls-protocols", "SSLv3").text
        ping(server, certificates.context())
        # A pair in one command.
        certificates.issue("next", "next")
        pair = ("tls-cert-file", certificates.path("next.crt"), "tls-key-file", certificates.path("next.key"))
        assert control.call("CONFIG", "SET", *pair) == b"OK"
        assert control.call("CONFIG", "SET", "tls-auth-clients", "no") == b"OK"
        assert control.call("CONFIG", "SET", "tls-protocols", "TLSv1.3") == b"OK"
    with Encrypted(server.tls_port, certificates.context(None)) as connection:
        assert dict(item[0] for item in connection.socket.getpeercert()["subject"])["commonName"] == "next"
    old = certificates.context(None)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(REFUSED):
        ping(server, old)


@pytest.mark.parametrize("reloads", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_certificates_are_renewed_under_load_without_a_failed_handshake(server, certificates, reloads):
    """Each file is replaced at once, but the certificate before its key. Connections that exist stay."""
    context, over = certificates.context(), threading.Event()
    failed: list[BaseException] = []
    done = [0] * 4

    def connect_all_the_time(number: int) -> None:
        while not over.is_set():
            try:
                ping(server, context)
                done[number] += 1
            except BaseException as error:
                failed.append(error)
                return

    with Encrypted(server.tls_port, context) as old:
        clients = [threading.Thread(target=connect_all_the_time, args=(number,)) for number in range(len(done))]
        for client in clients:
            client.start()
        try:
            for number in range(reloads):
                certificates.issue("server", f"server {number}")
                if number % 3 == 0:
                    server.signal(signal.SIGHUP)
                elif number % 3 == 1:
                    with server.connect() as control:
                        assert control.call("CONFIG", "SET", "tls-key-file", certificates.path("server.key")) == b"OK"
                before = sum(done)
                wait_until("more handshakes", lambda before=before: sum(done) > before or failed)
                if number in (0, reloads - 1):
                    wait_until("the new certificate", lambda number=number: presented(server, context) == f"server {number}")
        finally:
            over.set()
            for client in clients:
                client.join(PATIENCE_S)
        assert not failed, failed[0]
        assert old.call("PING") == b"PONG"
    assert stat(server, "tls_handshakes_failed") == 0
    assert stat(server, "tls_cert_reloads") > 0


def presented(server: Server, context: ssl.SSLContext) -> str:
    """The common name in the server's certificate."""
    with Encrypted(server.tls_port, context) as connection:
        return dict(item[0] for item in connection.socket.getpeercert()["subject"])["commonName"]


def test_peers_that_never_finish_their_handshake_keep_nobody_out(server, certificates):
    silent = []
    try:
        for number in range(SILENT_PEERS):
            peer = socket.create_connection(("127.0.0.1", server.tls_port), timeout=PATIENCE_S)
            silent.append(peer)
            if number % 2:
                # The beginning of a record that never comes.
                peer.sendall(b"\x16\x03\x01\x02\x00\x01")
        # Others come in: over TLS, and those that are there already notice nothing.
        ping(server, certificates.context())
        with server.connect() as control:
            assert control.call("PING") == b"PONG"
            clients = int(control.call("INFO", "clients").split(b"connected_clients:")[1].split()[0])
            # This connection, and the one of the ping, which may still be leaving.
            assert clients <= 2, "none of them is a client"
        # They are sent away, all of them.
        for peer in silent:
            await_end(peer)
        wait_until("no handshake to go on", lambda: stat(server, "tls_handshakes_unfinished") == 0)
        assert failures(server, "it took too long") <= 1
    finally:
        for peer in silent:
            peer.close()


def await_end(peer: socket.socket) -> None:
    """Waits until the server has closed the connection."""
    try:
        while peer.recv(100):
            pass
    except ConnectionError:
        pass


def test_bench_trusts_whom_it_was_told_to(server, certificates, tmp_path):
    flags = certificates.client_flags()
    measured = run_sheaf("bench", "--url", f"localhost:{server.tls_port}", *flags, "--seconds", "2")
    assert measured.returncode == 0 and "GET, 50 clients" in measured.stdout, measured.stderr
    without = ("--tls", "--cacert", certificates.path("ca.crt"))
    refused = run_sheaf("bench", "--url", f"localhost:{server.tls_port}", *without)
    assert refused.returncode == 1, refused.stdout
    stranger = Certificates(tmp_path / "stranger")
    refused = run_sheaf("bench", "--url", f"localhost:{server.tls_port}", *stranger.client_flags())
    assert refused.returncode == 1 and "TLS: " in refused.stderr and "certificate" in refused.stderr
    trusting = ("--tls", "--insecure", *flags[3:])
    measured = run_sheaf("bench", "--url", f"127.0.0.1:{server.tls_port}", *trusting, "--seconds", "1")
    assert measured.returncode == 0, measured.stderr


@pytest.mark.parametrize("tool", ["bench", "group", "tail"])
def test_a_tool_without_a_certificate_is_told_what_is_missing(server, certificates, tool):
    trusting = ("--tls", "--cacert", certificates.path("ca.crt"))
    address = f"localhost:{server.tls_port}"
    place = {"bench": ("--url", address), "group": (address,), "tail": ("--host", "localhost", "--port", str(server.tls_port), "c")}
    refused = run_sheaf(tool, *place[tool], *trusting)
    assert refused.returncode != 0
    assert "the server requires a certificate of its client: --cert FILE and --key FILE" in refused.stderr


def test_tail_follows_over_tls(server, certificates):
    command = [sheaf_binary(), "tail", "--host", "localhost", "--port", str(server.tls_port), *certificates.client_flags(), "c"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as tail:
        try:
            with server.connect() as control:
                wait_until("the subscription", lambda: control.call("PUBLISH", "c", "first") == 1)
                control.call("PUBLISH", "c", "x" * 200_000)
            assert tail.stdout.readline().endswith(" c first\n")
            assert tail.stdout.readline().endswith(" c " + "x" * 200_000 + "\n")
        finally:
            tail.kill()


def test_a_redis_server_is_imported_over_tls(server, certificates, new_import, tmp_path):
    source = Server(tmp_path / "source", SourceOptions())
    source_port = free_port()
    # The flags of Redis have the same names.
    source.options.settings = certificates.server_flags(source_port)
    try:
        with source.start().connect() as control:
            for number in range(3000):
                assert control.call("SET", f"k{number}", "v" * 500) == b"OK"
            target = f"rediss://127.0.0.1:{server.tls_port}"
            moving = new_import(source_port, *certificates.client_flags(), "--into", target)
            moving.wait_for("in sync")
            for number in range(3000):
                assert control.call("SET", f"later{number}", "v" * 500) == b"OK"
        status, said = moving.finish()
        assert status == 0, said + moving.said()
    finally:
        source.close()
    with Encrypted(server.tls_port, certificates.context()) as connection:
        assert connection.call("DBSIZE") == 6000


def test_certs_replaces_nothing(tmp_path):
    directory = tmp_path / "tls"
    Certificates(directory)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    again = run_sheaf("certs", str(directory))
    assert again.returncode == 1 and "is not replaced" in again.stderr
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == files
    assert all(oct(Path(directory / f"{name}.key").stat().st_mode)[-3:] == "600" for name in ("ca", "server", "client"))


def test_openssl_shakes_hands(server, certificates):
    shown = ("-cert", certificates.path("client.crt"), "-key", certificates.path("client.key"))
    trusted = ("-CAfile", certificates.path("ca.crt"), "-verify_return_error", "-verify_hostname", "localhost")
    for version in ("-tls1_2", "-tls1_3"):
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", version, *trusted, *shown, "-quiet"],
            input=b"PING\r\nQUIT\r\n",
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stdout == b"+PONG\r\n+OK\r\n", done.stderr
