"""Compose file, Helm chart and workflows: they can be read, and name only settings that exist."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.server import ROOT, run_sheaf

pytestmark = pytest.mark.sheaf_only

PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm/sheaf"


@pytest.fixture(scope="module")
def variables() -> set[str]:
    """The variables of all settings."""
    flags = re.findall(r"^ +--([a-z-]+) \[?<", run_sheaf("--help").stdout, re.MULTILINE)
    assert "group-host" in flags
    return {f"SHEAF_{flag.replace('-', '_').upper()}" for flag in flags}


def test_the_members_of_the_compose_file_are_one_group(variables):
    compose = yaml.safe_load((PACKAGING / "container/compose.yaml").read_text())
    members = {name: service for name, service in compose["services"].items() if name.startswith("sheaf-")}
    assert len(members) == 3
    for name, member in members.items():
        given = member["environment"]
        assert set(given) <= variables
        assert given["SHEAF_GROUP_HOST"] == name and given["SHEAF_REQUIREPASS"] == given["SHEAF_MASTERAUTH"]
        # The founder joins once SHEAF_FOUNDED is set, so that it never founds a second group.
        founder = "${SHEAF_FOUNDED:+sheaf-2:6379}"
        assert given["SHEAF_JOIN"] == (founder if name == "sheaf-1" else "sheaf-1:6379")
    here = PACKAGING / "container"
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (here / source).is_file(), volume
        if "build" in service:
            context = here / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file() and (context / "Cargo.toml").is_file()
    scraped = yaml.safe_load((PACKAGING / "monitoring/prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"{name}:5984" for name in members]


def test_the_container_has_settings_that_exist(variables):
    text = (PACKAGING / "container/Containerfile").read_text()
    named = set(re.findall(r"(SHEAF_[A-Z_]+)=", text)) - {"SHEAF_COMMIT"}
    assert named and named <= variables


def test_workflows_and_chart_can_be_read():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        # In YAML 1.1, "on" is a boolean.
        assert {"name", "jobs", True} <= set(yaml.safe_load(path.read_text())), path
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = run_sheaf("--version").stdout.split()[1]
    assert chart["version"] == chart["appVersion"] == version
    for uses in re.findall(r"\.Values\.([A-Za-z.]+)", "".join(path.read_text() for path in CHART.glob("templates/*"))):
        value = yaml.safe_load((CHART / "values.yaml").read_text())
        for word in uses.rstrip(".").split("."):
            assert word in value, uses
            value = value[word]


def helm() -> Path | None:
    """From PATH, or where `go install helm.sh/helm/v3/cmd/helm@v3.19.5` puts it."""
    found = shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go/bin"))
    return Path(found) if found else None


def rendered(*values: str, as_in_a_file: str = "") -> list[dict]:
    given = [word for value in values for word in ("--set", value)]
    if as_in_a_file:
        given += ["--set-json", as_in_a_file]
    # A helm built by "go install" takes the cluster for an old one.
    command = [helm(), "template", "--kube-version", "1.30.0", "shop", CHART, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def environments(documents: list[dict]) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each set of pods, and its variables."""
    for document in documents:
        if document["kind"] == "StatefulSet":
            variables = document["spec"]["template"]["spec"]["containers"][0]["env"]
            yield document["metadata"]["name"], {one["name"]: one.get("value", "") for one in variables}


@pytest.mark.skipif(helm() is None, reason="helm not installed")
def test_the_chart_is_a_group_or_a_server_alone(variables):
    subprocess.run([helm(), "lint", "--strict", CHART, "--set", "password=x"], check=True, capture_output=True)
    group = rendered("password=x", "settings.maxmemory=3gb", "settings.http-redirect=true")
    sets = dict(environments(group))
    assert set(sets) == {"shop-first", "shop-others"}
    for given in sets.values():
        assert set(given) - {"POD_NAME"} <= variables
        assert (given["SHEAF_MAXMEMORY"], given["SHEAF_HTTP_REDIRECT"]) == ("3gb", "true")
        assert given["SHEAF_GROUP_HOST"] == "$(POD_NAME).shop-members.default.svc"
    # A number of a file of values is a float to Helm.
    numbers = dict(environments(rendered("password=x", as_in_a_file='settings={"maxmemory":3221225472,"audit":true}')))
    for given in numbers.values():
        assert (given["SHEAF_MAXMEMORY"], given["SHEAF_AUDIT"]) == ("3221225472", "true")
    # Two sets that both roll would leave a group of three without a majority.
    strategies = [one["spec"]["updateStrategy"] for one in group if one["kind"] == "StatefulSet"]
    assert strategies == [{"type": "OnDelete"}] * 2
    assert "SHEAF_JOIN" not in sets["shop-first"]
    assert sets["shop-others"]["SHEAF_JOIN"] == "shop-first-0.shop-members.default.svc:6379"
    sizes = {one["metadata"]["name"]: one["spec"]["replicas"] for one in group if one["kind"] == "StatefulSet"}
    assert sizes == {"shop-first": 1, "shop-others": 2}
    founded = dict(environments(rendered("password=x", "founded=true")))
    assert founded["shop-first"]["SHEAF_JOIN"] == "shop-others-0.shop-members.default.svc:6379"

    alone = rendered("password=x", "members=1")
    assert [name for name, given in environments(alone) if "SHEAF_GROUP" not in given] == ["shop-first"]
    assert "PodDisruptionBudget" not in {one["kind"] for one in alone}
    for refused in (["members=2", "password=x"], ["members=3"]):
        with pytest.raises(AssertionError, match="members|password"):
            rendered(*refused)
