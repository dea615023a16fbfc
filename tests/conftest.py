"""Fixtures of all suites: servers, and their logs in the report of a failed test."""

import contextlib
import faulthandler
import random
import resource

import pytest
import redis
from _pytest.faulthandler import fault_handler_stderr_fd_key
from redis.backoff import NoBackoff
from redis.retry import Retry

from differential.peers import ALL, PEERS, named
from harness.importing import Import
from harness.redis_py import be_patient
from harness.server import UNDER_TEST, Options, Server

# Of itself, redis-py sends a command again that a busy machine has not answered within 5 s.
be_patient()
# Names of tests that hang, for `./test`.
pytest_plugins = ["gate.progress"]
LOG_TAIL_CHARS = 8000
# How much longer than its limit a test may take until it has failed and its fixtures have ended.
ENDING_S = 180
# The limit of a soak of the default length, and the options that make it longer, with their defaults.
SOAK_LIMIT_S = 1200
SOAK_OPTIONS = {"kills": 100, "commands": 50_000, "sequences": 15_000, "rule_sets": 20_000, "races": 2000, "churn_seconds": 10, "import_seconds": 5}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=SOAK_OPTIONS["kills"], help="kill -9 rounds in strict; a fifth of it in commit")
    parser.addoption("--seed", type=int, default=random.randrange(1 << 30), help="what is chosen by chance")
    parser.addoption(
        "--commands", type=int, default=SOAK_OPTIONS["commands"], help="random commands per protocol in the differential test"
    )
    parser.addoption(
        "--rule-sets", type=int, default=SOAK_OPTIONS["rule_sets"], help="random rule sets of users in the differential test"
    )
    parser.addoption("--jobs", type=int, help="jobs for each queue library; by default as many as a CI run has time for")
    parser.addoption(
        "--sequences", type=int, default=SOAK_OPTIONS["sequences"], help="the same for each of some families: two thirds are theirs"
    )
    parser.addoption("--races", type=int, default=SOAK_OPTIONS["races"], help="rounds of SUBSCRIBE and GET against SET and PUBLISH")
    parser.addoption("--promotions", type=int, default=3, help="rounds of two replicas that are promoted at the same time")
    parser.addoption("--group-rounds", type=int, default=4, help="rounds of faults in a group of three servers")
    parser.addoption("--group-members", type=int, default=3, help="servers in a group under faults")
    parser.addoption("--group-witness", action="store_true", help="the last of these servers is a witness")
    parser.addoption("--group-faults", help="only these faults of harness/nemesis.py, separated by commas")
    parser.addoption("--hand-overs", type=int, default=10, help="hand-overs of the lead of a group in a row")
    parser.addoption("--findings", help="a directory for histories and logs of a group that broke its promise")
    parser.addoption("--script-rounds", type=int, default=15, help="rounds of endless scripts of all kinds")
    parser.addoption("--churn-seconds", type=int, default=SOAK_OPTIONS["churn_seconds"], help="how long subscriptions come and go under load")
    parser.addoption(
        "--import-seconds", type=int, default=SOAK_OPTIONS["import_seconds"], help="how long a source is written to while it is copied"
    )
    parser.addoption("--traffic", help="bench/traffic, to measure others beside slow listeners")
    parser.addoption(
        "--peer", choices=[*(peer.name for peer in PEERS), ALL], default=PEERS[0].name, help="what the differential test runs beside"
    )
    parser.addoption("--failures", type=int, default=1, help="differences to find before the differential test ends")


def pytest_configure() -> None:
    """Raises the limit of open files to the maximum of the machine, for the tests and the servers that they
    start.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test beside another server runs beside each of the chosen ones."""
    if "compared_with" in metafunc.fixturenames:
        metafunc.parametrize("compared_with", named(metafunc.config.getoption("peer")), ids=lambda peer: peer.name)


def pytest_report_header(config: pytest.Config) -> str:
    return f"server under test: {UNDER_TEST}, seed {config.getoption('seed')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest = max(config.getoption(name) / default for name, default in SOAK_OPTIONS.items())
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S * max(1, longest)))
    if UNDER_TEST == "sheaf":
        return
    skip = pytest.mark.skip(reason="only Sheaf promises this")
    for item in items:
        if item.get_closest_marker("sheaf_only"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Ends the process if the test hangs although it has failed by its timeout, as in a fixture: pytest-timeout
    has no timer then. Shows the stacks of all threads; its servers end with it, and xdist goes on with another
    process. It takes the place of `faulthandler_timeout`, which knows no limits of single tests.
    """
    marker, config = item.get_closest_marker("timeout"), item.config
    limit_s = marker.args[0] if marker else config.getoption("timeout") or float(config.getini("timeout"))
    if limit_s > 0:
        end_process_after(limit_s + ENDING_S, config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest has just cancelled the timer, in case of a debugger. The fixtures of the failed test come next."""
    if isinstance(node, pytest.Item) and not node.config.getoption("usepdb"):
        end_process_after(ENDING_S, node.config)


def end_process_after(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.failed:
        for number, server in enumerate(getattr(item, "servers", [])):
            report.sections.append((f"log of server {number + 1}", server.log()[-LOG_TAIL_CHARS:]))
    return report


@pytest.fixture
def new_server(request: pytest.FixtureRequest, tmp_path):
    """Creates servers that are not started yet: `new_server(durability="commit", ...)`, each in its own
    directory.
    """
    servers: list[Server] = []
    request.node.servers = servers

    def make(directory=None, **options) -> Server:
        directory = directory or tmp_path / f"data-{len(servers) + 1}"
        # Not beside the directory: on a full volume there is no room for the log either.
        server = Server(directory, Options(**options), log_path=tmp_path / f"{directory.name}.log")
        servers.append(server)
        return server

    yield make
    # All of them, even if one does not end.
    with contextlib.ExitStack() as all_of_them:
        for server in servers:
            all_of_them.callback(server.close)


@pytest.fixture
def server(new_server) -> Server:
    """A running server with the default settings."""
    return new_server().start()


@pytest.fixture
def new_import():
    """Starts imports: `new_import(port of the source, arguments ..., user="name:password@")`."""
    with contextlib.ExitStack() as running:

        def start(source: int, *arguments: object, user: str = "") -> Import:
            started = Import(source, *arguments, user=user)
            running.callback(started.close)
            return started

        yield start


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request: pytest.FixtureRequest) -> int:
    """Both versions of the protocol, one after the other."""
    return request.param


@pytest.fixture
def connect(server: Server, protocol: int):
    """Creates redis-py clients of the test's server. A broken connection is an error, without retries."""
    clients: list[redis.Redis] = []

    def make(**options) -> redis.Redis:
        settings = {"port": server.port, "protocol": protocol, "socket_timeout": 60} | options
        clients.append(redis.Redis(retry=Retry(NoBackoff(), 0), **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect) -> redis.Redis:
    """A redis-py client of a running server."""
    return connect()
