"""Pods that died before they joined the job: nobody else counts them.

A worker that had joined is the runtime's to judge and count. A pod that ends before training began never was in its
books, and KubeRay makes the next one at once and for ever. Here each is counted once, by the time of its end, and a
role whose pods keep dying ends the job with the cause. Back-off and rules come with the restart policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rlhf_api.enums import ConditionType
from rlhf_api.formats import format_time, parse_time
from rlhf_api.names import ROLE_COMPONENT
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import Failure, Role, RoleStatus
from rlhf_operator.planning import pods
from rlhf_operator.planning.course import Verdict
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.snapshot import Object

_WORDS = 2000


def never_joined(seen: Seen, role: Role) -> Sequence[Object]:
    """A role's pods that ended since the last one counted, oldest first, if the runtime cannot have known them."""
    if seen.trains or seen.holds(ConditionType.RUNNING):
        return ()
    head = pods.created(seen.head) if seen.head is not None else None
    if seen.snapshot.job.spec.suspend or head is None:
        return ()
    known = _last_time(seen, role)
    found = [
        (moment, pod)
        for pod in seen.snapshot.pods
        if pods.component(pod) == ROLE_COMPONENT
        and pods.role_of(pod) == role.name
        and pods.phase(pod) == "Failed"
        and (moment := pods.ended_at(pod)) is not None
        and (known is None or moment > known)
        and (pods.created(pod) or head) >= head  # one that is older died with the head before
        and ((asked := pods.asked_to_go(pod)) is None or moment < asked)  # it was told to end, as by a roll-out
    ]
    return [pod for _, pod in sorted(found, key=lambda pair: (pair[0], pods.name_of(pair[1])))]


def failure_of(pod: Object) -> Failure:
    """How a pod ended, for the status."""
    moment = pods.ended_at(pod)
    code = pods.termination(pod).get("exitCode")
    return Failure(
        reason=pods.failure_reason(pod),
        exit_code=int(code) if code is not None and 0 <= int(code) <= 255 else None,
        pod=pods.name_of(pod) or None,
        node=pods.node_of(pod),
        time=format_time(moment) if moment else None,
        message=pods.how_it_ended(pod)[-_WORDS:] or None,
    )


def exhausted(seen: Seen) -> Verdict | None:
    """The end of a job one of whose roles never gets to its feet."""
    for role in seen.hosts:
        dead = never_joined(seen, role)
        if not dead:
            continue
        count = _counted(seen, role) + len(dead)
        if count > role.restart_policy.max_restarts:
            last = failure_of(dead[-1])
            return Verdict(
                type=ConditionType.FAILED,
                reason=ConditionReason.RESTARTS_EXHAUSTED,
                message=f'Role "{role.name}": {count} pods ended before they joined, more than its'
                f' `restartPolicy.maxRestarts` of {role.restart_policy.max_restarts}. The last was "{last.pod}"'
                f' on node "{last.node}": {last.message}',
            )
    return None


def _before(seen: Seen, role: Role) -> RoleStatus | None:
    return next((status for status in seen.before.roles if status.name == role.name), None)


def _counted(seen: Seen, role: Role) -> int:
    before = _before(seen, role)
    return before.restarts if before else 0


def _last_time(seen: Seen, role: Role) -> datetime | None:
    before = _before(seen, role)
    return parse_time(before.last_failure.time) if before and before.last_failure else None
