"""The conditions of a job: what is true of it, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeGuard

from rlhf_api import names
from rlhf_api.ending import EndingOutcome
from rlhf_api.enums import ConditionStatus, ConditionType
from rlhf_api.formats import format_time, parse_time
from rlhf_api.names import CONTROLLER_COMPONENT
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import Condition, RoleStatus
from rlhf_operator.planning import pods
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.refusals import refused_objects
from rlhf_operator.planning.roles import controller_part, head_part, worst
from rlhf_operator.planning.seen import Seen, ending_of
from rlhf_operator.planning.snapshot import Object
from rlhf_operator.planning.trouble import Trouble, refused_pods, sentence, text_of, time_of, trouble_of

_INVALID = ("InvalidRayClusterSpec", "InvalidRayClusterMetadata", "InvalidRayClusterStatus")
_LONGEST = 8192
_MOST_PODS = 3
_SILENCE = timedelta(seconds=60)
_AFTER_A_HEAD = (ConditionReason.HEAD_NOT_READY, ConditionReason.HEAD_LOST)
_BEFORE_A_CONTROLLER = (ConditionReason.NOT_STARTED, ConditionReason.SUSPENDING, ConditionReason.SUSPENDED)
"""Of `Running`, while no controller is there that could be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one condition says, before it has times."""

    type: ConditionType
    status: ConditionStatus
    reason: ConditionReason
    message: str


def conditions(
    seen: Seen, course: Course, rows: tuple[RoleStatus, ...], troubles: Mapping[str, Trouble]
) -> tuple[Condition, ...]:
    """All conditions; one whose status stays as it was keeps the time of its last change."""
    return tuple(_dated(seen, claim) for claim in _claims(seen, course, rows, troubles))


def _claims(
    seen: Seen, course: Course, rows: tuple[RoleStatus, ...], troubles: Mapping[str, Trouble]
) -> Iterator[Claim]:
    yield _cluster_ready(seen, course)
    yield _roles_ready(seen, course, rows, troubles)
    yield _running(seen, course)
    yield _no(ConditionType.DEGRADED, ConditionReason.ALL_ROLES_WHOLE, "No role has used up its restarts.")
    yield _suspended(seen, course)
    if course.verdict is not None:
        yield _yes(course.verdict.type, course.verdict.reason, course.verdict.message)
    for kind in (ConditionType.COMPLETE, ConditionType.FAILED):
        known = seen.condition(kind)
        if known is not None and seen.finished:
            yield Claim(type=kind, status=known.status, reason=ConditionReason(known.reason), message=known.message)


def _yes(kind: ConditionType, reason: ConditionReason, message: str) -> Claim:
    return Claim(type=kind, status=ConditionStatus.TRUE, reason=reason, message=message)


def _no(kind: ConditionType, reason: ConditionReason, message: str) -> Claim:
    return Claim(type=kind, status=ConditionStatus.FALSE, reason=reason, message=message)


def _without_pods(kind: ConditionType, course: Course) -> Claim | None:
    """What a condition about living parts says of a job that is to have none."""
    match course.stage:
        case Stage.FINISHED:
            return _no(kind, ConditionReason.FINISHED, "The job ended and its pods are freed.")
        case Stage.SUSPENDING:
            return _no(kind, ConditionReason.SUSPENDING, "The job is being suspended: it saves a snapshot and leaves.")
        case Stage.SUSPENDED:
            return _no(kind, ConditionReason.SUSPENDED, "The job is suspended. Set `spec.suspend` to false to go on.")
        case _:
            return None


def _cluster_ready(seen: Seen, course: Course) -> Claim:
    kind = ConditionType.CLUSTER_READY
    if (claim := _without_pods(kind, course)) is not None:
        return claim
    if course.refusal is not None:
        clusters = (ConditionReason.KUBERAY_MISSING, ConditionReason.NAMESPACE_TERMINATING)
        if course.refusal.reason in clusters:
            return _no(kind, course.refusal.reason, course.refusal.message)
        return _no(kind, ConditionReason.CLUSTER_CREATING, "No Ray cluster is made before the job can use it.")
    if course.stage is Stage.HELD:
        return _no(kind, ConditionReason.START_DEADLINE_EXCEEDED, "The Ray cluster is freed until the next try.")
    if course.lost_head:
        return _head_lost()
    if (invalid := _invalid(seen)) is not None:
        return _no(kind, ConditionReason.CLUSTER_INVALID, invalid)
    if seen.head is not None and pods.ready(seen.head):
        return _yes(kind, ConditionReason.CLUSTER_READY, "Ray's head is ready.")
    before = seen.condition(kind)
    if before is not None and (before.status == ConditionStatus.TRUE or before.reason in _AFTER_A_HEAD):
        return _head_not_ready(seen.head) if _is_of_before(seen.head, before) else _head_lost()
    if (trouble := refused_objects(seen) or _head_trouble(seen)) is not None:
        return _no(kind, trouble.reason, trouble.message)
    return _no(kind, ConditionReason.CLUSTER_CREATING, _before_the_head(seen))


def _before_the_head(seen: Seen) -> str:
    """What a job without a head waits for."""
    if seen.ray_cluster is not None:
        return "Ray's head is starting."
    if seen.snapshot.ray_cluster is not None:
        return "The RayCluster of before is still being deleted; another is made when it is gone."
    left = [pod for pod in seen.snapshot.pods if pods.component(pod) != CONTROLLER_COMPONENT]
    if not left and seen.claim is not None and seen.claim_leaves:
        return f'Claim "{pods.name_of(seen.claim)}" is being deleted; another is made when it is gone.'
    if not left:
        return "The RayCluster is being made."
    listed = ", ".join(f'"{pods.name_of(pod)}" on node "{pods.node_of(pod)}"' for pod in left[:_MOST_PODS])
    return f"Pods of the RayCluster of before are still leaving, {len(left)} in all: {listed}. Another is made then."


def _is_of_before(head: Object | None, before: Condition) -> TypeGuard[Object]:
    """Whether this very head was there when the condition became what it is."""
    if head is None or before.reason == ConditionReason.HEAD_LOST:
        return False
    made, said = pods.created(head), parse_time(before.last_transition_time)
    return made is not None and said is not None and made <= said


def _head_not_ready(head: Object) -> Claim:
    return _no(
        ConditionType.CLUSTER_READY,
        ConditionReason.HEAD_NOT_READY,
        f'Ray\'s head, pod "{pods.name_of(head)}" on node "{pods.node_of(head)}", is not ready: its probe fails, or its'
        " node is silent.",
    )


def _head_lost() -> Claim:
    return _no(
        ConditionType.CLUSTER_READY,
        ConditionReason.HEAD_LOST,
        "Ray's head is gone; all pods are made anew, and training resumes from what was saved."
        " With `spec.head.gcsFaultTolerance` roles outlive their head.",
    )


def _head_trouble(seen: Seen) -> Trouble | None:
    part = head_part(seen)
    if seen.head is not None:
        return trouble_of(seen.head, part, seen.snapshot.warnings)
    prefix = f"{names.ray_cluster(seen.snapshot.job.name)}-head-"
    since = pods.created(seen.ray_cluster) if seen.ray_cluster is not None else None
    return refused_pods(seen.snapshot.warnings, prefix, part, since=since)


def _invalid(seen: Seen) -> str | None:
    """What KubeRay says against the RayCluster; its status shows whether that is about the present one."""
    ray_cluster = seen.ray_cluster
    if ray_cluster is None:
        return None
    observed = pods.status_of(ray_cluster).get("observedGeneration")
    if observed is not None and observed == pods.metadata(ray_cluster).get("generation"):
        return None
    born = pods.created(ray_cluster)
    for event in reversed(seen.snapshot.warnings):
        if event.get("reason") in _INVALID and (born is None or time_of(event) >= born):
            said = text_of(event)
            return f"KubeRay refuses the RayCluster: {said} Correct the manifest, or tell the operator's authors."
    return None


def _roles_ready(seen: Seen, course: Course, rows: tuple[RoleStatus, ...], troubles: Mapping[str, Trouble]) -> Claim:
    kind = ConditionType.ROLES_READY
    if (claim := _without_pods(kind, course)) is not None:
        return claim
    if course.refusal is not None:
        return _no(kind, course.refusal.reason, course.refusal.message)
    if course.stage is Stage.HELD and course.retry_at is not None:
        return _held(seen, course, troubles)
    short = [row for row in rows if row.ready < row.desired]
    if not short and (seen.report is not None or seen.holds(kind)):
        return _yes(kind, ConditionReason.ROLES_READY, f"All {len(rows)} roles are ready.")
    listed = ", ".join(f'"{row.name}" {row.ready}/{row.desired}' for row in short)
    refusal = refused_objects(seen)
    found = [*([refusal] if refusal else []), *troubles.values()]
    said = " ".join(trouble.message for trouble in found)
    if said:
        return _no(kind, worst(found), f"{said} Ready pods: {listed}." if listed else said)
    if _grows(seen, short):
        return _no(kind, ConditionReason.SCALING, f"More pods are starting while it trains. Ready pods: {listed}.")
    if not seen.everything_placed:
        return _no(kind, ConditionReason.WAITING_FOR_PODS, f"Pods are being made and placed. Ready pods: {listed}.")
    if seen.before.start_time is not None and seen.trains:
        return _no(kind, ConditionReason.RECOVERING, f"Roles are being restored. Ready pods: {listed}.")
    told = (seen.report.message if seen.report else "") or "Pods are in place; processes start and models load."
    return _no(kind, ConditionReason.LOADING_MODELS, f"{sentence(told)} Ready pods: {listed}." if listed else told)


def _grows(seen: Seen, short: Sequence[RoleStatus]) -> bool:
    """Whether roles lack pods only because they are to have more than before."""
    condition = seen.condition(ConditionType.ROLES_READY)
    growing = condition is not None and condition.reason == ConditionReason.SCALING
    before = {row.name: row for row in seen.before.roles}
    return seen.trains and all(
        (was := before.get(row.name)) is not None
        and row.ready >= was.ready
        and (row.desired > was.desired or (growing and was.ready < was.desired))
        for row in short
    )


def _held(seen: Seen, course: Course, troubles: Mapping[str, Trouble]) -> Claim:
    assert course.retry_at is not None
    before = seen.condition(ConditionType.ROLES_READY)
    if before is not None and before.reason == ConditionReason.START_DEADLINE_EXCEEDED:
        return _no(ConditionType.ROLES_READY, ConditionReason.START_DEADLINE_EXCEEDED, before.message)
    limit = seen.snapshot.job.spec.start_deadline_seconds
    said = " ".join(trouble.message for trouble in troubles.values()) or "Not all pods had a node."
    return _no(
        ConditionType.ROLES_READY,
        ConditionReason.START_DEADLINE_EXCEEDED,
        f"Not all pods were placed within `spec.startDeadlineSeconds` of {limit} s, so that all are freed for others;"
        f" the next try is at {format_time(course.retry_at)}. {said}",
    )


def _training(seen: Seen) -> str:
    """That it trains, and if nobody has heard of it for long, that too."""
    last = seen.before.progress.time if seen.before.progress else None
    heard = parse_time(last)
    if seen.report is not None or heard is None or seen.snapshot.now - heard < _SILENCE:
        return "Training."
    return (
        f"Training; but the controller does not answer the operator since {last}, and the numbers here are as old."
        " The operator's log says why; a NetworkPolicy of the namespace may be in the way."
    )


def _running(seen: Seen, course: Course) -> Claim:
    kind = ConditionType.RUNNING
    if (claim := _without_pods(kind, course)) is not None:
        return claim
    if course.refusal is not None:
        return _no(kind, ConditionReason.NOT_STARTED, "The job has no pods; `RolesReady` says why.")
    if course.stage is Stage.HELD:
        return _no(kind, ConditionReason.NOT_STARTED, "The job waits for its next try; `RolesReady` says why.")
    was = seen.holds(kind)
    alive = seen.controller is not None and pods.phase(seen.controller) == "Running"
    if alive and (seen.trains or (was and (seen.report is None or seen.report.phase == "STOPPING"))):
        return _yes(kind, ConditionReason.TRAINING, _training(seen))
    if (trouble := _controller_trouble(seen)) is not None:
        return _no(kind, trouble.reason, trouble.message)
    ended = next((pod for pod in seen.controllers if pods.ended(pod)), None)
    if ended is not None:
        ending = ending_of(ended)
        suspended = ending is not None and ending.outcome == EndingOutcome.SUSPENDED
        cause = (ending and ending.message) or ("it was told to leave" if suspended else pods.how_it_ended(ended))
        return _no(
            kind,
            ConditionReason.CONTROLLER_LOST,
            f'The controller\'s pod "{pods.name_of(ended)}" ended: {cause} Another one goes on from what was saved.',
        )
    before = seen.condition(kind)
    begins = before is not None and before.reason in _BEFORE_A_CONTROLLER
    if was or (seen.before.start_time is not None and not alive and not begins):
        return _no(
            kind, ConditionReason.CONTROLLER_LOST, "The controller's pod is gone; another goes on from what was saved."
        )
    told = (seen.report.message if seen.report else "") or "The controller has not begun."
    return _no(kind, ConditionReason.NOT_STARTED, told)


def _controller_trouble(seen: Seen) -> Trouble | None:
    if (refusal := refused_objects(seen)) is not None:
        return refusal
    part = controller_part(seen)
    if seen.controller is not None:
        return trouble_of(seen.controller, part, seen.snapshot.warnings)
    if seen.controller_job is None:
        return None
    since = pods.created(seen.controllers[0] if seen.controllers else seen.controller_job)
    prefix = f"{names.controller(seen.snapshot.job.name)}-"
    return refused_pods(seen.snapshot.warnings, prefix, part, since=since)


def _suspended(seen: Seen, course: Course) -> Claim:
    kind = ConditionType.SUSPENDED
    if course.stage is Stage.SUSPENDED:
        return _yes(kind, ConditionReason.SUSPENDED, "No pod is left. Set `spec.suspend` to false to go on.")
    if course.stage is Stage.SUSPENDING:
        left = len(seen.lingering)
        return _no(kind, ConditionReason.SUSPENDING, f"Saving a snapshot and freeing pods. Pods left: {left}.")
    before = seen.condition(kind)
    resumed = (ConditionReason.SUSPENDED, ConditionReason.RESUMED)
    if before is not None and before.reason in resumed:
        return _no(kind, ConditionReason.RESUMED, "The job was suspended, and goes on.")
    return _no(kind, ConditionReason.NOT_SUSPENDED, "The job is not suspended.")


def _dated(seen: Seen, claim: Claim) -> Condition:
    before = seen.condition(claim.type)
    same = before is not None and before.status == claim.status
    return Condition(
        type=claim.type,
        status=claim.status,
        reason=claim.reason,
        message=claim.message[:_LONGEST],
        last_transition_time=before.last_transition_time
        if before is not None and same
        else format_time(seen.snapshot.now),
        observed_generation=seen.snapshot.job.metadata.generation,
    )
