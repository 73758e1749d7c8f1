"""The parts of the chart that are more than an option: the definition, the key, the test, the notes."""

import ast
import base64
import shutil
import subprocess
import sys
from pathlib import Path

import crd_template
import pytest
import yaml
from chart_helm import CHART, LOADER, Helm, Object

from rlhf_operator.__main__ import main

DEFINITION = CHART.parents[1] / "crds/rlhf.dev_rlhfjobs.yaml"


def test_the_template_of_the_definition_is_up_to_date() -> None:
    assert crd_template.TEMPLATE.read_text() == crd_template.template(), "run `make golden`"


def test_the_definition_is_the_one_in_the_folder_crds(helm: Helm) -> None:
    (found,) = [found for found in helm.objects(crd=True) if found["kind"] == "CustomResourceDefinition"]
    want = yaml.load(DEFINITION.read_text(), LOADER)

    assert found["spec"] == want["spec"]
    assert found["metadata"]["name"] == want["metadata"]["name"]
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_description_with_braces_is_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    text = DEFINITION.read_text().replace("description: The version of this schema.", "description: like {{ this }}")
    monkeypatch.setattr(crd_template, "render", lambda: text)

    assert 'description: like {{ "{{" }} this }}' in crd_template.template()


def test_the_definition_need_not_be_kept(helm: Helm) -> None:
    (found,) = [
        found
        for found in helm.objects({"crds": {"keep": False}}, crd=True)
        if found["kind"] == "CustomResourceDefinition"
    ]

    assert "annotations" not in found["metadata"]


def test_the_definition_may_be_somebody_elses(helm: Helm) -> None:
    assert "CustomResourceDefinition" not in {found["kind"] for found in helm.objects()}


def test_the_key_is_long_random_and_outlives_the_release(helm: Helm) -> None:
    secrets = [next(found for found in helm.objects() if found["kind"] == "Secret") for _ in range(2)]
    keys = [base64.b64decode(secret["data"]["key"]) for secret in secrets]

    assert all(len(key) >= 32 and key == key.strip() for key in keys)
    assert keys[0] != keys[1]
    assert secrets[0]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert secrets[0]["immutable"] is True


def test_the_key_is_mounted_where_the_flag_says(helm: Helm) -> None:
    spec = next(found for found in helm.objects() if found["kind"] == "Deployment")["spec"]["template"]["spec"]
    (operator,) = spec["containers"]
    mount = next(mount for mount in operator["volumeMounts"] if mount["name"] == "key")
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "key")

    assert f"--key-file={mount['mountPath']}/{volume['secret']['items'][0]['path']}" in operator["args"]


@pytest.mark.parametrize(
    ("values", "want_watched"),
    [
        pytest.param({}, "", id="everywhere"),
        pytest.param({"scope": "Namespaced", "watchNamespaces": ["a", "b"]}, "a b", id="in two namespaces"),
    ],
)
def test_helm_test_runs_the_script_with_the_operators_rights(helm: Helm, values: Object, want_watched: str) -> None:
    pod = next(found for found in helm.objects(values) if found["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]

    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["serviceAccountName"] == "rlhf-operator"
    assert container["command"] == ["python", "-c"]
    assert container["env"] == [{"name": "WATCHED", "value": want_watched}]
    assert ast.parse(container["args"][0])
    done = subprocess.run(
        [sys.executable, *container["command"][1:], *container["args"]],
        env={"WATCHED": want_watched},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Service host/port is not set." in done.stderr, "outside a cluster it must get as far as asking for one"


@pytest.mark.parametrize(
    ("values", "want", "want_not"),
    [
        pytest.param(
            {}, ["examples/ppo-spelling.yaml", "`state.storageClass` is not set", "KubeRay"], [], id="defaults"
        ),
        pytest.param({}, ["in all namespaces", "rlhf-operator:0.1.0"], ["--namespace team"], id="what is watched"),
        pytest.param({"state": {"storageClass": "nfs"}}, [], ["state.storageClass"], id="with a storage class"),
        pytest.param({"imageRegistry": "r.io"}, [], ["without a registry"], id="with a registry"),
        pytest.param(
            {"scope": "Namespaced", "watchNamespaces": ["team-a"]},
            ["the namespaces team-a", "kubectl apply --namespace team-a -f", "rlhfjobs --watch"],
            ["all namespaces"],
            id="in one namespace",
        ),
        pytest.param({"crds": {"enabled": False}}, ["must keep it in step"], [], id="without the definition"),
        pytest.param({"crds": {"enabled": True}}, [], ["must keep it in step"], id="with the definition"),
    ],
)
def test_the_notes_tell_the_next_step_and_what_is_missing(
    helm: Helm, values: Object, want: list[str], want_not: list[str]
) -> None:
    notes = helm.notes(values)

    assert [text for text in want if text not in notes] == []
    assert [text for text in want_not if text in notes] == []
    assert max(map(len, notes.splitlines())) <= 160


@pytest.mark.parametrize(
    ("served", "want_warning"),
    [pytest.param("ray.io/v1", False, id="where it is"), pytest.param("batch/v1", True, id="where it is not")],
)
def test_the_notes_ask_for_kuberay(helm: Helm, tmp_path: Path, served: str, want_warning: bool) -> None:
    # Helm shows notes only of an install, to which it cannot be said what the cluster serves.
    chart = Path(shutil.copytree(CHART, tmp_path / "chart"))
    (chart / "templates/NOTES.txt").rename(chart / "files/notes.txt")
    (chart / "templates/notes.yaml").write_text('notes: {{ tpl (.Files.Get "files/notes.txt") . | quote }}\n')

    done = helm.run("template", str(chart), f"--api-versions={served}", "--show-only=templates/notes.yaml")

    assert ("helm install kuberay-operator" in yaml.safe_load(done.stdout)["notes"]) == want_warning


def test_every_flag_and_variable_is_one_of_the_operator(helm: Helm, tmp_path: Path) -> None:
    values = {
        "scope": "Namespaced",
        "watchNamespaces": ["a", "b"],
        "worker": {"image": {"pullPolicy": "Always"}},
        "state": {"storageClass": "nfs"},
        "jobs": {"podMonitors": {"enabled": True, "labels": {"release": "p"}}},
    }
    spec = next(found for found in helm.objects(values) if found["kind"] == "Deployment")["spec"]["template"]["spec"]
    (operator,) = spec["containers"]
    key = tmp_path / "key"
    key.write_text("k" * 64)
    flags = [f"--key-file={key}" if flag.startswith("--key-file=") else flag for flag in operator["args"]]

    taken = main.make_context("rlhf-operator", flags).params

    assert taken["namespaces"] == ("a", "b")
    assert taken["pod_monitor_labels"] == ("release=p",)
    assert taken["state_storage_class"] == "nfs"
    known = {f"RLHF_OPERATOR_{parameter.name.upper()}" for parameter in main.params if parameter.name}
    assert {variable["name"] for variable in operator["env"]} <= known
