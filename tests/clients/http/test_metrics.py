"""Metrics, as Prometheus' own parsers read them, in both forms."""

import math
from collections import defaultdict

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text

pytestmark = pytest.mark.sheaf_only

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"


def _families(couch, parser, accept: str):
    answer = couch.get("/metrics", Accept=accept)
    body = answer.body.decode()
    return answer.headers["Content-Type"], {family.name: family for family in parser.text_string_to_metric_families(body)}


def _by_labels(family) -> dict[tuple, list]:
    """The samples of each histogram of a family: those whose labels differ in the bound only."""
    groups = defaultdict(list)
    for sample in family.samples:
        groups[tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))].append(sample)
    return groups


def _check(families) -> None:
    histograms = [family for family in families.values() if family.type == "histogram"]
    assert {family.name for family in histograms} >= {"sheaf_log_flush_seconds", "sheaf_log_batch_records"}
    for samples in (samples for family in histograms for samples in _by_labels(family).values()):
        bounds = [float(sample.labels["le"]) for sample in samples if sample.name.endswith("_bucket")]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf
        total = [sample.value for sample in samples if sample.labels.get("le") == "+Inf"]
        assert total == [sample.value for sample in samples if sample.name.endswith("_count")]
    reasons = {sample.labels["reason"]: sample.value for sample in families["sheaf_read_only"].samples}
    assert reasons.keys() >= {"replica", "disk_full", "log_failed"} and not any(reasons.values())


def test_openmetrics(couch):
    content_type, families = _families(couch, openmetrics, OPENMETRICS)
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    _check(families)
    assert families["sheaf_log_records"].type == "counter"


@pytest.mark.parametrize("accept", ["", "text/plain; version=0.0.4", "*/*"])
def test_plain_text(couch, accept):
    content_type, families = _families(couch, text, accept)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    _check(families)
    # The parser strips `_total` from the name of a counter's family.
    assert families["sheaf_log_records"].type == "counter"
    assert not [family.name for family in families.values() if family.type in ("unknown", "untyped")]


def test_both_forms_have_the_same_samples(couch):
    _, one = _families(couch, openmetrics, OPENMETRICS)
    _, other = _families(couch, text, "text/plain")

    def samples(families):
        return {(sample.name, *sorted(sample.labels.items())) for family in families.values() for sample in family.samples}

    assert samples(one) == samples(other)
