"""The HTTP port: health and metrics."""

import json
import urllib.error
import urllib.request

import pytest

pytestmark = pytest.mark.sheaf_only


def _get(server, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=60) as response:
        assert response.status == 200
        return response.read().decode()


def _metrics(server) -> dict[str, float]:
    """Sample name with labels -> value."""
    lines = [line for line in _get(server, "/metrics").splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_up(server):
    assert json.loads(_get(server, "/_up"))["status"] == "ok"


def test_unknown_paths_are_not_found(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(server, "/nothing")
    assert refused.value.code == 404
    refused.value.close()


def test_metrics_follow_the_work(server):
    before = _metrics(server)
    with server.connect() as connection:
        for number in range(50):
            assert connection.call("SET", f"k{number}", "v") == b"OK"
        after = _metrics(server)
    assert after["sheaf_log_records_total"] >= before["sheaf_log_records_total"] + 50
    assert after["sheaf_log_syncs_total"] > before["sheaf_log_syncs_total"]
    keys = [value for name, value in after.items() if name.startswith("sheaf_keys")]
    assert sum(keys) == 50
