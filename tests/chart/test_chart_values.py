"""What the chart takes, what it refuses, and that all of it is documented."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from chart_helm import CHART, Helm, Object

from rlhf_operator.config import ProcessSettings, Settings

PROJECT = CHART.parents[1]
FREE = {"podSecurityContext", "securityContext", "affinity", "resources", "livenessProbe", "readinessProbe", "global"}
"""Kubernetes' own types: what is in them is not all listed in values.yaml."""


def test_lint_finds_nothing(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({"replica": 2}, "'replica' not allowed", id="a misspelled setting"),
        pytest.param({"image": {"name": "x"}}, "'name' not allowed", id="one in a group"),
        pytest.param({"worker": {"image": {"registry": "x"}}}, "'registry' not allowed", id="one deeper down"),
        pytest.param({"livenessProbe": {"period": 3}}, "'period' not allowed", id="one of a probe"),
        pytest.param({"scope": "Node"}, "'Cluster', 'Namespaced'", id="an unknown scope"),
        pytest.param({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy", id="an unknown pull policy"),
        pytest.param({"image": {"digest": "sha256:12"}}, "/image/digest", id="a digest that is none"),
        pytest.param({"replicas": "two"}, "/replicas", id="a word for a number"),
        pytest.param({"metrics": {"port": 80}}, "/metrics/port", id="a port that only root can open"),
        pytest.param(
            {"state": {"accessMode": "ReadOnlyMany"}}, "/state/accessMode", id="a mode that cannot be written"
        ),
        pytest.param({"state": {"size": "10 GB"}}, "/state/size", id="a size with a space"),
        pytest.param({"watchNamespaces": ["Team"]}, "/watchNamespaces/0", id="a name that no namespace has"),
        pytest.param({"reconcile": {"resyncSeconds": 1}}, "/reconcile/resyncSeconds", id="looks without a pause"),
        pytest.param({"crds": {"enabled": "no"}}, "/crds/enabled", id="a word for a switch"),
        pytest.param({"commonLabels": {"a": 1}}, "/commonLabels/a", id="a label that is a number"),
    ],
)
def test_the_schema_refuses(helm: Helm, values: Object, want: str) -> None:
    assert want in helm.refusal(values)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({"watchNamespaces": ["a"]}, "set `scope: Namespaced`", id="namespaces with cluster scope"),
        pytest.param(
            {"replicas": 2, "leaderElection": {"enabled": False}}, "`leaderElection.enabled` must", id="two at once"
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
            "twice",
            id="two monitors",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}},
            "`metrics.service.enabled` must",
            id="a monitor of no Service",
        ),
        pytest.param({"metrics": {"port": 8080}}, "must differ, both are 8080", id="one port for two things"),
        pytest.param({"serviceAccount": {"create": False}}, "`serviceAccount.name` must", id="the default account"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_way_out(helm: Helm, values: Object, want: str) -> None:
    assert want in helm.refusal(values)


def test_every_setting_is_in_the_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(_leaves(values)) == set(_described(schema, schema))


def test_every_setting_is_explained_in_place() -> None:
    settings = set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    lines = (CHART / "values.yaml").read_text().splitlines()
    path: list[str] = []
    explained = set()
    for before, line in zip(["", *lines], lines, strict=False):
        if match := re.match(r"( *)(\w+):", line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if before.lstrip().startswith("#"):
                explained.add(".".join(path))

    assert settings - explained == set()


@pytest.mark.parametrize(
    "page", ["install.md", "upgrading.md", "rbac.md", "../charts/rlhf-operator/templates/NOTES.txt"]
)
def test_the_settings_that_a_page_names_exist(page: str) -> None:
    settings = set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    text = (PROJECT / "docs" / page).read_text()
    named = set(re.findall(r"(?:--set '?|,|`)([a-z]\w+(?:\.\w+)*)=", text))
    named |= set(re.findall(rf"`((?:{'|'.join({name.partition('.')[0] for name in settings})})\.[\w.]+)`", text))

    assert named, "the page must name settings for this test to mean anything"
    assert {name for name in named if not name.startswith(("podSecurityContext.", "jobs.podMonitors"))} <= settings


def test_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lock = (PROJECT / "requirements/runtime.txt").read_text()

    assert chart["version"] == chart["appVersion"] == project["version"]
    assert re.findall(r"^ray(?:\[\w+\])?==(\S+)", lock, re.MULTILINE) == [values["worker"]["rayVersion"]]


def test_defaults_are_those_of_the_operator() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    want = Settings(worker_image="any")

    assert values["worker"]["rayVersion"] == want.ray_version
    assert values["state"]["accessMode"] == want.state_access_mode
    assert values["state"]["size"] == want.state_size
    assert (values["state"]["storageClass"] or None) == want.state_storage_class
    assert values["jobs"]["networkPolicies"] == want.network_policies
    assert values["jobs"]["podMonitors"] == {"enabled": want.pod_monitors, "labels": dict(want.pod_monitor_labels)}
    process = ProcessSettings(identity="any")
    assert (values["metrics"]["port"], values["health"]["port"]) == (process.metrics_port, process.health_port)
    assert values["leaderElection"] == {"enabled": process.leader_election}
    assert values["reconcile"] == {"resyncSeconds": want.resync_seconds, "progressSeconds": want.progress_seconds}


def _leaves(values: Object, path: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _described(schema: Any, root: Object, path: str = "") -> Iterator[str]:
    for key, found in schema["properties"].items():
        while "$ref" in found or "allOf" in found:
            found = root["definitions"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found["allOf"][0]
        if key == "global":  # Helm's own
            continue
        if "properties" in found and key not in FREE:
            yield from _described(found, root, f"{path}{key}.")
        else:
            yield f"{path}{key}"
