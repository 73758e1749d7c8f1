"""The roles one by one: what keeps their pods away, and their rows in the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from rlhf_api import names
from rlhf_api.ending import RoleEnding
from rlhf_api.enums import FailureReason, RestartScope, RolloutEngine, TrainingEngine
from rlhf_api.formats import format_time, parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import AUTO, Failure, Role, RoleStatus
from rlhf_operator.planning import pods
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.restarts import failure_of, never_joined
from rlhf_operator.planning.seen import Seen, pods_wanted
from rlhf_operator.planning.snapshot import Incident, RoleReport
from rlhf_operator.planning.trouble import Part, Trouble, refused_pods, sentence, trouble_of

_WORDS = 4096
_Word = TypeVar("_Word", bound=StrEnum)


def part_of(seen: Seen, role: Role) -> Part:
    """A role, as messages call it."""
    index = seen.snapshot.job.spec.roles.index(role)
    return Part(name=f'role "{role.name}"', field=f"spec.roles[{index}]", pool=role.node_pool, resources=role.resources)


def head_part(seen: Seen) -> Part:
    """The head, as messages call it."""
    head = seen.snapshot.job.spec.head
    return Part(name="head", field="spec.head", pool=head.node_pool, resources=head.resources)


def controller_part(seen: Seen) -> Part:
    """The controller, as messages call it."""
    controller = seen.snapshot.job.spec.controller
    return Part(name="controller", field="spec.controller", pool=controller.node_pool, resources=controller.resources)


def refused(seen: Seen) -> dict[str, Trouble]:
    """By role, why no more pods of it can be made; roles that have their pods are not in it."""
    found = {}
    for role in seen.hosts:
        members = seen.pods_of(role)
        if len(members) >= pods_wanted(role):
            continue
        since = max((moment for pod in members if (moment := pods.created(pod))), default=_born(seen))
        prefix = f"{names.ray_cluster(seen.snapshot.job.name)}-{role.name}-worker-"
        trouble = refused_pods(seen.snapshot.warnings, prefix, part_of(seen, role), since=since)
        if trouble is not None:
            found[role.name] = trouble
    return found


def _born(seen: Seen) -> datetime | None:
    return pods.created(seen.ray_cluster) if seen.ray_cluster is not None else None


def troubles(seen: Seen) -> dict[str, Trouble]:
    """By role, what keeps it from being whole, the worst first within a role."""
    by_role = refused(seen)
    for role in seen.hosts:
        found = next(_troubles_of(seen, role), None)
        if found is not None:
            by_role.setdefault(role.name, found)
    return {role.name: by_role[role.name] for role in seen.hosts if role.name in by_role}


def _troubles_of(seen: Seen, role: Role) -> Iterator[Trouble]:
    part = part_of(seen, role)
    whole = sum(pods.ready(pod) for pod in seen.pods_of(role)) >= pods_wanted(role)
    if whole:
        return
    claims = (claim for claim in _claims_of(seen, role) if seen.snapshot.claims.get(claim, claim) is None)
    for claim in claims:
        yield Trouble(
            reason=ConditionReason.VOLUME_MISSING,
            message=f'{part.name}: there is no claim "{claim}" in the namespace. Make it, or correct `volumes`.',
        )
    for pod in seen.pods_of(role):
        found = trouble_of(pod, part, seen.snapshot.warnings)
        if found is not None:
            yield found
    dead = never_joined(seen, role)
    failure = failure_of(dead[-1]) if dead else _last_failure(seen, role)
    moment, born = parse_time(failure.time) if failure else None, _born(seen)
    if failure is not None and failure.pod and not seen.trains and moment and born and moment >= born:
        yield Trouble(
            reason=ConditionReason.PODS_FAILING,
            message=f'{part.name}: its last pod "{failure.pod}" on node "{failure.node}" ended:'
            f" {sentence(failure.message or '')}",
        )


def _claims_of(seen: Seen, role: Role) -> Iterator[str]:
    spec = seen.snapshot.job.spec
    volumes = [
        *spec.volumes,
        *(role.pod.volumes if role.pod else ()),
        *([spec.cache_volume] if spec.cache_volume else []),
    ]
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name


def ready_pods(seen: Seen, role: Role) -> int:
    """How many pods of a role take part in training: the controller knows; before it speaks, the kubelet."""
    said = seen.said_of(role)
    if said is not None:
        return min(said.ready * role.pods_per_replica, desired_pods(seen, role))
    return min(sum(pods.ready(pod) for pod in seen.pods_of(role)), desired_pods(seen, role))


def desired_pods(seen: Seen, role: Role) -> int:
    """How many pods a role should have; a colocated one lives in those of another."""
    return pods_wanted(seen.snapshot.job.spec.role(role.colocate_with) if role.colocate_with else role)


def table(seen: Seen, course: Course) -> tuple[RoleStatus, ...]:
    """The rows of `status.roles`."""
    endings = {ending.name: ending for ending in course.ending.roles} if course.ending else {}
    return tuple(_row(seen, course, role, endings.get(role.name)) for role in seen.snapshot.job.spec.roles)


def _row(seen: Seen, course: Course, role: Role, ending: RoleEnding | None) -> RoleStatus:
    before = next((row for row in seen.before.roles if row.name == role.name), RoleStatus(name=role.name))
    said = seen.said_of(role)
    dead = never_joined(seen, role) if role.colocate_with is None else ()
    restarts = max(before.restarts, said.restarts if said else 0, ending.restarts if ending else 0)
    uncounted = max(
        before.uncounted_restarts, said.uncounted_restarts if said else 0, ending.uncounted_restarts if ending else 0
    )
    working = course.stage is Stage.WORKING
    return RoleStatus(
        name=role.name,
        type=role.type,
        scope=_scope(role),
        class_name=_resolved(role.worker.class_name, said.class_name if said else "", before.class_name),
        training_engine=_engine(TrainingEngine, role.engine.training, said.training_engine if said else "")
        or before.training_engine,
        rollout_engine=_engine(RolloutEngine, role.engine.rollout, said.rollout_engine if said else "")
        or before.rollout_engine,
        desired=desired_pods(seen, role),
        ready=ready_pods(seen, role) if working else 0,
        restarts=restarts + len(dead),
        uncounted_restarts=uncounted,
        effective_memory=before.effective_memory,
        avoided_nodes=before.avoided_nodes,
        next_restart_time=format_time(course.retry_at) if course.retry_at else None,
        last_failure=failure_of(dead[-1]) if dead else _last_failure(seen, role),
        last_recovery_milliseconds=_recovery(said, before),
    )


def _recovery(said: RoleReport | None, before: RoleStatus) -> int | None:
    if said is not None and said.last_recovery_milliseconds is not None:
        return said.last_recovery_milliseconds
    return before.last_recovery_milliseconds


def _scope(role: Role) -> RestartScope:
    if role.restart_policy.scope != RestartScope.AUTO:
        return role.restart_policy.scope
    return RestartScope.ROLE if role.type.trains else RestartScope.REPLICA


def _resolved(asked: str, said: str, before: str | None) -> str | None:
    return said or (asked if asked != AUTO else before)


def _engine(words: type[_Word], asked: _Word, said: str) -> _Word | None:
    """The engine that Auto stands for, when the runtime has said so."""
    if said and said in words.__members__.values():
        return words(said)
    return asked if asked != AUTO else None


def _last_failure(seen: Seen, role: Role) -> Failure | None:
    before = next((row.last_failure for row in seen.before.roles if row.name == role.name), None)
    newest = max(
        (incident for incident in incidents(seen) if incident.role == role.name),
        key=lambda incident: incident.time,
        default=None,
    )
    if newest is None:
        return before
    known = parse_time(before.time) if before else None
    return before if known is not None and newest.time.replace(microsecond=0) < known else _failure(newest)


def incidents(seen: Seen) -> tuple[Incident, ...]:
    """What the controller says died, of roles that there are."""
    roles = {role.name for role in seen.snapshot.job.spec.roles}
    return tuple(incident for incident in (seen.report.incidents if seen.report else ()) if incident.role in roles)


def _failure(incident: Incident) -> Failure:
    known = incident.reason in FailureReason.__members__.values()
    code = incident.exit_code
    return Failure(
        reason=FailureReason(incident.reason) if known else FailureReason.UNKNOWN,
        exit_code=code if code is not None and 0 <= code <= 255 else None,
        rank=max(incident.rank, 0),
        pod=incident.pod or None,
        node=incident.node or None,
        time=format_time(incident.time),
        message=incident.message[-_WORDS:] or None,
    )


def counts(rows: tuple[RoleStatus, ...]) -> str:
    """Roles that are whole of all roles, `3/4`."""
    return f"{sum(row.ready >= row.desired for row in rows)}/{len(rows)}"


def worst(found: Iterable[Trouble]) -> ConditionReason:
    """The reason that stands for several: the one that a person must act on."""
    order = [trouble.reason for trouble in found if trouble.reason != ConditionReason.WAITING_FOR_PODS]
    return order[0] if order else ConditionReason.WAITING_FOR_PODS
