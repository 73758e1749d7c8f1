"""A job from the example with small edits, and the settings it is planned with."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml"
START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def settings(**changes: Any) -> Settings:
    """Settings of an operator that makes claims for jobs."""
    return Settings(**{"worker_image": "worker:1", "key": b"k" * 32, "state_storage_class": "shared", **changes})


def a_job(*, roles: dict[str, dict[str, Any]] | None = None, status: Any = None, **spec: Any) -> RLHFJob:
    """The example's job as the API server gives it.

    Args:
        roles: Changes to roles, by name, in the manifest's words.
        status: Its status.
        spec: Changes to the spec, in the manifest's words.
    """
    manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["metadata"] |= {
        "namespace": "team",
        "uid": "job-uid",
        "generation": 1,
        "creationTimestamp": "2026-11-30T12:00:00Z",
    }
    manifest["spec"] |= spec
    for role in manifest["spec"]["roles"]:
        role["nodePool"] = {"nodeSelector": {"pool": role["name"]}}
        role |= (roles or {}).get(role["name"], {})
    job = RLHFJob.model_validate_json(json.dumps(manifest))
    return job.model_copy(update={"status": status})


def edited(job: RLHFJob, *, annotations: dict[str, str] | None = None, roles: Any = None, **spec: Any) -> RLHFJob:
    """The job after a user's edit, with the next generation."""
    manifest = job.to_manifest()
    manifest["spec"] |= spec
    for role in manifest["spec"]["roles"]:
        role |= (roles or {}).get(role["name"], {})
    manifest["metadata"]["generation"] += 1
    manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), **(annotations or {})}
    return RLHFJob.model_validate_json(json.dumps(manifest))
