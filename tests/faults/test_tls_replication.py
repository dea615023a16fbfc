"""Servers that talk to each other over TLS: replicas, copies, groups that lose their leader; and who is refused."""

import threading

import pytest

from harness import resp
from harness.certificates import Certificates, Encrypted
from harness.groups import NAME, others, settle, wait_leader
from harness.replicas import call, follower_of, info, is_following, wait_following, wait_same
from harness.server import ANY_PORTS, Server, free_port, run_sheaf
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return Certificates(tmp_path / "tls")


def flags_of(certificates: Certificates, port: int) -> tuple[str, ...]:
    """The flags of a server that talks to others over TLS."""
    return (*certificates.server_flags(port), "--http-tls-port", str(free_port()), "--tls-replication", "yes")


@pytest.fixture
def new_tls_server(new_server, certificates):
    """Makes servers that talk to others over TLS; not started. Clients in this test use the plain port."""

    def make(*flags: str, trusted: Certificates = certificates, **options) -> Server:
        port = free_port()
        server = new_server(port=free_port(), extra=(*flags_of(trusted, port), *flags), **options)
        server.tls_port = port
        return server

    return make


@pytest.fixture
def group(new_tls_server) -> list[Server]:
    """Three members; the first one leads."""
    first = new_tls_server("--group", NAME).start()
    wait_leader([first])
    joining = [new_tls_server("--group", NAME, "--join", f"127.0.0.1:{first.tls_port}").start() for _ in range(2)]
    servers = [first, *joining]
    settle(servers, 3)
    return servers


def fill(server: Server, count: int) -> None:
    with server.connect() as connection:
        connection.send(b"".join(resp.encode("SET", f"k{number}", "v" * 1000) for number in range(count)))
        assert all(connection.read() == b"OK" for _ in range(count))


def test_a_replica_copies_everything_and_follows_over_tls(new_server, new_tls_server, certificates):
    leader = new_tls_server().start()
    fill(leader, 20_000)
    port = free_port()
    replica = follower_of(new_server, leader, leader.tls_port, extra=flags_of(certificates, port))
    wait_same(leader, replica)
    fields = info(leader)
    assert fields["slave0"].startswith(f"ip=127.0.0.1,port={port},state=online"), "the port for TLS"
    # The stream, a restart of each side, and acknowledgements.
    fill(leader, 5000)
    assert call(leader, "SET", "large", "x" * 5_000_000) == b"OK" and call(leader, "WAIT", 1, 60_000) == 1
    wait_same(leader, replica)
    replica.kill()
    assert call(leader, "SET", "while it was away", "1") == b"OK"
    replica.start()
    wait_same(leader, replica)
    leader.kill()
    leader.start()
    assert call(leader, "SET", "after", "1") == b"OK"
    wait_same(leader, replica)


def test_servers_that_do_not_trust_each_other_do_not_replicate(new_server, new_tls_server, certificates, tmp_path):
    leader = new_tls_server().start()
    assert call(leader, "SET", "secret", "1") == b"OK"
    stranger = new_tls_server("--replica-of", f"127.0.0.1:{leader.tls_port}", trusted=Certificates(tmp_path / "other"))
    stranger.spawn()
    stranger.wait_for_log("TLS: ")
    # Plain to the plain port, plain to the port for TLS, TLS to the plain port.
    plain = new_server(extra=("--replica-of", f"127.0.0.1:{leader.port}")).start()
    plain.wait_for_log("over TLS alone")
    confused = new_server(extra=("--replica-of", f"127.0.0.1:{leader.tls_port}")).start()
    mistaken = new_tls_server("--replica-of", f"127.0.0.1:{leader.port}").start()
    mistaken.wait_for_log("TLS: ")
    leader.wait_for_log("does not come over TLS")
    for replica in (stranger, plain, confused, mistaken):
        assert not is_following(replica) and b"secret" not in (call(replica, "KEYS", "*") or [])
    assert info(leader)["connected_slaves"] == "0"


def test_a_server_without_tls_replication_serves_no_server_over_tls(new_server, new_tls_server, certificates):
    port = free_port()
    leader = new_server(extra=certificates.server_flags(port)).start()
    replica = new_tls_server("--replica-of", f"127.0.0.1:{port}").start()
    leader.wait_for_log("tls-replication is off here")
    assert not is_following(replica)
    # A Redis server is told why.
    for command in (("PSYNC", "?", "-1"), ("SYNC",)):
        with Encrypted(port, certificates.context()) as connection:
            answer = connection.call(*command)
            assert isinstance(answer, resp.ErrorReply) and "tls-replication is off" in answer.text, answer


def test_a_group_elects_over_tls_when_its_leader_is_killed(group, certificates):
    stop, acknowledged = threading.Event(), []

    def write() -> None:
        number = 0
        while not stop.is_set():
            try:
                with wait_leader(group).connect() as connection:
                    while not stop.is_set() and connection.call("SET", f"w{number}", "1") == b"OK":
                        acknowledged.append(number)
                        number += 1
            except resp.UNREACHABLE:
                pass
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            leader = wait_leader(group)
            before = len(acknowledged)
            wait_until("some writes", lambda before=before: len(acknowledged) > before + 100)
            leader.kill()
            rest = others(group, leader)
            next_one = wait_leader(rest)
            before = len(acknowledged)
            wait_until("writes at the next one", lambda before=before: len(acknowledged) > before + 100)
            leader.start()
            wait_following(leader)
            assert next_one is not leader
    finally:
        stop.set()
        writer.join(PATIENCE_S)
    leader = wait_leader(group)
    with leader.connect() as connection:
        connection.send(b"".join(resp.encode("EXISTS", f"w{number}") for number in acknowledged))
        assert all(connection.read() == 1 for _ in acknowledged), "every acknowledged write is there"
    for follower in others(group, leader):
        wait_same(leader, follower)
    # The members name the ports for TLS, at which clients find the leader.
    with Encrypted(group[0].tls_port, certificates.context()) as connection:
        found = connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
    assert found == [b"127.0.0.1", b"%d" % leader.tls_port]


def test_a_group_survives_the_renewal_of_its_certificates(group, certificates):
    leader = wait_leader(group)
    certificates.issue("server", "renewed")
    for server in group:
        wait_until("it to read them", lambda one=server: b"tls_cert_reloads:0" not in call(one, "INFO", "stats"))
    assert call(leader, "SET", "a", "1") == b"OK"
    # The next connections show the new ones.
    for follower in others(group, leader):
        follower.kill()
        follower.start()
        wait_same(leader, follower)


def test_tls_replication_needs_its_ports(certificates, tmp_path):
    flags = (*certificates.server_flags(free_port()), "--tls-replication", "yes")
    done = run_sheaf("--dir", str(tmp_path / "data"), *ANY_PORTS, *flags)
    assert done.returncode == 2 and "http-tls-port" in done.stderr
