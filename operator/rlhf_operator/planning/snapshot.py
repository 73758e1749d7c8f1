"""What is known of one job at one moment. Objects are as the API server gives them, apart from the job itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rlhf_api.reasons import ConditionReason
from rlhf_api.types import RLHFJob

Object = Mapping[str, Any]
"""A Kubernetes object as the API server gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleReport:
    """A role as the controller sees it."""

    name: str
    desired: int = 0
    ready: int = 0
    restarts: int = 0
    uncounted_restarts: int = 0
    class_name: str = ""
    training_engine: str = ""
    rollout_engine: str = ""
    last_recovery_milliseconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One death, as the controller judged it; `id` is unique within the job."""

    id: str
    role: str
    worker: str = ""
    rank: int = 0
    reason: str = "Unknown"
    exit_code: int | None = None
    pod: str = ""
    node: str = ""
    time: datetime
    message: str = ""
    step: int = 0
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the controller said last; see `job_control.proto`. `phase` is the name there, such as "TRAINING"."""

    epoch: int
    phase: str
    message: str = ""
    time: datetime
    step: int = 0
    total_steps: int | None = None
    reward: float | None = None
    evaluation: float | None = None
    snapshot_step: int | None = None
    started: datetime | None = None
    effective_training_time_ratio: float | None = None
    roles: Sequence[RoleReport] = ()
    incidents: Sequence[Incident] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An object of the job that the API server does not take, as the executor was told last."""

    kind: str
    name: str
    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a plan is made from.

    Attributes:
        job: The job.
        now: The time, UTC.
        kuberay: Whether the cluster has the RayCluster resource.
        ray_cluster: The job's RayCluster.
        controller_job: The batch/v1 Job of the controller.
        pods: All pods with the job's label: head, roles, controller; also those that are terminating.
        children: The job's other objects by kind and name: ConfigMap, Service, NetworkPolicy, PersistentVolumeClaim,
            PodMonitor. Secrets are not there: the operator may not read them.
        claims: The claims that the manifest names, by name; None for one that does not exist. A claim that was not
            asked for is not in it.
        warnings: Warning events about the job's RayCluster, its pods and its controller's Job, oldest first.
        report: What the controller said last, while it runs.
        idle_pods: By role, pods that the controller said hold no replica any more, in reply to the last `ScaleRole`.
        refusals: What the API server refuses of what the last plan wanted.
        namespace_terminating: Whether the job's namespace is being deleted.
    """

    job: RLHFJob
    now: datetime
    kuberay: bool = True
    ray_cluster: Object | None = None
    controller_job: Object | None = None
    pods: Sequence[Object] = ()
    children: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    warnings: Sequence[Object] = ()
    report: Report | None = None
    idle_pods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refusals: Sequence[Refusal] = ()
    namespace_terminating: bool = False
