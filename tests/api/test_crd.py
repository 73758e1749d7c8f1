"""The CRD file: same bytes as the types, columns that fit, defaults and rules where they belong."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_api import crd
from rlhf_api.enums import AlgorithmName
from rlhf_api.names import MAX_JOB_NAME_LENGTH

FILE = Path(__file__).parents[2] / "crds" / crd.FILE_NAME


ROOT = crd.root_schema()


def at(path: str) -> Any:
    schema: Any = ROOT
    for part in path.split("."):
        schema = schema["properties"][part.removesuffix("[]")]
        schema = schema["items"] if part.endswith("[]") else schema
    return schema


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == crd.render(), "renew it with `make golden`"


def test_the_file_can_be_applied_by_the_client() -> None:
    """`kubectl apply` keeps a copy of the object in an annotation, which ends at 262,144 bytes."""
    assert len(json.dumps(crd.crd())) < 200_000


def test_status_is_a_subresource() -> None:
    (version,) = crd.crd()["spec"]["versions"]
    assert version["subresources"] == {"status": {}}


def test_kubectl_get_fits_120_columns() -> None:
    widest = {
        "Algorithm": max(len(name) for name in AlgorithmName),
        "Summary": at("status.summary")["maxLength"],
        "Step": len(str(at("status.progress.step")["maximum"])),
        "Reward": at("status.progress.reward")["maxLength"],
        "Ready": at("status.rolesReady")["maxLength"],
        "Restarts": 4,
        "Age": len("364d23h"),
    }
    (version,) = crd.crd()["spec"]["versions"]
    columns = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert columns == list(widest)
    gap = 3
    widths = [MAX_JOB_NAME_LENGTH, *(max(len(name), widest[name]) for name in columns)]
    assert sum(widths) + gap * len(columns) <= 120


@pytest.mark.parametrize(
    ("path", "key", "want"),
    [
        ("spec.algorithm.schedule", "default", "Synchronous"),
        ("spec.roles[].restartPolicy", "default", {}),
        ("spec.roles[].restartPolicy.backoff.baseSeconds", "default", 5),
        ("spec.roles[].resources.accelerators.name", "default", "nvidia.com/gpu"),
        ("spec.roles[].colocateWith", "default", None),
        ("spec.algorithm.ppo", "default", None),
        ("spec.roles", "x-kubernetes-list-map-keys", ["name"]),
        ("spec.roles[].resources.memory", "x-kubernetes-int-or-string", True),
        ("spec.algorithm.grpo.groupSize", "minimum", 2),
        ("spec.algorithm.ppo.clipRange", "exclusiveMinimum", True),
        ("metadata.name", "maxLength", 40),
    ],
)
def test_says(path: str, key: str, want: Any) -> None:
    assert at(path).get(key) == want


def test_columns_show_fields_that_exist() -> None:
    (version,) = crd.crd()["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".").replace('[?(@.type=="Failed")]', "[]")
        assert path == "metadata.creationTimestamp" or at(path)["type"] == column["type"], path


def immutable_fields(schema: Any) -> set[str]:
    return {
        rule["fieldPath"].removeprefix(".")
        for rule in schema.get("x-kubernetes-validations", ())
        if "oldSelf" in rule["rule"] and "immutable" in rule["message"]
    }


@pytest.mark.parametrize(
    ("path", "changeable"),
    [
        ("spec.algorithm", {"totalSteps", "evaluation"}),
        (
            "spec.roles[]",
            {"name", "replicas", "resources", "nodePool", "image", "pod", "restartPolicy"},
        ),
        ("spec.state", {"snapshotEverySteps", "keep"}),
    ],
)
def test_only_these_can_be_changed(path: str, changeable: set[str]) -> None:
    assert set(at(path)["properties"]) - immutable_fields(at(path)) == changeable


def test_the_set_of_roles_the_model_and_the_data_cannot_be_changed() -> None:
    assert immutable_fields(at("spec")) == {"roles", "model", "data", "managedBy"}
