"""The RayCluster: a head that does no RL work, and one worker group for each role that is not colocated.

A group is rendered once, when it is made or when the user changes what it is made from; from then on it is kept as it
lives, text and all, and only `replicas` and `scaleStrategy` follow. Two annotations on its pod template tell:

- `rlhf.dev/spec-hash`: from which text of the user it was made. Another one rolls the group out.
- `rlhf.dev/rendered-hash`: whether it is still what an operator rendered. What somebody changed by hand is rendered
  again, without a roll-out (`keeping`).

So a new version of the operator, or new settings of it, change no running job. KubeRay takes `workerGroupSpecs` as one
value: each apply holds all groups.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_api import in_pod, names
from rlhf_api.accelerators import gpus_of
from rlhf_api.types import RLHFJob
from rlhf_api.types.state import GCSFaultTolerance
from rlhf_operator.config import Settings
from rlhf_operator.manifests import sizes
from rlhf_operator.manifests.keeping import is_unchanged, kept, sealed, user_hash
from rlhf_operator.manifests.objects import Manifest, manifest, plain, uid_of
from rlhf_operator.manifests.parts import HEAD_GROUP, groups_of, head_part, role_part
from rlhf_operator.manifests.podtemplates import pod_template

__all__ = ["changed_groups", "ray_cluster", "user_hash"]

_HEAD_GRACE_SECONDS = 5
"""The shell around Ray's head does not pass SIGTERM on, and a head has nothing to save."""
_HEAD_FIELDS = ("rayVersion", "gcsFaultToleranceOptions", "headGroupSpec")
_GROUP_FIELDS = ("groupName", "numOfHosts", "rayStartParams", "template")
# It would send each line of every role to the controller, which reads none: 80 MB and seconds of each pod's start.
_NO_LOG_MONITOR = {"include-log-monitor": "false"}
_OVERWRITE_COMMAND_ANNOTATION = "ray.io/overwrite-container-cmd"


def ray_cluster(
    job: RLHFJob,
    settings: Settings,
    *,
    living: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
    replicas: Mapping[str, int] | None = None,
    workers_to_delete: Mapping[str, Sequence[str]] | None = None,
) -> Manifest:
    """The RayCluster of a job.

    Args:
        job: The job.
        settings: The operator's settings; they matter only to groups that are rendered now.
        living: The RayCluster as it is; groups that the user has not changed are kept as they are in it.
        order: Groups in the order in which KubeRay is to make their pods; it stops at the first group that it cannot
            make pods for. Groups that are not named come first.
        replicas: How many pods a group has, to hold or shrink it; else what the manifest says.
        workers_to_delete: Names of pods, by group, that are to go first when the group shrinks.
    """
    old: Mapping[str, Any] = living["spec"] if living is not None else {}
    spec = kept(job, HEAD_GROUP, old, fields=_HEAD_FIELDS) or sealed(_head_fields(job, settings))
    old_groups = _groups(old)
    ranks = {name: rank for rank, name in enumerate(order or ())}
    groups = []
    for name in sorted(groups_of(job), key=lambda name: ranks.get(name, -1)):
        group = kept(job, name, old_groups.get(name, {}), fields=_GROUP_FIELDS)
        group = group or sealed(_role_group(job, settings, name))
        scale = _scale(job, name, replicas=replicas or {}, workers_to_delete=workers_to_delete or {})
        groups.append({**group, **scale})
    # Not for others to switch on by hand: the job's `suspend` takes a snapshot first, and its roles do not scale alone.
    spec |= {"enableInTreeAutoscaling": False, "suspend": False, "workerGroupSpecs": groups}
    return manifest("ray.io/v1", "RayCluster", names.ray_cluster(job.name), job=job, spec=spec)


def changed_groups(job: RLHFJob, living: Mapping[str, Any]) -> tuple[str, ...]:
    """The groups of a living RayCluster that the user has changed since they were rendered, the head first."""
    old = {HEAD_GROUP: living["spec"]["headGroupSpec"], **_groups(living["spec"])}
    here = [name for name in (HEAD_GROUP, *groups_of(job)) if name in old]
    return tuple(name for name in here if not is_unchanged(job, name, old[name]))


def _groups(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {group["groupName"]: group for group in spec.get("workerGroupSpecs") or ()}


def _scale(
    job: RLHFJob, name: str, *, replicas: Mapping[str, int], workers_to_delete: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    role = job.spec.role(name)
    pods = role.replicas * role.pods_per_replica
    wanted = replicas.get(name, pods)
    leaving = list(workers_to_delete.get(name, ()))
    return {
        "replicas": wanted,
        "minReplicas": 0,
        "maxReplicas": max(wanted, pods),
        **({"scaleStrategy": {"workersToDelete": leaving}} if leaving else {}),
    }


def _head_fields(job: RLHFJob, settings: Settings) -> dict[str, Any]:
    part = head_part(job)
    shared_memory = sizes.shared_memory(part.resources, memory=sizes.HEAD_LIMITS["memory"])
    template = pod_template(
        job,
        settings,
        part,
        container={"name": "ray-head"},
        resources=sizes.container_resources(part.resources, requests=sizes.HEAD_REQUESTS, limits=sizes.HEAD_LIMITS),
        shared_memory=shared_memory,
        grace_seconds=_HEAD_GRACE_SECONDS,
    )
    parameters = {
        "dashboard-host": "0.0.0.0",
        "num-cpus": "0",
        "num-gpus": "0",
        "object-store-memory": str(sizes.object_store_bytes(shared_memory)),
        **_NO_LOG_MONITOR,
    }
    fields: dict[str, Any] = {"rayVersion": settings.ray_version}
    if part.fault_tolerance is not None:
        fields["gcsFaultToleranceOptions"] = _fault_tolerance(job, part.fault_tolerance)
    return {**fields, "headGroupSpec": {"rayStartParams": parameters, "template": template}}


def _fault_tolerance(job: RLHFJob, redis: GCSFaultTolerance) -> dict[str, Any]:
    password = {"redisPassword": {"valueFrom": {"secretKeyRef": plain(redis.password)}}} if redis.password else {}
    return {
        "redisAddress": redis.redis_address,
        **password,
        "externalStorageNamespace": redis.namespace or uid_of(job),
    }


def _role_group(job: RLHFJob, settings: Settings, name: str) -> dict[str, Any]:
    part = role_part(job, name)
    shared_memory = sizes.shared_memory(part.resources)
    template = pod_template(
        job,
        settings,
        part,
        container={"name": "ray-worker", "command": list(in_pod.NODE_COMMAND)},
        resources=sizes.container_resources(part.resources),
        shared_memory=shared_memory,
        annotations={_OVERWRITE_COMMAND_ANNOTATION: "true"},
    )
    parameters = {
        "num-cpus": str(sizes.ray_cpus(part.resources)),
        # Also 0 is said: Ray would count the devices that an image of CUDA sees without having asked for one.
        "num-gpus": str(gpus_of(part.resources)),
        "object-store-memory": str(sizes.object_store_bytes(shared_memory)),
        **_NO_LOG_MONITOR,
        # Quoted for the shell; KubeRay takes these quotes off where it reads the value itself.
        "resources": f"'{json.dumps({names.ray_resource(name): 1})}'",
    }
    return {"groupName": name, "numOfHosts": 1, "rayStartParams": parameters, "template": template}
