"""The CustomResourceDefinition before its judge: the API server and `rlhf validate` say the same of every manifest.

The tables are those of tests/api. Requests are dry runs with strict field validation, which check all that a real one
does; where an object must live, it is managed by nobody, so that no operator acts on it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_manifests import BAD
from good_manifests import GOOD
from manifest_cases import PPO, Case, UpdateCase, edited
from manifest_updates import UPDATES

from e2e.cluster import kubectl
from e2e.cluster.api import call, is_ready
from e2e.cluster.errors import CommandError, RefusedError
from e2e.cluster.paths import PROJECT
from e2e.lab import Lab
from rlhf_api.errors import InvalidManifestError
from rlhf_api.validation import load_job

FILE = PROJECT / "crds" / "rlhf.dev_rlhfjobs.yaml"
CRD = "crd/rlhfjobs.rlhf.dev"
NOBODY = "example.com/nobody"
EXAMPLES = sorted((PROJECT / "examples").glob("*.yaml"))
LEVELS = ("", ".spec", ".spec.algorithm.ppo", ".spec.roles", ".spec.roles.restartPolicy.rules", ".status.conditions")


@pytest.fixture(scope="module")
def lab(module_lab: Lab) -> Iterator[Lab]:
    """A cluster that has the CRD; it is taken away again if it was not there before."""
    was_there = module_lab.find(CRD) is not None
    module_lab.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={FILE}")
    module_lab.kubectl("wait", CRD, "--for=condition=Established", "--timeout=30s")
    module_lab.wait("rlhfjobs are served", lambda: module_lab.get("rlhfjobs")["kind"] == "List")
    yield module_lab
    if not was_there:
        module_lab.kubectl("delete", CRD, "--timeout=60s")


def send(lab: Lab, manifest: Any, *, method: str = "POST", dry: bool = True) -> Any:
    """Create or replace an RLHFJob; returns it as the API server gives it."""
    path = f"/apis/rlhf.dev/v1alpha1/namespaces/{lab.namespace}/rlhfjobs"
    if method != "POST":
        path += f"/{manifest['metadata']['name']}"
    return call(f"{path}?fieldValidation=Strict{'&dryRun=All' if dry else ''}", method=method, body=manifest)


def named_fields(refusal: RefusedError) -> list[str]:
    """The fields that the API server names."""
    causes = refusal.status.get("details", {}).get("causes", [])
    unknown = re.findall(r'unknown field "([^"]+)"', refusal.status.get("message", ""))
    return [cause["field"] for cause in causes if cause.get("field")] + unknown


def is_named(field: str, named: list[str]) -> bool:
    """Whether the field itself, or the list item or list right around it, is among those that are named."""
    around = {field, re.sub(r"\.[^.\[\]]+$", "", field), re.sub(r"(\[\d+\]).*$", r"\1", field)}
    around |= {re.sub(r"\[\d+\]$", "", name) for name in set(around)}
    return bool((around - {"spec"} | {field}) & set(named))


def test_the_api_server_takes_the_definition_and_serves_it(lab: Lab) -> None:
    found = lab.get(CRD)
    assert is_ready(found, "Established")
    assert is_ready(found, "NamesAccepted")
    assert not is_ready(found, "NonStructuralSchema")


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.id)
def test_both_accept(lab: Lab, case: Case) -> None:
    load_job(case.text, source="job.yaml")
    send(lab, case.manifest)


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.id)
def test_both_refuse_and_name_the_field(lab: Lab, case: Case) -> None:
    with pytest.raises(InvalidManifestError) as offline:
        load_job(case.text, source="job.yaml")
    assert case.want_field in [error.field for error in offline.value.errors]
    with pytest.raises(RefusedError) as online:
        send(lab, case.manifest)
    assert is_named(case.want_field, named_fields(online.value)), online.value.status


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.id)
def test_both_fill_in_the_same_defaults(lab: Lab, case: Case) -> None:
    offline = load_job(case.text, source="job.yaml").to_manifest()["spec"]
    assert bare(send(lab, case.manifest)["spec"]) == bare(offline)


def bare(value: Any) -> Any:
    """A value without what is empty, which is the same as absent, and with quantities as their text."""
    if isinstance(value, dict):
        kept = {name: bare(item) for name, item in value.items()}
        return {
            name: str(item) if name in ("cpu", "rdma/ib") else item
            for name, item in kept.items()
            if item not in ({}, [], None, "")
        }
    return [bare(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.id)
def test_an_update_is_judged(lab: Lab, case: UpdateCase) -> None:
    old = edited(case.base, {"spec.managedBy": NOBODY})
    living = send(lab, old, dry=False)
    try:
        changed = edited(old, case.set)
        changed["metadata"]["resourceVersion"] = living["metadata"]["resourceVersion"]
        if not case.want_field:
            send(lab, changed, method="PUT")
            return
        with pytest.raises(RefusedError) as refused:
            send(lab, changed, method="PUT")
        want = {case.want_field, *case.want_too}
        assert set(named_fields(refused.value)) == want, refused.value.status
        assert "immutable" in refused.value.status["message"]
    finally:
        lab.kubectl("delete", "rlhfjob", old["metadata"]["name"])


def test_a_refusal_reads_well(lab: Lab) -> None:
    wrong = edited(PPO, {"spec.roles[1]": {"name": "critic", "type": "Critic", "replicas": 2}})
    with pytest.raises(CommandError) as refused:
        lab.kubectl("create", "--filename=-", stdin=json.dumps(wrong))
    assert (
        "spec.roles[1].replicas: Invalid value: must be 1 for an Actor or Critic; give it more pods with "
        "`podsPerReplica`" in refused.value.output
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted(lab: Lab, path: Path) -> None:
    answer = lab.kubectl("create", "--dry-run=server", "--validate=strict", f"--filename={path}")
    assert answer.strip() == f"rlhfjob.rlhf.dev/{path.stem} created (server dry run)"


def test_every_field_is_explained(lab: Lab) -> None:
    schemas = call("/openapi/v3/apis/rlhf.dev/v1alpha1")["components"]["schemas"]
    fields = dict(described(schemas["dev.rlhf.v1alpha1.RLHFJob"], "rlhfjob"))
    assert len(fields) > 200
    assert [path for path, description in fields.items() if not description] == []


def described(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    for name, child in schema.get("properties", {}).items():
        if path == "rlhfjob" and name not in ("spec", "status"):
            continue
        yield f"{path}.{name}", child.get("description", "")
        yield from described(child.get("items", child), f"{path}.{name}")


@pytest.mark.parametrize("level", LEVELS)
def test_kubectl_explain_tells_of_a_level(lab: Lab, level: str) -> None:
    text = lab.kubectl("explain", f"rlhfjob{level}")
    description, fields = text.split("DESCRIPTION:")[1].split("FIELDS:")
    assert len(description.split()) > 3
    entries = re.split(r"\n  (?=\S)", fields.strip())
    assert [entry for entry in entries if len(entry.split()) < 3] == []


STATUS = {
    "summary": "ShuttingDownSlow",
    "rolesReady": "16/16",
    "restarts": 1000,
    "progress": {"step": 999_999, "reward": "-123.45", "evaluation": "0.9453", "snapshotStep": 999_990},
    "conditions": [
        {
            "type": "Failed",
            "status": "False",
            "reason": "RestartsExhausted",
            "message": "role critic",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


@pytest.fixture
def shown(lab: Lab) -> Iterator[Lab]:
    """A job that has the longest of everything that `kubectl get` shows."""
    name = "n" * 40
    send(lab, edited(PPO, {"metadata.name": name, "spec.managedBy": NOBODY}), dry=False)
    lab.kubectl(
        "patch", "rlhfjob", name, "--subresource=status", "--type=merge", f"--patch={json.dumps({'status': STATUS})}"
    )
    yield lab
    lab.kubectl("delete", "rlhfjob", name)


def test_kubectl_get_fits_120_columns_and_tells_the_state(shown: Lab) -> None:
    head, row = shown.kubectl("get", "rlhfjobs").splitlines()
    assert head.split() == ["NAME", "ALGORITHM", "SUMMARY", "STEP", "REWARD", "READY", "RESTARTS", "AGE"]
    assert row.split()[:7] == ["n" * 40, "PPO", "ShuttingDownSlow", "999999", "-123.45", "16/16", "1000"]
    assert max(len(head.rstrip()), len(row.rstrip())) <= 120


def test_kubectl_get_wide_tells_more(shown: Lab) -> None:
    head, row = shown.kubectl("get", "rlhf", "--output=wide").splitlines()
    assert head.split()[-4:] == ["STEPS", "EVALUATION", "SNAPSHOT", "FAILURE"]
    assert row.split()[-4:] == ["40", "0.9453", "999990", "RestartsExhausted"]


def test_kubectl_wait_sees_a_condition(shown: Lab) -> None:
    shown.kubectl("wait", "rlhfjob", "--all", "--for=condition=Failed=False", "--timeout=10s")


def test_the_definition_can_be_applied_by_the_client_too(lab: Lab) -> None:
    """`kubectl apply` without `--server-side` keeps a copy in an annotation, which must be small enough."""
    assert "rlhfjobs.rlhf.dev" in kubectl.kubectl("apply", "--dry-run=server", f"--filename={FILE}")
