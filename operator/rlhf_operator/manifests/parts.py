"""What the user wrote about one pod of the job, with what is said for all pods worked in.

A part is the only thing that pods are made from, and `spec_hash` is a hash of it and of nothing else: neither what
this version of the operator renders from it nor its settings. So an upgrade rolls nothing out, and a change of the
manifest rolls out exactly the groups whose part it changes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rlhf_api import names
from rlhf_api.in_pod import RESERVED_VARIABLES
from rlhf_api.types import Image, NodePool, PodOverlay, Resources, RLHFJob
from rlhf_api.types.container import CacheVolume, EnvFrom, EnvVar, Volume
from rlhf_api.types.state import GCSFaultTolerance, StateLocation

HEAD_GROUP = "headgroup"
"""What KubeRay calls the group of the head, in labels of pods too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of pod, as the user wants it.

    Attributes:
        component: Head, role or controller.
        role: The role's name, for a role.
        resources: What each pod gets.
        node_pool: Where it may run.
        image: The image where the user named one, with the pull policy that belongs to it and all pull Secrets.
        overlay: Everything else about the pod.
        env: Variables; the part's own win over the job's. The reserved ones, which the API refuses too, are not in it.
        env_from: The job's first, so that the part's own win.
        volumes: The job's and the part's own; of two of one name the part's own.
        cache_volume: The volume for models and data.
        location: Where state is.
        fault_tolerance: For the head.
    """

    component: str
    role: str = ""
    resources: Resources
    node_pool: NodePool
    image: Image
    overlay: PodOverlay
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volumes: tuple[Volume, ...] = ()
    cache_volume: CacheVolume | None = None
    location: StateLocation | None = None
    fault_tolerance: GCSFaultTolerance | None = None


def head_part(job: RLHFJob) -> Part:
    """The head's pod. It runs no code of the user, so `spec.env` and `spec.volumes` are not for it."""
    head = job.spec.head
    overlay = head.pod or PodOverlay()
    return Part(
        component=names.HEAD_COMPONENT,
        resources=head.resources,
        node_pool=head.node_pool or NodePool(),
        image=_image(job, head.image),
        overlay=overlay,
        env=_env(overlay.env),
        env_from=overlay.env_from,
        volumes=overlay.volumes,
        fault_tolerance=head.gcs_fault_tolerance,
    )


def role_part(job: RLHFJob, name: str) -> Part:
    """The pods of a role, and of those colocated with it."""
    role = job.spec.role(name)
    return _working_part(
        job,
        component=names.ROLE_COMPONENT,
        role=name,
        resources=role.resources,
        node_pool=role.node_pool,
        image=role.image,
        overlay=role.pod,
    )


def controller_part(job: RLHFJob) -> Part:
    """The controller's pod, which reads the job's data and state and so needs the same Secrets and volumes as roles."""
    controller = job.spec.controller
    return _working_part(
        job,
        component=names.CONTROLLER_COMPONENT,
        resources=controller.resources,
        node_pool=controller.node_pool,
        image=controller.image,
        overlay=controller.pod,
    )


def groups_of(job: RLHFJob) -> tuple[str, ...]:
    """The names of the worker groups, in the order of the manifest: the roles that are not colocated."""
    return tuple(role.name for role in job.spec.roles if role.colocate_with is None)


def part_of(job: RLHFJob, group: str) -> Part:
    """The part that a group of the RayCluster is made from."""
    return head_part(job) if group == HEAD_GROUP else role_part(job, group)


def spec_hash(part: Part) -> str:
    """A hash of what the user wrote about a part; fields that are written out as their default count as unwritten.

    Leaving out defaults also means that a field which a later version adds changes no hash.
    """
    written = {name: _written(getattr(part, name)) for name in sorted(Part.__dataclass_fields__)}
    text = json.dumps({name: value for name, value in written.items() if not _is_empty(value)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _working_part(
    job: RLHFJob,
    *,
    component: str,
    resources: Resources,
    node_pool: NodePool | None,
    image: Image | None,
    overlay: PodOverlay | None,
    role: str = "",
) -> Part:
    spec, overlay = job.spec, overlay or PodOverlay()
    return Part(
        component=component,
        role=role,
        resources=resources,
        node_pool=node_pool or NodePool(),
        image=_image(job, image),
        overlay=overlay,
        env=_env(spec.env + overlay.env),
        env_from=spec.env_from + overlay.env_from,
        volumes=tuple({volume.name: volume for volume in spec.volumes + overlay.volumes}.values()),
        cache_volume=spec.cache_volume,
        location=spec.state.location,
    )


def _image(job: RLHFJob, own: Image | None) -> Image:
    own, shared = own or Image(), job.spec.image or Image()
    return Image(
        name=own.name or shared.name,
        pull_policy=own.pull_policy or shared.pull_policy,
        pull_secrets=tuple(dict.fromkeys(own.pull_secrets + shared.pull_secrets)),
    )


def _env(variables: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    last = {variable.name: variable for variable in variables if variable.name not in RESERVED_VARIABLES}
    return tuple(last.values())


def _written(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _pruned(value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True))
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _pruned(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if not _is_empty(item)}
    return [_pruned(item) for item in value] if isinstance(value, list) else value


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or value == {} or value == []
