"""Jobs as the API server gives them, and what tests read of rendered objects."""

from pathlib import Path
from typing import Any

import yaml

from rlhf_api import in_pod
from rlhf_api.types import RLHFJob
from rlhf_api.validation import load_job
from rlhf_operator.config import Settings
from rlhf_operator.manifests import raycluster
from rlhf_operator.manifests.controller_job import controller_job

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SETTINGS = Settings(worker_image="rlhf-worker:1", key=b"k" * 32, state_storage_class="shared", pod_monitors=True)
SERVER_SIDE = {
    "namespace": "lab",
    "uid": "5f0c0f3e-0000-4000-8000-000000000001",
    "generation": 1,
    "creation_timestamp": "2026-11-30T08:00:00Z",
}


def read(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    return manifest


SMALL: dict[str, Any] = {
    "apiVersion": "rlhf.dev/v1alpha1",
    "kind": "RLHFJob",
    "metadata": {"name": "job"},
    "spec": {
        "algorithm": {"name": "GRPO", "totalSteps": 4},
        "model": {"builtin": {"name": "spelling-tiny"}},
        "data": {"procedural": {"dataset": "spell_backward"}},
        "roles": [
            {"name": "actor", "type": "Actor"},
            {"name": "reward", "type": "Rule"},
            {"name": "reference", "type": "Reference", "colocateWith": "actor"},
        ],
    },
}


def job_of(manifest: dict[str, Any], **metadata: Any) -> RLHFJob:
    """The job of a manifest once it is in the API server."""
    job = load_job(yaml.safe_dump(manifest), source="test")
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={**SERVER_SIDE, **metadata})})


def group_of(ray_cluster: dict[str, Any], name: str) -> dict[str, Any]:
    """A worker group, or the head group."""
    if name == "headgroup":
        return ray_cluster["spec"]["headGroupSpec"]
    return next(group for group in ray_cluster["spec"]["workerGroupSpecs"] if group["groupName"] == name)


def template_of(job: RLHFJob, name: str, settings: Settings = SETTINGS) -> dict[str, Any]:
    """The pod template of a role, `headgroup` or `controller`."""
    if name == "controller":
        return controller_job(job, settings)["spec"]["template"]
    return group_of(raycluster.ray_cluster(job, settings), name)["template"]


def container_of(template: dict[str, Any]) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    return container


def env_of(template: dict[str, Any]) -> dict[str, Any]:
    """The variables of a template's container by name: the value, or where it comes from."""
    variables = container_of(template)["env"]
    assert len({variable["name"] for variable in variables}) == len(variables), "a variable is there twice"
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def state_of(template: dict[str, Any]) -> str:
    return env_of(template)[in_pod.STATE_VARIABLE]
