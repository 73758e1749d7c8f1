"""The RayCluster as it should be now, role by role.

```
what the user wrote for a role changed ─► RayCluster with the new group ─► (next look) ExpectLoss, old pods deleted
replicas grew                          ─► RayCluster with more, ScaleRole
replicas shrank                        ─► ScaleRole ─► (the controller agreed) RayCluster with fewer, pods named
a group cannot make pods               ─► the same RayCluster with that group last: KubeRay stops at the first error
a head died with all it knew           ─► role and controller pods that had joined it are deleted
```
Each arrow is one look: what was done is read from the RayCluster and the pods, so that nothing has to be remembered.
KubeRay makes pods from what the RayCluster says at that moment, hence first the RayCluster, then the pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlhf_api import GROUP, names
from rlhf_api.enums import FailureReason
from rlhf_api.names import RESTART_ANNOTATION
from rlhf_api.types import Role
from rlhf_operator.manifests import raycluster
from rlhf_operator.planning import pods
from rlhf_operator.planning.plan import Call, Delete, Event, ExpectLoss, Manifest, RestartRole, ScaleRole
from rlhf_operator.planning.seen import Seen, pods_wanted
from rlhf_operator.planning.snapshot import Object
from rlhf_operator.planning.trouble import Trouble

PLACED_ANNOTATION = f"{GROUP}/placed"
"""On a RayCluster: all its pods were placed once, so that the start deadline is behind it."""
HEAD_GROUP = "headgroup"
_RESTART_MARGIN = 120.0
_GRACE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the roles need.

    Attributes:
        manifest: The RayCluster to apply.
        calls: To the controller.
        deletes: Pods.
        lost_head: Whether pods go because they had joined a head that is gone.
    """

    manifest: Manifest
    calls: Sequence[Call] = ()
    deletes: Sequence[Delete] = field(default=())
    lost_head: bool = False


def first_ray_cluster(seen: Seen) -> Manifest:
    """The RayCluster of a job that has none. Restarts asked for before are done with: every process is new."""
    job = seen.snapshot.job
    handled = _joined(restart_requests(_restart_text(seen)))
    return _annotated(raycluster.ray_cluster(job, seen.settings), {RESTART_ANNOTATION: handled})


def rollout(seen: Seen, refused: Mapping[str, Trouble]) -> Rollout:
    """What has to change for the living RayCluster and its pods.

    Args:
        seen: What is there; it has a RayCluster.
        refused: Why no more pods can be made, by role.
    """
    living = seen.ray_cluster
    assert living is not None
    job = seen.snapshot.job
    calls: list[Call] = []
    replicas: dict[str, int] = {}
    leaving: dict[str, list[str]] = {}
    changed = raycluster.changed_groups(job, living)
    calls += [call for role in seen.hosts if role.name in changed for call in _expect_loss(seen, role)]
    deletes = _of_old_rendering(seen, changed)
    calls += [
        call
        for role in seen.hosts
        if any(delete.name == pods.name_of(pod) for delete in deletes for pod in seen.pods_of(role))
        for call in _expect_loss(seen, role)
    ]
    for role in seen.hosts:
        scale, number, named = _scale(seen, role, _group(living, role.name))
        calls += scale
        replicas[role.name] = number
        if named:
            leaving[role.name] = named
    lost = _of_lost_head(seen)
    manifest = raycluster.ray_cluster(
        job,
        seen.settings,
        living=living,
        order=_order(living, refused),
        replicas=replicas,
        workers_to_delete=leaving,
    )
    placed = seen.everything_placed or pods.annotation(living, PLACED_ANNOTATION) is not None
    restarts, handled = _restarts(seen)
    annotations = {RESTART_ANNOTATION: handled, PLACED_ANNOTATION: "true" if placed else ""}
    known = {delete.uid for delete in deletes}
    return Rollout(
        manifest=_annotated(manifest, annotations),
        calls=[*calls, *restarts],
        deletes=[*deletes, *(delete for delete in lost if delete.uid not in known)],
        lost_head=bool(lost),
    )


def _annotated(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    said = {name: text for name, text in annotations.items() if text}
    if not said:
        return manifest
    metadata = {**manifest["metadata"]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **said}
    return {**manifest, "metadata": metadata}


def _groups(ray_cluster: Object) -> Sequence[Object]:
    return (ray_cluster.get("spec") or {}).get("workerGroupSpecs") or ()


def _group(ray_cluster: Object, name: str) -> Object:
    return next((group for group in _groups(ray_cluster) if group.get("groupName") == name), {})


def _order(living: Object, refused: Mapping[str, Trouble]) -> list[str]:
    present = [str(group.get("groupName")) for group in _groups(living)]
    return [name for name in present if name not in refused] + [name for name in present if name in refused]


def _expect_loss(seen: Seen, role: Role) -> list[Call]:
    """For the role and those that share its pods."""
    if seen.report is None:
        return []
    grace = max((float(_grace_of(pod)) for pod in seen.pods_of(role)), default=_GRACE)
    return [
        ExpectLoss(role=one.name, reason=FailureReason.DELETED_BY_USER, seconds=grace + _RESTART_MARGIN)
        for one in seen.snapshot.job.spec.roles
        if role.name in (one.name, one.colocate_with)
    ]


def _grace_of(pod: Object) -> float:
    return float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or _GRACE)


def _of_old_rendering(seen: Seen, changed: Sequence[str]) -> list[Delete]:
    """Pods made before the change that the RayCluster has by now."""
    job = seen.snapshot.job
    groups: dict[str, Sequence[Object]] = {role.name: seen.pods_of(role) for role in seen.hosts}
    groups[HEAD_GROUP] = [seen.head] if seen.head is not None else []
    deletes = []
    for group, members in groups.items():
        if group in changed or not members:
            continue
        want = raycluster.user_hash(job, group)
        deletes += [pods.delete_pod(pod) for pod in members if pods.spec_hash(pod) not in (None, want)]
    return deletes


def _of_lost_head(seen: Seen) -> list[Delete]:
    """Pods that had joined a head which is gone; without fault tolerance they cannot join another.

    A pod that was made before this head, and whose container runs since before it too, had joined an earlier one. Both
    are asked: a pod that merely waited joins this head, and a node's clock alone must not decide.
    """
    if seen.snapshot.job.spec.head.gcs_fault_tolerance is not None or seen.head is None:
        return []
    head = pods.created(seen.head)
    members = [pod for role in seen.hosts for pod in seen.pods_of(role)]
    if seen.controller is not None:
        members.append(seen.controller)
    return [
        pods.delete_pod(pod)
        for pod in members
        if head is not None
        and (made := pods.created(pod)) is not None
        and (start := pods.started(pod)) is not None
        and made < head
        and start <= head
    ]


def _scale(seen: Seen, role: Role, group: Object) -> tuple[list[Call], int, list[str]]:
    """The calls, the number of pods now, and the names of pods that go."""
    want = pods_wanted(role)
    has = int(group.get("replicas") or 0) if group else want
    said = seen.said_of(role)
    # Before pods go the controller must have said which: an operator that has just begun asks it again.
    unsaid = want < has and role.name not in seen.snapshot.idle_pods
    ask = said is not None and said.desired != 0 and (said.desired != role.replicas or unsaid)
    calls: list[Call] = [ScaleRole(role=role.name, replicas=role.replicas)] if ask else []
    if want < has and ask:
        return calls, has, []
    return calls, want, _who_leaves(seen, role, group, want)


def _who_leaves(seen: Seen, role: Role, group: Object, want: int) -> list[str]:
    """Pods without a replica first, then those that are not ready, then the newest."""
    alive = list(seen.pods_of(role))
    there = {pods.name_of(pod) for pod in seen.snapshot.pods}
    strategy = group.get("scaleStrategy") or {}
    named = [name for name in strategy.get("workersToDelete") or () if name in there]
    staying = [pod for pod in alive if pods.name_of(pod) not in named]
    idle = seen.snapshot.idle_pods.get(role.name, ())
    # Newest first already, and sorting is stable.
    staying.sort(key=lambda pod: (pods.name_of(pod) not in idle, pods.ready(pod)))
    surplus = max(len(staying) - want, 0)
    return [*named, *(pods.name_of(pod) for pod in staying[:surplus])]


def _restart_text(seen: Seen) -> str:
    return seen.snapshot.job.metadata.annotations.get(RESTART_ANNOTATION, "")


def _restarts(seen: Seen) -> tuple[list[Call], str]:
    """Restarts that were asked for since the last look, and all that are done with."""
    assert seen.ray_cluster is not None
    asked = restart_requests(_restart_text(seen))
    handled = restart_requests(pods.annotation(seen.ray_cluster, RESTART_ANNOTATION) or "")
    if seen.report is None:
        return [], _joined(handled)
    roles = {role.name for role in seen.snapshot.job.spec.roles}
    new = [role for role, text in asked.items() if role in roles and handled.get(role) != text]
    calls: list[Call] = [
        RestartRole(role=role, reason=f"asked for with the annotation {names.RESTART_ANNOTATION}") for role in new
    ]
    return calls, _joined(asked)


def misdirected_restarts(seen: Seen) -> Iterator[Event]:
    """What to tell of a restart that was asked for a role that there is not."""
    roles = [role.name for role in seen.snapshot.job.spec.roles]
    for role, text in restart_requests(_restart_text(seen)).items():
        if role not in roles:
            listed = ", ".join(f'"{name}"' for name in roles)
            yield Event(
                type="Warning",
                reason="UnknownRole",
                message=f'Annotation `{RESTART_ANNOTATION}` asks for a restart of role "{role}"; the job has {listed}.',
                key=f"unknown-role/{role}={text}",
            )


def restart_requests(text: str) -> dict[str, str]:
    """What `rlhf.dev/restart` asks for: role to whatever tells this request from the last."""
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {role.strip(): what.strip() for role, _, what in pairs if role.strip()}


def _joined(requests: Mapping[str, str]) -> str:
    return ",".join(f"{role}={what}" for role, what in sorted(requests.items()))
