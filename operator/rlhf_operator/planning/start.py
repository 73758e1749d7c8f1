"""Before a job has its pods: what refuses it, and the start deadline.

Two jobs that each hold half of the nodes would both wait. So a job whose pods are not all placed at its deadline frees
what it holds and comes back after a wait; the waits of two jobs differ, so that one finds everything free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from rlhf_api.enums import ConditionType
from rlhf_api.formats import parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import RLHFJob
from rlhf_operator.manifests.state import state_place
from rlhf_operator.planning import pods
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.lifecycle import free, until
from rlhf_operator.planning.rollout import PLACED_ANNOTATION
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.trouble import Trouble

KUBERAY_HINT = "Install KubeRay 1.5 or newer, for example `helm install kuberay-operator kuberay/kuberay-operator`."
_SHORTEST_WAIT = 10.0


def refusal(seen: Seen) -> Trouble | None:
    """Why nothing can be made for the job, if so."""
    if seen.snapshot.namespace_terminating:
        return Trouble(
            reason=ConditionReason.NAMESPACE_TERMINATING,
            message="The namespace is being deleted, so that nothing can be made in it. Apply the job in another one.",
        )
    if not seen.snapshot.kuberay:
        return Trouble(
            reason=ConditionReason.KUBERAY_MISSING,
            message=f"The cluster has no RayCluster resource. {KUBERAY_HINT} The job goes on by itself then.",
        )
    if seen.ray_cluster is not None and seen.controller_job is not None:
        return None  # it was found good when it began, and its place is immutable
    place = state_place(seen.snapshot.job, seen.settings)
    if place.problem:
        return Trouble(reason=ConditionReason.STATE_UNREACHABLE, message=place.problem)
    return None if place.made or not place.claim else _claim(seen, place.claim)


def _claim(seen: Seen, name: str) -> Trouble | None:
    where = "`spec.state.location.persistentVolumeClaim`"
    claim = seen.snapshot.claims.get(name)
    if claim is None:
        if name not in seen.snapshot.claims:
            return None
        return Trouble(
            reason=ConditionReason.STATE_UNREACHABLE,
            message=f'{where} names "{name}", and the namespace has no such claim. Make it, with the access mode'
            " ReadWriteMany; the job goes on by itself then.",
        )
    modes = set(pods.status_of(claim).get("accessModes") or (claim.get("spec") or {}).get("accessModes") or ())
    if not modes or "ReadWriteMany" in modes:
        return None
    hint = (
        "Use a claim with the access mode ReadWriteMany, or a URI such as `s3://bucket/folder` in `spec.state.location`"
    )
    shown = ", ".join(sorted(modes))
    if "ReadWriteOnce" not in modes:
        return Trouble(
            reason=ConditionReason.STATE_UNREACHABLE,
            message=f'{where}: claim "{name}" has the access mode {shown}, but the controller and every role must write'
            f" to it. {hint}.",
        )
    pools = dict(_pools(seen.snapshot.job))
    if len(set(pools.values())) <= 1:
        return None  # one pool may be one node; a second node's pods say so when they cannot mount it
    listed = "; ".join(f"{who}: {selector or 'any node'}" for who, selector in pools.items())
    return Trouble(
        reason=ConditionReason.STATE_UNREACHABLE,
        message=f'{where}: claim "{name}" has the access mode {shown}, which only the pods of one node can share, but'
        f" the job's pods are on several pools ({listed}). {hint}, or give the controller and all roles the same"
        " `nodePool.nodeSelector`.",
    )


def _pools(job: RLHFJob) -> Iterator[tuple[str, str]]:
    parts = [("controller", job.spec.controller.node_pool)]
    parts += [(f'role "{role.name}"', role.node_pool) for role in job.spec.roles if role.colocate_with is None]
    for name, pool in parts:
        yield name, ",".join(f"{key}={value}" for key, value in sorted((pool.node_selector if pool else {}).items()))


def start_deadline(seen: Seen) -> datetime | None:
    """When the pods must be placed; None if they are, or were, or there is no such limit."""
    limit = seen.snapshot.job.spec.start_deadline_seconds
    if limit is None or seen.ray_cluster is None or seen.everything_placed:
        return None
    if pods.annotation(seen.ray_cluster, PLACED_ANNOTATION) is not None:
        return None
    begin = pods.created(seen.ray_cluster)
    return begin + timedelta(seconds=limit) if begin else None


def hold(seen: Seen) -> Course | None:
    """Free a job that missed its start deadline, and keep it so for its wait; None when there is nothing to hold."""
    now = seen.snapshot.now
    retry_at = held_until(seen)
    if retry_at is None and (deadline := start_deadline(seen)) is not None and now >= deadline:
        assert seen.ray_cluster is not None
        # The UID of the RayCluster is another each time: two jobs that met once do not meet again in step.
        retry_at = now + timedelta(seconds=_wait(seen, _spread(pods.uid_of(seen.ray_cluster))))
    if retry_at is None or retry_at <= now:
        return None
    return Course(stage=Stage.HELD, deletes=free(seen), retry_at=retry_at, wake_in=until(retry_at, now))


def held_until(seen: Seen) -> datetime | None:
    """When a job that was freed may try again, as its status remembers."""
    condition = seen.condition(ConditionType.ROLES_READY)
    if condition is None or condition.reason != ConditionReason.START_DEADLINE_EXCEEDED:
        return None
    times = [parse_time(role.next_restart_time) for role in seen.before.roles]
    latest = seen.snapshot.now + timedelta(seconds=_wait(seen, 1.0))  # what is later was not written by us
    return max((moment for moment in times if moment and moment <= latest), default=None)


def _wait(seen: Seen, part: float) -> float:
    limit = float(seen.snapshot.job.spec.start_deadline_seconds or 0)
    return _SHORTEST_WAIT + max(limit, 60.0) * part


def _spread(seed: str) -> float:
    """A number from 0 to 1 that looks random and is always the same for one seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
