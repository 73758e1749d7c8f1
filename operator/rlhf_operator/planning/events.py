"""Kubernetes events about a job: one for each change of a condition that people care for, one for each death."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_api.enums import ConditionStatus, ConditionType, FailureReason
from rlhf_api.formats import parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import Condition, RLHFJobStatus
from rlhf_operator.planning import pods
from rlhf_operator.planning.plan import Event
from rlhf_operator.planning.refusals import refused_to_us
from rlhf_operator.planning.restarts import never_joined
from rlhf_operator.planning.roles import incidents
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.snapshot import Incident

_LONGEST = 900
_NEWS = {
    (ConditionType.CLUSTER_READY, True): "ClusterReady",
    (ConditionType.ROLES_READY, True): "RolesReady",
    (ConditionType.RUNNING, True): "TrainingStarted",
    (ConditionType.SUSPENDED, True): "Suspended",
    (ConditionType.COMPLETE, True): "Completed",
    (ConditionType.FAILED, True): "Failed",
}
_ORDINARY = {
    ConditionReason.CLUSTER_CREATING,
    ConditionReason.WAITING_FOR_PODS,
    ConditionReason.LOADING_MODELS,
    ConditionReason.RECOVERING,  # the role's death has an event of its own
    ConditionReason.SCALING,
    ConditionReason.NOT_STARTED,
    ConditionReason.FINISHED,
    ConditionReason.SUSPENDING,
    ConditionReason.SUSPENDED,
    ConditionReason.NOT_SUSPENDED,
    ConditionReason.ALL_ROLES_WHOLE,
}


def events(seen: Seen, after: RLHFJobStatus) -> Iterator[Event]:
    """What to tell of, from what the status said and says now."""
    for condition in after.conditions:
        before = seen.condition(ConditionType(condition.type))
        if before is None or (before.status, before.reason) != (condition.status, condition.reason):
            yield from _of_change(condition)
    if after.summary == "Training":  # no condition says it then
        for refusal in refused_to_us(seen):
            key = f"{refusal.reason}/{refusal.message}"
            yield Event(type="Warning", reason=refusal.reason, message=_cut(refusal.message), key=key)
    for incident in incidents(seen):
        if _is_news(seen, incident):
            yield _of_death(incident)
    for role in seen.hosts:
        for pod in never_joined(seen, role):
            yield Event(
                type="Warning",
                reason="PodEnded",
                message=_cut(
                    f'Role "{role.name}": pod "{pods.name_of(pod)}" on node "{pods.node_of(pod)}" ended before it'
                    f" joined: {pods.how_it_ended(pod)}"
                ),
                key=f"pod/{pods.uid_of(pod)}",
            )


def _of_change(condition: Condition) -> Iterator[Event]:
    kind, true = ConditionType(condition.type), condition.status == ConditionStatus.TRUE
    reason = _NEWS.get((kind, true))
    if reason is None and condition.reason == ConditionReason.RESUMED:
        reason = "Resumed"
    if reason is not None:
        severity = "Warning" if kind == ConditionType.FAILED else "Normal"
        key = f"{reason}/{condition.last_transition_time}"
        yield Event(type=severity, reason=reason, message=_cut(condition.message), key=key)
    elif kind == ConditionType.CLUSTER_READY and condition.reason == ConditionReason.START_DEADLINE_EXCEEDED:
        return  # `RolesReady` tells it with the cause
    elif not true and ConditionReason(condition.reason) not in _ORDINARY:
        key = f"{condition.reason}/{condition.message}"
        yield Event(type="Warning", reason=condition.reason, message=_cut(condition.message), key=key)


def _is_news(seen: Seen, incident: Incident) -> bool:
    """Whether the status did not know of it; after a restart of the operator nothing is told again."""
    known = next((row.last_failure for row in seen.before.roles if row.name == incident.role), None)
    before = parse_time(known.time) if known else None
    return before is None or incident.time.replace(microsecond=0) > before


def _of_death(incident: Incident) -> Event:
    code = f", exit code {incident.exit_code}" if incident.exit_code is not None else ""
    counted = "" if incident.counted else "; not counted"
    last = incident.message.strip().splitlines()
    words = f": {last[-1]}" if last else ""
    place = f' in pod "{incident.pod}" on node "{incident.node}"' if incident.pod else ""
    return Event(
        type="Normal" if incident.reason == FailureReason.DELETED_BY_USER else "Warning",
        reason="RoleRestarted",
        message=_cut(
            f'Role "{incident.role}" rank {incident.rank}{place} ended at'
            f" step {incident.step} ({incident.reason}{code}{counted}) and is restarted{words}"
        ),
        key=f"incident/{incident.id}",
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
