"""From what is seen of a job to what is to be done about it.

Level-based: everything is decided from the present state, nothing from what happened, so that planning again after a
crash, an operator's absence or a hand's interference leads to the same end, and planning twice changes nothing.
"""

from __future__ import annotations

from rlhf_api.names import CONTROLLER_COMPONENT, MANAGER
from rlhf_operator.config import Settings
from rlhf_operator.manifests.children import children
from rlhf_operator.planning import lifecycle, made_once, pods, roles, rollout, start
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.events import events
from rlhf_operator.planning.plan import Event, Plan
from rlhf_operator.planning.seen import Seen, look
from rlhf_operator.planning.snapshot import Snapshot
from rlhf_operator.planning.status import status

_UNSETTLED_SECONDS = 10.0


def plan(snapshot: Snapshot, settings: Settings) -> Plan:
    """What to do about one job now.

    ```
    snapshot ─► another's, or being deleted? ── yes ─► nothing
        │
        ├─► ended, or ends now? ── yes ─► free every pod but the controller's, which has the log; TTL
        ├─► `suspend`?          ── yes ─► ask the controller to leave, then free everything
        ├─► refused?            ── yes ─► say why (KubeRay, state, namespace); what lives goes on
        ├─► start deadline?     ── yes ─► free everything, come back after a wait
        └─► work: ConfigMap, Secret, ... ─► RayCluster (roll-out, scale) ─► its head is there ─► controller's Job
        │
        └─► all ways lead to the whole status, and to events about what changed in it
    ```
    """
    job = snapshot.job
    if job.metadata.deletion_timestamp is not None or job.spec.managed_by not in (None, MANAGER):
        return Plan()
    seen = look(snapshot, settings)
    course = _course(seen)
    troubles = roles.troubles(seen)
    after = status(seen, course, troubles)
    told = [*course.events, *events(seen, after)]
    whole = after.summary == "Training"
    return Plan(
        calls=course.calls,
        deletes=course.deletes,
        applies=course.applies,
        status=after,
        events=told,
        wake_in=_wake_in(seen, course, whole=whole),
        whole=whole,
        delete_job=course.delete_job,
    )


def _course(seen: Seen) -> Course:
    if seen.finished:
        return lifecycle.finish(seen, None)
    if (verdict := lifecycle.verdict(seen)) is not None:
        return lifecycle.finish(seen, verdict)
    if seen.snapshot.job.spec.suspend:
        return lifecycle.suspend(seen)
    if (refusal := start.refusal(seen)) is not None:
        return Course(stage=Stage.REFUSED, refusal=refusal, wake_in=_UNSETTLED_SECONDS)
    return start.hold(seen) or _work(seen)


def _work(seen: Seen) -> Course:
    """A job that is to run: make what is missing, restore what differs, roll out what the user changed."""
    applies = made_once.with_claim(seen, children(seen.snapshot.job, seen.settings))
    deletes = [*seen.unconfirmed(), *lifecycle.renew_controller(seen)]
    ending = seen.ending
    last_words = ending[1] if ending else None
    if former := lifecycle.of_former_job(seen):
        return Course(stage=Stage.WORKING, deletes=former)
    if seen.ray_cluster is None:
        # KubeRay takes pods of an earlier RayCluster of the same name for its own: they must be gone first.
        deletes += lifecycle.leftovers(seen)
        free = seen.snapshot.ray_cluster is None and not _ray_pods(seen) and not seen.claim_leaves
        made = [rollout.first_ray_cluster(seen)] if free else []
        told = [_created(seen)] if free and seen.before.start_time is None else []
        return Course(stage=Stage.WORKING, deletes=deletes, applies=[*applies, *made], events=told, ending=last_words)
    rolled = rollout.rollout(seen, roles.refused(seen))
    applies.append(rolled.manifest)
    applies += made_once.controller(seen)
    known = {delete.uid for delete in deletes}
    deletes += [delete for delete in rolled.deletes if delete.uid not in known]
    return Course(
        stage=Stage.WORKING,
        calls=rolled.calls,
        deletes=deletes,
        applies=applies,
        events=list(rollout.misdirected_restarts(seen)),
        ending=last_words,
        lost_head=rolled.lost_head,
    )


def _ray_pods(seen: Seen) -> bool:
    return any(pods.component(pod) != CONTROLLER_COMPONENT for pod in seen.snapshot.pods)


def _created(seen: Seen) -> Event:
    job = seen.snapshot.job
    names = ", ".join(f'"{role.name}"' for role in job.spec.roles)
    return Event(
        type="Normal",
        reason="Created",
        message=f'Made RayCluster "{job.name}" with roles {names}.',
        key=f"created/{job.metadata.uid}",
    )


def _wake_in(seen: Seen, course: Course, *, whole: bool) -> float | None:
    """When to look again although no watch says so; None: at the operator's leisure."""
    now = seen.snapshot.now
    due = [course.wake_in]
    if course.stage in (Stage.WORKING, Stage.SUSPENDING):
        due.append(lifecycle.until(start.start_deadline(seen), now))
        due.append(lifecycle.until(lifecycle.active_deadline(seen), now))
        due.append(seen.settings.progress_seconds if whole else _UNSETTLED_SECONDS)
    return min((seconds for seconds in due if seconds is not None), default=None)
