"""Traces: what a collector of OpenTelemetry gets, and that nothing depends on it."""

import socket
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from harness.collector import INTERNAL, SERVER, Collector, Span
from harness.couch import Couch
from harness.groups import group_of, wait_leader
from harness.replicas import call, error_of, follower_of
from harness.resp import Connection, encode
from harness.server import ANY_PORTS, Server, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
# More spans than the queue and a batch hold.
TOO_MANY = 10_000
PARTS = ["log.wait_for_batch", "log.write_and_sync", "log.wait_for_replicas"]


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


def traced(collector: Collector, *more: str, ratio: str = "1") -> tuple[str, ...]:
    """The options of a server that sends its traces to this collector."""
    return ("--otel-endpoint", collector.url, "--otel-sample-ratio", ratio, *more)


def pipeline(connection: Connection, commands: list[list[str]]) -> None:
    """Sends all at once; no reply is an error."""
    connection.send(b"".join(encode(*command) for command in commands))
    assert not any(error_of(connection.read()) for _ in commands)


def metric(server: Server, name: str) -> int:
    with urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def check_parts(collector: Collector, span: Span, wanted: str) -> list[str]:
    """The parts of a wait lie within it, one after the other. They may be sent later than the wait itself: the part with
    the wanted name is waited for. Returns their names.
    """
    wait_until(f"the part {wanted}", lambda: any(part.name == wanted for part in collector.below(span)))
    parts = collector.below(span)
    for earlier, later in zip(parts, parts[1:], strict=False):
        assert earlier.ended_ns == later.began_ns, parts
    assert all(span.began_ns <= part.began_ns and part.ended_ns <= span.ended_ns for part in parts), (span, parts)
    assert sum(part.duration_ns for part in parts) <= span.duration_ns
    for part in parts:
        assert part.kind == INTERNAL and part.attributes["sheaf.log.lsn"] > 0 < part.attributes["sheaf.log.batch_bytes"]
    names = [part.name for part in parts]
    assert names == [name for name in PARTS if name in names], names
    return names


def test_a_command_is_a_span_above_the_parts_of_its_wait(new_server, collector):
    options = traced(collector, "--otel-service-name", "shop")
    server = new_server(requirepass="passw0rd-secret", extra=options).start()
    before_ns = time.time_ns()
    with server.connect() as connection:
        assert connection.call("AUTH", "passw0rd-secret") == b"OK"
        assert connection.call("SET", "key-secret", "value-secret") == b"OK"
        assert connection.call("CONFIG", "SET", "requirepass", "passw0rd-secret") == b"OK"
        assert error_of(connection.call("LPUSH", "key-secret", "value-secret")).startswith("WRONGTYPE")
        assert connection.call("SELECT", 3) == b"OK"
        assert connection.call("GET", "key-secret") is None
    [span] = collector.wait_for("SET")
    assert span.kind == SERVER and span.parent_id is None and span.error is None
    assert span.attributes == {
        "db.system.name": "redis",
        "db.operation.name": "SET",
        "db.namespace": "0",
        "sheaf.argument_count": 3,
    }
    assert abs(span.began_ns - before_ns) < 60e9
    check_parts(collector, span, "log.write_and_sync")
    [failed] = collector.wait_for("LPUSH")
    assert failed.error == failed.attributes["db.response.status_code"] == failed.attributes["error.type"] == "WRONGTYPE"
    [read] = collector.wait_for("GET")
    assert read.attributes["db.namespace"] == "3" and read.error is None
    collector.wait_for("CONFIG SET")
    resource = collector.resources[0]
    assert resource["service.name"] == "shop" and resource["service.instance.id"] and resource["service.version"]
    assert not [body for body in collector.bodies if b"secret" in body], "neither keys nor values nor passwords"


def test_transactions_scripts_and_blocked_commands_are_spans(new_server, collector):
    server = new_server(extra=traced(collector)).start()
    with server.connect() as connection, server.connect() as other:
        assert connection.call("MULTI") == b"OK"
        connection.call("SET", "a", 1)
        connection.call("INCR", "a")
        assert connection.call("EXEC") == [b"OK", 2]
        [exec_span] = collector.wait_for("EXEC")
        check_parts(collector, exec_span, "log.write_and_sync")
        # Long enough for a thread of its own.
        script = "local n = 0 for i = 1, 3000000 do n = n + i end return redis.call('SET', 'b', n)"
        assert connection.call("EVAL", script, 0) == b"OK"
        [script_span] = collector.wait_for("EVAL")
        check_parts(collector, script_span, "log.write_and_sync")
        connection.send(encode("BLPOP", "list", 0))
        wait_until("a blocked client", lambda: metric(server, "sheaf_clients_blocked") == 1)
        assert other.call("RPUSH", "list", "x") == 1
        assert connection.read() == [b"list", b"x"]
    [blocked] = collector.wait_for("BLPOP")
    assert blocked.attributes["sheaf.is_blocked"] is True
    wait_until("the count", lambda: metric(server, "sheaf_trace_spans_sent_total") >= 4)
    assert metric(server, "sheaf_trace_spans_dropped_total") == 0


def test_a_request_follows_the_trace_of_its_client(new_server, collector):
    server = new_server(extra=traced(collector, ratio="0")).start()
    with Couch(server.http_port) as couch:
        assert couch.send("PUT", "/shop", None, traceparent=SAMPLED).status == 201
        document = {"value": "value-secret"}
        assert couch.send("PUT", "/shop/id-secret", document, traceparent=SAMPLED).status == 201
        assert couch.send("PUT", "/shop/id-secret-2", document, traceparent=NOT_SAMPLED).status == 201
        assert couch.send("PUT", "/shop/id-secret-3", document).status == 201
        assert couch.get("/shop/id-secret?rev=secret", traceparent=SAMPLED).status == 400
        assert couch.get("/_up", traceparent=SAMPLED).status == 200
        assert couch.get("/shop/_secret/x", traceparent=SAMPLED).status in (400, 404)
    [span] = collector.wait_for("PUT /{db}/{docid}")
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, PARENT, SERVER)
    size = span.attributes.pop("http.response.body.size")
    assert size > 10 and span.attributes.pop("http.request.body.size") > 10
    assert span.attributes == {
        "http.request.method": "PUT",
        "http.route": "/{db}/{docid}",
        "http.response.status_code": 201,
        "url.scheme": "http",
        "db.system.name": "couchdb",
        "db.namespace": "shop",
    }
    check_parts(collector, span, "log.write_and_sync")
    [read] = collector.wait_for("GET /{db}/{docid}")
    assert read.error is None and read.attributes["http.response.status_code"] == 400, "the client's fault"
    collector.wait_for("GET /_up")
    collector.wait_for("GET /{db}/{unknown}")
    assert len(collector.spans("PUT /{db}/{docid}")) == 1, "neither an unsampled trace, nor one by chance"
    assert not [body for body in collector.bodies if b"secret" in body]


def test_the_ratio_decides_how_many_commands_are_traced(new_server, collector):
    server = new_server(extra=traced(collector, ratio="0.1")).start()
    commands = [["GET", "missing"]] * 5000

    def traced_of(ratio: str, rounds: int) -> int:
        assert call(server, "CONFIG", "SET", "otel-sample-ratio", ratio) == b"OK"
        assert call(server, "CONFIG", "GET", "otel-sample-ratio") == [b"otel-sample-ratio", ratio.encode()]
        before = len(collector.spans("GET"))
        with server.connect() as connection:
            for _ in range(rounds):
                pipeline(connection, commands)
        # Another incarnation of the ratio, and a span behind those that are counted.
        call(server, "CONFIG", "SET", "otel-sample-ratio", "1")
        marks = len(collector.spans("ECHO"))
        call(server, "ECHO", "x")
        collector.wait_for("ECHO", marks + 1)
        return len(collector.spans("GET")) - before

    # Ten standard deviations.
    assert 1570 < traced_of("0.1", 4) < 2430, "every command is timed"
    assert 250 < traced_of("0.01", 10) < 750, "commands are chosen among one in 32"
    assert traced_of("0", 2) == 0
    assert metric(server, "sheaf_trace_spans_dropped_total") == 0


def test_a_collector_that_is_away_costs_spans_and_nothing_else(new_server):
    away = Collector()
    server = new_server(extra=traced(away)).start()
    with server.connect() as connection:
        pipeline(connection, [["GET", "missing"]] * TOO_MANY)
        assert connection.call("SET", "k", "v") == b"OK"
        wait_until("dropped spans", lambda: metric(server, "sheaf_trace_spans_dropped_total") > 0)
        server.wait_for_log("traces are not delivered")
        assert metric(server, "sheaf_trace_spans_sent_total") == 0
        with Collector(away.port) as collector:
            collector.wait_for("GET", 1000)
            server.wait_for_log("traces are delivered again")
            collector.status = 400
            assert connection.call("SET", "k", "v") == b"OK"
            wait_until("a second line", lambda: server.log().count("traces are not delivered") == 2)
            collector.status = 200
            assert connection.call("ECHO", "back") == b"back"
            collector.wait_for("ECHO")
    assert server.log().count("traces are delivered again") == 2, server.log()


def test_a_collector_that_never_answers_holds_up_no_client_and_no_stop(new_server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        server = new_server(extra=("--otel-endpoint", url, "--otel-sample-ratio", "1")).start()
        with server.connect() as connection:
            for _ in range(3):
                pipeline(connection, [["GET", "missing"]] * 1000)
        accepted, _ = silent.accept()
        with accepted:
            assert call(server, "SET", "k", "v") == b"OK"
            assert server.stop() == 0


def test_the_last_spans_are_delivered_at_the_end(new_server, collector):
    server = new_server(extra=traced(collector)).start()
    assert call(server, "SET", "k", "v") == b"OK"
    assert server.stop() == 0
    assert len(collector.spans("SET")) == 1


def test_replicas_are_a_part_of_a_wait_and_copies_are_spans(new_server, collector, tmp_path):
    options = traced(collector)
    leader = new_server(extra=(*options, "--ack-timeout", "1")).start()
    assert call(leader, "SET", "k", "v") == b"OK"
    assert call(leader, "SAVE") == b"OK"
    [snapshot] = collector.wait_for("snapshot")
    assert snapshot.parent_id is None and snapshot.attributes["sheaf.snapshot.rows"] == 1
    follower = follower_of(new_server, leader, extra=options)
    collector.wait_for("replication.full_sync")
    assert call(leader, "CONFIG", "SET", "ack-replicas", "1") == b"OK"
    wait_until("acknowledged writes", lambda: call(leader, "SET", "k", "v2") == b"OK")
    assert call(leader, "HSET", "h", "f", "v") == 1
    [span] = collector.wait_for("HSET")
    assert check_parts(collector, span, "log.wait_for_replicas")[-2:] == ["log.write_and_sync", "log.wait_for_replicas"]
    follower.kill()
    assert error_of(call(leader, "SADD", "s", "m")).startswith("NOREPLICAS")
    [failed] = collector.wait_for("SADD")
    assert failed.error == "NOREPLICAS"
    assert call(leader, "CONFIG", "SET", "ack-replicas", "0") == b"OK"
    copied = run_sheaf("backup", str(tmp_path / "backup"), "--from", f"http://127.0.0.1:{leader.http_port}")
    assert copied.returncode == 0, copied.stderr
    # One for the follower, one for the backup.
    assert all(copy.attributes["sheaf.backup.bytes"] > 0 for copy in collector.wait_for("backup", 2))


def test_an_election_is_a_span(new_server, collector):
    servers = group_of(new_server, extra=traced(collector, ratio="0"))
    servers[0].kill()
    before = len(collector.spans("group.election"))
    leader = wait_leader(servers[1:])
    won = wait_until(
        "the election",
        lambda: [span for span in collector.spans("group.election")[before:] if span.attributes["sheaf.leads"]],
    )
    assert won[-1].parent_id is None and won[-1].attributes["sheaf.term"] > 1
    assert call(leader, "SET", "k", "v") == b"OK"


def test_without_an_endpoint_there_is_nothing(server):
    names = {(task / "comm").read_text().strip() for task in Path(f"/proc/{server.pid}/task").iterdir()}
    assert "traces" not in names and "log" in names
    assert error_of(call(server, "CONFIG", "SET", "otel-endpoint", "http://127.0.0.1:1")).startswith("ERR")


def test_wrong_values_are_refused(tmp_path):
    for option, value, reason in [
        ("--otel-endpoint", "https://collector", "must be a URL such as http://127.0.0.1:4318"),
        ("--otel-endpoint", "collector:4318", "must be a URL"),
        ("--otel-sample-ratio", "2", "must be a number from 0 to 1"),
    ]:
        refused = run_sheaf("--dir", str(tmp_path / "data"), *ANY_PORTS, option, value)
        assert refused.returncode == 2 and reason in refused.stderr, refused
    file = tmp_path / "sheaf.toml"
    file.write_text("otel-sample-ratio = 0.25\n")
    checked = run_sheaf("doctor", "--config", str(file), "--dir", str(tmp_path / "data"))
    assert "fine    settings     valid: dir, otel-sample-ratio\n" in checked.stdout, checked.stdout
