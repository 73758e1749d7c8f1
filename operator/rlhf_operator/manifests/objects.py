"""What every object of a job has: its name, its labels, and its owner.

The owner reference is how everything goes when the job goes, also while the operator is down; a finalizer would keep
a job from going then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from rlhf_api import API_VERSION, KIND, names
from rlhf_api.types import RLHFJob

Manifest = dict[str, Any]
"""A Kubernetes object to apply."""


def manifest(api_version: str, kind: str, name: str, *, job: RLHFJob, **parts: Any) -> Manifest:
    """An object that belongs to a job.

    Args:
        api_version: Such as `v1`.
        kind: Its kind.
        name: Its name, in the job's namespace.
        job: The owner.
        parts: The rest of it: `spec`, `data`, ...
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(job),
            "labels": names.job_labels(job.name),
            "ownerReferences": [_owner(job)],
        },
        **parts,
    }


def namespace_of(job: RLHFJob) -> str:
    """The namespace of a job that the API server gave."""
    assert job.metadata.namespace, "a job of the API server has a namespace"
    return job.metadata.namespace


def uid_of(job: RLHFJob) -> str:
    """The UID of a job that the API server gave."""
    assert job.metadata.uid, "a job of the API server has a UID"
    return job.metadata.uid


def controller_labels(job: RLHFJob) -> dict[str, str]:
    """The labels of the controller's pod, by which its Service finds it."""
    return {**names.job_labels(job.name), names.COMPONENT_LABEL: names.CONTROLLER_COMPONENT}


def at_the_places_of(manifest: Any, living: Any) -> Any:
    """The part of a living object that a manifest speaks of, with the values that it has."""
    if isinstance(manifest, Mapping) and isinstance(living, Mapping):
        return {key: at_the_places_of(value, living[key]) for key, value in manifest.items() if key in living}
    if isinstance(manifest, list | tuple) and isinstance(living, list) and len(manifest) == len(living):
        return [at_the_places_of(ours, theirs) for ours, theirs in zip(manifest, living, strict=True)]
    return living


def plain(model: BaseModel, **options: Any) -> dict[str, Any]:
    """A part of the manifest as Kubernetes spells it, without what is unset."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, **options)


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields that say something; False and 0 do."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, ())}


def _owner(job: RLHFJob) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": uid_of(job),
        "controller": True,
        "blockOwnerDeletion": False,
    }
