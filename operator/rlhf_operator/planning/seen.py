"""The snapshot, sorted: which pod is the head, which belong to which role, which controller is the living one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rlhf_api import names
from rlhf_api.ending import Ending
from rlhf_api.enums import ConditionStatus, ConditionType
from rlhf_api.formats import parse_time
from rlhf_api.names import CONTROLLER_COMPONENT, HEAD_COMPONENT, ROLE_COMPONENT
from rlhf_api.types import Condition, RLHFJobStatus, Role
from rlhf_operator.config import Settings
from rlhf_operator.planning import pods
from rlhf_operator.planning.plan import Delete
from rlhf_operator.planning.snapshot import Object, Report, RoleReport, Snapshot

_UNCONFIRMED = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What planning looks at.

    Attributes:
        snapshot: All that was gathered.
        settings: The operator's.
        before: The status as it is now.
        ray_cluster: The RayCluster, unless it is on its way out.
        controller_job: The controller's Job, unless it is on its way out.
        head: The head pod that lives.
        role_pods: By the name of each role with pods of its own: those that live, newest first.
        controllers: The pods of the living controller Job, newest first; also those that ended.
        report: What the controller says, if it lives and what it says is no older than what is in the status.
    """

    snapshot: Snapshot
    settings: Settings
    before: RLHFJobStatus
    ray_cluster: Object | None
    controller_job: Object | None
    head: Object | None
    role_pods: Mapping[str, Sequence[Object]]
    controllers: Sequence[Object]
    report: Report | None

    def condition(self, kind: ConditionType) -> Condition | None:
        """A condition as the status has it now."""
        return next((found for found in self.before.conditions if found.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether a condition is true in the status as it is now."""
        found = self.condition(kind)
        return found is not None and found.status == ConditionStatus.TRUE

    @property
    def finished(self) -> bool:
        """Whether the job ended for good, by its status."""
        return self.holds(ConditionType.COMPLETE) or self.holds(ConditionType.FAILED)

    @property
    def trains(self) -> bool:
        """Whether the controller says that it trains."""
        return self.report is not None and self.report.phase == "TRAINING"

    @property
    def controller(self) -> Object | None:
        """The controller's pod that is at work or about to be."""
        return next((pod for pod in self.controllers if not pods.ended(pod) and not pods.going(pod)), None)

    @property
    def ending(self) -> tuple[Object, Ending | None] | None:
        """The newest controller's pod that ended, and what it said, if no other goes on in its place."""
        if not self.controllers or not pods.ended(self.controllers[0]):
            return None
        return self.controllers[0], ending_of(self.controllers[0])

    @property
    def lingering(self) -> list[Object]:
        """The pods that still hold something of a node, or whose deletion is not done."""
        return [pod for pod in self.snapshot.pods if not pods.ended(pod) or pods.going(pod)]

    @property
    def hosts(self) -> list[Role]:
        """The roles with pods of their own."""
        return [role for role in self.snapshot.job.spec.roles if role.colocate_with is None]

    def pods_of(self, role: Role) -> Sequence[Object]:
        """The pods in which a role lives, its own or those of the role that it is colocated with."""
        return self.role_pods.get(role.colocate_with or role.name, ())

    def said_of(self, role: Role) -> RoleReport | None:
        """What the controller says of a role."""
        found = self.report.roles if self.report else ()
        return next((report for report in found if report.name == role.name), None)

    @property
    def claim(self) -> Object | None:
        """The claim that the operator made for the job's state, or for that of a former job of this name."""
        return self.snapshot.children.get(("PersistentVolumeClaim", names.state_claim(self.snapshot.job.name)))

    @property
    def claim_leaves(self) -> bool:
        """Whether that claim is being deleted."""
        return self.claim is not None and pods.going(self.claim)

    @property
    def everything_placed(self) -> bool:
        """Whether every pod of head and roles has a node."""
        return (
            self.head is not None
            and pods.node_of(self.head) is not None
            and all(
                sum(pods.node_of(pod) is not None for pod in self.pods_of(role)) >= pods_wanted(role)
                for role in self.hosts
            )
        )

    def unconfirmed(self) -> list[Delete]:
        """Pods whose kubelet has not confirmed their end long after their grace period: their nodes are gone.

        KubeRay counts a pod on its way out as running, so that a dead node would hold a role's place for good.
        Whatever may still run there is fenced off by the controller's epoch.
        """
        return [
            pods.delete_pod(pod, grace_seconds=0)
            for pod in self.snapshot.pods
            if (limit := parse_time(pods.metadata(pod).get("deletionTimestamp"))) is not None
            and self.snapshot.now - limit > _UNCONFIRMED
        ]


def pods_wanted(role: Role) -> int:
    """How many pods a role has when it is whole."""
    return role.replicas * role.pods_per_replica


def ending_of(pod: Object) -> Ending | None:
    """The last words of a controller's pod; None if it left none that can be read."""
    return Ending.decode(str(pods.termination(pod).get("message") or ""))


def look(snapshot: Snapshot, settings: Settings) -> Seen:
    """Sort a snapshot."""
    ray_cluster = _staying(snapshot.ray_cluster)
    controller_job = _staying(snapshot.controller_job)
    present = sorted(
        (pod for pod in snapshot.pods if not pods.going(pod)),
        key=lambda pod: (str(pods.metadata(pod).get("creationTimestamp", "")), pods.name_of(pod)),
        reverse=True,
    )
    role_pods: dict[str, list[Object]] = {
        role.name: [
            pod
            for pod in present
            if pods.component(pod) == ROLE_COMPONENT
            and pods.role_of(pod) == role.name
            and not pods.ended(pod)
            and _of(pod, ray_cluster)
        ]
        for role in snapshot.job.spec.roles
        if role.colocate_with is None
    }
    heads = (pod for pod in present if pods.component(pod) == HEAD_COMPONENT and _of(pod, ray_cluster))
    controllers = [
        pod for pod in snapshot.pods if pods.component(pod) == CONTROLLER_COMPONENT and _of(pod, controller_job)
    ]
    controllers.sort(key=lambda pod: str(pods.metadata(pod).get("creationTimestamp", "")), reverse=True)
    alive = any(not pods.ended(pod) for pod in controllers)
    return Seen(
        snapshot=snapshot,
        settings=settings,
        before=snapshot.job.status or RLHFJobStatus(),
        ray_cluster=ray_cluster,
        controller_job=controller_job,
        head=next((pod for pod in heads if not pods.ended(pod)), None),
        role_pods=role_pods,
        controllers=controllers,
        report=snapshot.report if alive else None,
    )


def _staying(item: Object | None) -> Object | None:
    return None if item is None or pods.going(item) else item


def _of(pod: Object, owner: Object | None) -> bool:
    return owner is not None and pods.owned_by(pod, pods.uid_of(owner))
