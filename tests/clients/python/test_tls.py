"""redis-py and redis-cli over TLS, as people use them."""

import subprocess
import threading

import pytest
import redis

from harness.certificates import Certificates
from harness.server import Server, free_port
from harness.waiting import PATIENCE_S

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return Certificates(tmp_path / "tls")


@pytest.fixture
def server(new_server, certificates) -> Server:
    port = free_port()
    server = new_server(extra=certificates.server_flags(port)).start()
    server.tls_port = port
    return server


@pytest.fixture
def options(server, certificates) -> dict:
    """How redis-py connects."""
    return {
        "host": "localhost",
        "port": server.tls_port,
        "ssl": True,
        "ssl_ca_certs": certificates.path("ca.crt"),
        "ssl_certfile": certificates.path("client.crt"),
        "ssl_keyfile": certificates.path("client.key"),
        "ssl_check_hostname": True,
        "socket_timeout": PATIENCE_S,
    }


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(options, protocol):
    with redis.Redis(**options, protocol=protocol) as client:
        with client.pipeline(transaction=False) as pipeline:
            for number in range(5000):
                pipeline.set(f"k{number}", b"v" * (number % 300))
            assert all(pipeline.execute())
        assert client.mget([f"k{number}" for number in range(5000)]) == [b"v" * (number % 300) for number in range(5000)]
        with client.pipeline() as transaction:
            transaction.incr("n").incr("n")
            assert transaction.execute() == [1, 2]
        large = bytes(range(256)) * (1 << 14)
        assert client.set("large", large) and client.get("large") == large


def test_redis_py_by_url_and_from_many_threads(server, options, certificates):
    query = f"ssl_ca_certs={certificates.path('ca.crt')}&ssl_certfile={certificates.path('client.crt')}&ssl_keyfile={certificates.path('client.key')}"
    with redis.from_url(f"rediss://localhost:{server.tls_port}/0?{query}") as client:
        threads = [threading.Thread(target=lambda: [client.incr("n") for _ in range(200)]) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert client.get("n") == b"3200"


def test_redis_py_listens(options):
    with redis.Redis(**options) as publisher, redis.Redis(**options) as client, client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("c")
        while publisher.publish("c", "first") == 0:
            pass
        for number in range(1000):
            publisher.publish("c", number)
        heard = []
        while not heard or heard[-1] != b"999":
            message = listener.get_message(timeout=PATIENCE_S)
            if message is not None:
                heard.append(message["data"])
        assert heard == [b"first", *(b"%d" % number for number in range(1000))]


def test_redis_py_without_a_certificate_is_refused(options):
    for name in ("ssl_certfile", "ssl_keyfile"):
        del options[name]
    with redis.Redis(**options, retry=None) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_redis_cli(server, certificates):
    def cli(*arguments: str, stdin: str = "") -> str:
        command = ["redis-cli", "-p", str(server.tls_port), *certificates.client_flags(), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return done.stdout

    assert cli("PING") == "PONG\n"
    assert cli("SET", "k", "v" * 100_000) == "OK\n" and cli("GET", "k") == "v" * 100_000 + "\n"
    assert cli("--pipe", stdin="".join(f"SET p{number} {number}\r\n" for number in range(10_000))).endswith("errors: 0, replies: 10000\n")
    assert cli("GET", "p9999") == "9999\n"


def test_redis_benchmark(server, certificates):
    command = ["redis-benchmark", "-p", str(server.tls_port), *certificates.client_flags(), "-q", "-n", "5000", "-P", "16", "-t", "set,get"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "SET:" in done.stdout and "GET:" in done.stdout, done.stdout + done.stderr
