"""The whole status of a job, made anew at each look."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from rlhf_api import names
from rlhf_api.enums import ConditionStatus, ConditionType
from rlhf_api.formats import decimal, format_time, parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import Condition, Progress, RLHFJobStatus
from rlhf_operator.planning.conditions import conditions
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.roles import counts, table
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.trouble import Trouble

_LONGEST_SUMMARY = 16
_COMING = (ConditionReason.WAITING_FOR_PODS, ConditionReason.LOADING_MODELS)
"""Of `RolesReady`: the pods are on their way, and nothing is wrong with them."""
_WORDS = {
    ConditionReason.CLUSTER_CREATING: "Creating",
    ConditionReason.WAITING_FOR_PODS: "Pending",
    ConditionReason.LOADING_MODELS: "Loading",
    ConditionReason.NOT_STARTED: "Starting",
    ConditionReason.SCALING: "Scaling",
    ConditionReason.START_DEADLINE_EXCEEDED: "Waiting",
    ConditionReason.NAMESPACE_TERMINATING: "Terminating",
}


def status(seen: Seen, course: Course, troubles: Mapping[str, Trouble]) -> RLHFJobStatus:
    """The status after what was decided."""
    rows = table(seen, course)
    claims = conditions(seen, course, rows, troubles)
    by_type = {ConditionType(claim.type): claim for claim in claims}
    spec, before, now = seen.snapshot.job.spec, seen.before, seen.snapshot.now
    running = by_type[ConditionType.RUNNING].status == ConditionStatus.TRUE
    begun = seen.report.started if seen.report and seen.report.started else now
    ended = course.stage is Stage.FINISHED
    return RLHFJobStatus(
        conditions=claims,
        summary=summary(course, by_type),
        roles_ready=counts(rows) if course.stage is Stage.WORKING else f"0/{len(spec.roles)}",
        restarts=sum(row.restarts for row in rows),
        roles=rows,
        progress=progress(seen, course),
        start_time=before.start_time or (format_time(begun) if running else None),
        completion_time=(before.completion_time or format_time(now)) if ended else None,
        ray_cluster_name=names.ray_cluster(seen.snapshot.job.name) if course.stage is Stage.WORKING else None,
        observed_generation=seen.snapshot.job.metadata.generation,
    )


def summary(course: Course, by_type: Mapping[ConditionType, Condition]) -> str:
    """The state in one word, for `kubectl get`."""
    for kind in (ConditionType.COMPLETE, ConditionType.FAILED):
        if kind in by_type:
            return str(kind)
    match course.stage:
        case Stage.SUSPENDED:
            return "Suspended"
        case Stage.SUSPENDING:
            return "Suspending"
    ready, roles, running = (
        by_type[kind] for kind in (ConditionType.CLUSTER_READY, ConditionType.ROLES_READY, ConditionType.RUNNING)
    )
    whole = roles.status == ConditionStatus.TRUE
    if running.status == ConditionStatus.TRUE:
        return "Training" if whole else "Recovering" if roles.reason in _COMING else _word(roles)
    if course.refusal is None and ready.status != ConditionStatus.TRUE:
        return _word(ready if roles.reason in _COMING else roles)
    if not whole and roles.reason != ConditionReason.LOADING_MODELS:
        return _word(roles)
    return _word(running) if running.reason != ConditionReason.NOT_STARTED else _word(roles if not whole else running)


def _word(condition: Condition) -> str:
    return _WORDS.get(ConditionReason(condition.reason), condition.reason)[:_LONGEST_SUMMARY]


def _with_what_was_known(progress: Progress, before: Progress | None) -> Progress:
    """A controller that goes on knows nothing of rewards and snapshots yet; those of before hold until it does."""
    if before is None:
        return progress
    kept = ["evaluation", "snapshot_step", *(["reward"] if progress.step == before.step else [])]
    return progress.model_copy(update={name: getattr(before, name) for name in kept if getattr(progress, name) is None})


def progress(seen: Seen, course: Course) -> Progress | None:
    """How far the job is: the controller's last words at the end, else what it says, but seldom enough for etcd."""
    before = seen.before.progress
    now = format_time(seen.snapshot.now)
    if course.ending is not None and course.ending.progress is not None:
        final = _with_what_was_known(course.ending.progress, before)
        if before is not None and final.step < before.step:
            return before  # it ended while it loaded, before it knew where the last one was
        same = before is not None and before.model_copy(update={"time": None}) == final.model_copy(
            update={"time": None}
        )
        return before if same else final.model_copy(update={"time": final.time or now})
    report = seen.report
    if report is None or (report.started is None and report.step == 0):
        return before
    if before is not None and report.step < before.step and report.phase != "TRAINING":
        return before  # a new controller has not read yet where the last one was
    written = parse_time(before.time) if before else None
    pause = timedelta(seconds=seen.settings.progress_seconds)
    if written is not None and timedelta(0) <= seen.snapshot.now - written < pause:
        return before
    fresh = Progress(
        step=report.step,
        total_steps=report.total_steps,
        reward=decimal(report.reward),
        evaluation=decimal(report.evaluation),
        snapshot_step=report.snapshot_step,
        effective_training_time_ratio=decimal(report.effective_training_time_ratio),
        time=now,
    )
    fresh = _with_what_was_known(fresh, before)
    unchanged = before is not None and fresh.model_copy(update={"time": before.time}) == before
    return before if unchanged else fresh
