"""The dashboard and the rules for alerts: queries that can be parsed, over metrics that the server has."""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from harness.certificates import Certificates
from harness.groups import group_of
from harness.server import ROOT, Server, free_port
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

MONITORING = ROOT / "packaging/monitoring"
# Of Prometheus itself, for each server that it asks.
OF_PROMETHEUS = {"up"}


def alerts() -> list[dict]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict]:
    return [panel for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """The title and query of every panel and alert; variables of Grafana have values that Prometheus takes."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


def selectors(expression: object) -> Iterator[object]:
    """The selectors of metrics below a node of the parsed query."""
    if hasattr(expression, "matchers") and hasattr(expression, "name"):
        yield expression
    for part in ("lhs", "rhs", "expr", "vector_selector", "param"):
        if (below := getattr(expression, part, None)) is not None:
            yield from selectors(below)
    for argument in getattr(expression, "args", None) or []:
        yield from selectors(argument)


def metrics(server: Server) -> dict[str, list[dict[str, str]]]:
    """The names of all series, and the labels of each."""
    with urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        found: dict[str, list[dict[str, str]]] = {}
        for family in families:
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """The metrics of all queries, with the labels that they are selected by."""
    found: dict[str, set[str]] = {}
    for title, query in queries():
        named = list(selectors(promql_parser.parse(query)))
        assert named, f"{title}: no metric in {query}"
        for selector in named:
            labels = {matcher.name for matcher in selector.matchers.matchers}
            found.setdefault(selector.name, set()).update(labels - {"job", "instance"})
    return found


def test_every_metric_of_dashboard_and_alerts_exists(new_server: Callable[..., Server], tmp_path: Path, used):
    """In a group and a server with TLS, which have them all: the metrics of replicas are on followers."""
    leader, *followers = group_of(new_server)
    encrypted = new_server(extra=Certificates(tmp_path / "tls").server_flags(free_port())).start()
    with leader.connect() as connection:
        connection.call("SET", "k", "v")

    def missing() -> list[str]:
        found = [metrics(server) for server in (leader, *followers, encrypted)]
        shown = {name: [labels for of_one in found for labels in of_one.get(name, [])] for name in used}
        return [
            f"{name} {sorted(labels)}"
            for name, labels in used.items()
            if name not in OF_PROMETHEUS and not any(labels <= set(of_series) for of_series in shown[name])
        ]

    # A replica is listed once it has acknowledged something.
    with contextlib.suppress(AssertionError):
        wait_until("all metrics that are used", lambda: not missing())
    assert missing() == []


def test_legends_name_labels_that_exist(server: Server):
    known = {"instance", "replica"}.union(*(set(labels) for series in metrics(server).values() for labels in series))
    for panel in panels():
        for target in panel["targets"]:
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, target


def test_alerts_say_what_to_do():
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 10
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"] and rule["annotations"]["action"].endswith(".")


def test_the_dashboard_is_what_its_script_writes():
    done = subprocess.run([ROOT / "packaging/dashboard", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places = [panel["gridPos"] for panel in panels()]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids) > 20
    assert all(panel["description"] for panel in panels())


def promtool() -> str | None:
    """From PATH, or where `go install github.com/prometheus/prometheus/cmd/promtool@latest` puts it."""
    return shutil.which("promtool") or shutil.which("promtool", path=str(Path.home() / "go/bin"))


@pytest.mark.skipif(promtool() is None, reason="promtool not installed")
def test_promtool_takes_the_rules_and_the_metrics(server: Server):
    subprocess.run([promtool(), "check", "rules", MONITORING / "alerts.yml"], check=True, capture_output=True)
    with urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        done = subprocess.run([promtool(), "check", "metrics"], input=answer.read(), capture_output=True, check=False)
    assert b"error while linting" not in done.stderr, done.stderr
