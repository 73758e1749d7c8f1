"""The end of a job, its deadlines, and suspension.

Every decision is made from what is there now, so that it is the same whenever and however often it is made. How a run
ended is in the termination message of the controller's pod; it needs no operator to be kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rlhf_api.ending import EndingOutcome
from rlhf_api.enums import ConditionType
from rlhf_api.formats import parse_time
from rlhf_api.in_pod import STATE_MOUNT
from rlhf_api.names import CONTROLLER_COMPONENT, HEAD_COMPONENT, ROLE_COMPONENT
from rlhf_api.reasons import ConditionReason
from rlhf_operator.manifests.state import state_place
from rlhf_operator.planning import pods
from rlhf_operator.planning.course import Course, Stage, Verdict
from rlhf_operator.planning.made_once import is_of_former_job
from rlhf_operator.planning.plan import Call, Delete, Suspend
from rlhf_operator.planning.restarts import exhausted
from rlhf_operator.planning.seen import Seen, ending_of
from rlhf_operator.planning.snapshot import Object

_POLL_SECONDS = 2.0
_LAST_WORDS_SECONDS = 5


def verdict(seen: Seen) -> Verdict | None:
    """How the job ended, if it did."""
    for pod in seen.controllers:
        ending = ending_of(pod) if pods.ended(pod) else None
        if ending is not None and ending.outcome == EndingOutcome.COMPLETE:
            total = seen.snapshot.job.spec.algorithm.total_steps
            said = ending.message or f"All {total} steps are done."
            return Verdict(
                type=ConditionType.COMPLETE,
                reason=ConditionReason.ALL_STEPS_DONE,
                message=f"{said}{_whose_folder(seen)}",
            )
        if ending is not None and ending.outcome == EndingOutcome.FAILED:
            return _failed(ending.reason, ending.message or "The controller gave no cause; see its log.")
    return _controller_gave_up(seen) or _too_late(seen) or exhausted(seen)


def _whose_folder(seen: Seen) -> str:
    """The controller knows folders only; nobody can look into those of a pod that has ended."""
    place = state_place(seen.snapshot.job, seen.settings)
    goes = ", which is deleted with the job" if place.made else ""
    return f' {STATE_MOUNT} is the claim "{place.claim}"{goes}.' if place.claim else ""


def _failed(reason: ConditionReason, message: str) -> Verdict:
    return Verdict(type=ConditionType.FAILED, reason=reason, message=message)


def _controller_gave_up(seen: Seen) -> Verdict | None:
    if seen.controller_job is None:
        return None
    last = next((pod for pod in seen.controllers if pods.ended(pod)), None)
    if pods.holds(seen.controller_job, "Failed"):
        if last is None:
            said = pods.condition(seen.controller_job, "Failed") or {}
            cause = str(said.get("message") or "its pods are gone, and what they said with them")
        else:
            ending = ending_of(last)
            cause = (ending and ending.message) or pods.how_it_ended(last)
        tries = max(int(pods.status_of(seen.controller_job).get("failed") or 0), 1)
        times = "once" if tries == 1 else f"{tries} times"
        return _failed(
            ConditionReason.CONTROLLER_FAILED,
            f"The controller failed {times}, as often as `spec.controller.maxRestarts` allows. The last time: {cause}",
        )
    if pods.holds(seen.controller_job, "Complete") and last is not None and ending_of(last) is None:
        return _failed(
            ConditionReason.CONTROLLER_FAILED,
            f'The controller\'s pod "{pods.name_of(last)}" ended without saying how ({pods.how_it_ended(last)}).'
            " `spec.controller.image` must be a worker image of this operator's release.",
        )
    return None


def active_deadline(seen: Seen) -> datetime | None:
    """When the job's running time is over; a resumed job's begins anew, as a Kubernetes Job's does."""
    limit = seen.snapshot.job.spec.active_deadline_seconds
    begin = parse_time(seen.before.start_time)
    if limit is None or begin is None:
        return None
    suspended = seen.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.reason == ConditionReason.RESUMED:
        begin = max(begin, parse_time(suspended.last_transition_time) or begin)
    return _not_to_come(seen, begin) + timedelta(seconds=limit)


def _not_to_come(seen: Seen, moment: datetime) -> datetime:
    """A time of the status, which somebody may have written by hand."""
    return min(moment, seen.snapshot.now)


def _too_late(seen: Seen) -> Verdict | None:
    deadline = active_deadline(seen)
    if deadline is None or seen.snapshot.now < deadline or seen.snapshot.job.spec.suspend:
        return None
    seconds = seen.snapshot.job.spec.active_deadline_seconds
    return _failed(
        ConditionReason.DEADLINE_EXCEEDED,
        f"The job ran for {seconds} s, as long as `spec.activeDeadlineSeconds` allows. What it saved is kept; a job"
        " with the same `spec.state.location` and a later deadline goes on from there.",
    )


def free(seen: Seen) -> list[Delete]:
    """Give back everything that roles and head hold, and the controller if it is still at work.

    A controller that ended keeps its Job, and so its pod and log.
    """
    deletes = seen.unconfirmed()
    if seen.ray_cluster is not None:
        deletes.append(_delete("ray.io/v1", "RayCluster", seen.ray_cluster))
    if seen.controller_job is not None and _at_work(seen):
        deletes.append(_delete("batch/v1", "Job", seen.controller_job))
    return deletes


def _at_work(seen: Seen) -> bool:
    """Whether the controller's Job has a pod that works, or would make one."""
    job, ending = seen.controller_job, seen.ending
    if job is None or seen.controller is not None:
        return job is not None
    said = ending[1].outcome if ending and ending[1] else None
    # Its last words are there before the Job controller has read the exit code.
    final = said in (EndingOutcome.COMPLETE, EndingOutcome.FAILED)
    return not (final or pods.holds(job, "Complete") or pods.holds(job, "Failed"))


def finish(seen: Seen, found: Verdict | None) -> Course:
    """A job that ended, now (`found`) or earlier: free its pods, keep the controller's log, go when it is time."""
    completion = _not_to_come(seen, parse_time(seen.before.completion_time) or seen.snapshot.now)
    ttl = seen.snapshot.job.spec.ttl_seconds_after_finished
    left = None if ttl is None else (completion + timedelta(seconds=ttl) - seen.snapshot.now).total_seconds()
    ending = seen.ending
    return Course(
        stage=Stage.FINISHED,
        verdict=found,
        ending=ending[1] if ending else None,
        deletes=free(seen),
        wake_in=max(left, 0.0) if left is not None else None,
        delete_job=left is not None and left <= 0,
    )


def suspend(seen: Seen) -> Course:
    """On the way to a job without pods.

    A job that trains is asked to leave, and has the grace period for it. One that does not, or that cannot be asked,
    is told by SIGTERM, which means the same and has the same limit. Head and roles go when the controller has gone.
    """
    ending = seen.ending
    calls: list[Call] = []
    deletes = seen.unconfirmed()
    wake_in: float | None = None
    if seen.controller is not None and seen.controller_job is not None:
        since = _asked_since(seen)
        grace = seen.snapshot.job.spec.suspend_grace_period_seconds
        left = grace - (seen.snapshot.now - since).total_seconds() if since is not None else 0.0
        if left > 0 and (seen.report is not None or _was_asked(seen)):
            # One that was asked may have closed its ears already: its last words are about to come.
            calls += [Suspend()] if seen.report is not None else []
            wake_in = min(left, _POLL_SECONDS)
        else:
            if since is not None and seen.report is not None:
                deletes.append(pods.delete_pod(seen.controller, grace_seconds=_LAST_WORDS_SECONDS))
            deletes.append(_delete("batch/v1", "Job", seen.controller_job))
    elif not _leaving(seen):
        if seen.ray_cluster is not None:
            deletes.append(_delete("ray.io/v1", "RayCluster", seen.ray_cluster))
        if seen.controller_job is not None:
            deletes.append(_delete("batch/v1", "Job", seen.controller_job))
        deletes += leftovers(seen)
    gone = not seen.lingering and seen.snapshot.ray_cluster is None and seen.snapshot.controller_job is None
    return Course(
        stage=Stage.SUSPENDED if gone else Stage.SUSPENDING,
        calls=calls,
        deletes=deletes,
        ending=ending[1] if ending else None,
        wake_in=wake_in,
    )


def _asked_since(seen: Seen) -> datetime | None:
    """When a job that trained was first asked to leave; None when it did not train, and has nothing to finish."""
    running = seen.condition(ConditionType.RUNNING)
    if running is None or seen.holds(ConditionType.RUNNING):
        return seen.snapshot.now if running is not None else None
    return parse_time(running.last_transition_time) if _was_asked(seen) else None


def _was_asked(seen: Seen) -> bool:
    running = seen.condition(ConditionType.RUNNING)
    return running is not None and running.reason == ConditionReason.SUSPENDING


def _leaving(seen: Seen) -> bool:
    """Whether a controller's pod is on its way out and may still save something."""
    return any(
        pods.component(pod) == CONTROLLER_COMPONENT and pods.going(pod) and not pods.ended(pod)
        for pod in seen.snapshot.pods
    )


def of_former_job(seen: Seen) -> list[Delete]:
    """RayCluster and controller of another job that had this name and left them, as `--cascade=orphan` does.

    Their tokens are not this job's. A claim that was left so was kept on purpose, and stays so.
    """
    found = (("ray.io/v1", "RayCluster", seen.ray_cluster), ("batch/v1", "Job", seen.controller_job))
    return [
        _delete(version, kind, item)
        for version, kind, item in found
        if item is not None and is_of_former_job(seen, item)
    ]


def leftovers(seen: Seen) -> list[Delete]:
    """Pods of head and roles whose RayCluster is gone, such as one deleted with `--cascade=orphan`."""
    if seen.snapshot.ray_cluster is not None:
        return []
    return [
        pods.delete_pod(pod)
        for pod in seen.snapshot.pods
        if pods.component(pod) in (HEAD_COMPONENT, ROLE_COMPONENT) and not pods.going(pod)
    ]


def renew_controller(seen: Seen) -> list[Delete]:
    """A controller that left in peace although the job goes on, after a drain or a suspension taken back: another one.

    The same when it ended well and nobody could read how: its successor finds all steps done, or does the rest.
    """
    job = seen.controller_job
    if job is None or seen.controller is not None or not (pods.holds(job, "Complete") or _left_in_peace(seen)):
        return []
    return [_delete("batch/v1", "Job", job)]


def _left_in_peace(seen: Seen) -> bool:
    ending = seen.ending
    return ending is not None and ending[1] is not None and ending[1].outcome == EndingOutcome.SUSPENDED


def _delete(api_version: str, kind: str, item: Object) -> Delete:
    return Delete(api_version=api_version, kind=kind, name=pods.name_of(item), uid=pods.uid_of(item))


def until(moment: datetime | None, now: datetime) -> float | None:
    """Seconds until a moment, at least 0."""
    return None if moment is None else max((moment - now).total_seconds(), 0.0)
