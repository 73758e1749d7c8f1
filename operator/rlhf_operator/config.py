"""The operator's settings: what an administrator chose when installing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the chart's values become; each is a flag or variable of the operator's process.

    Attributes:
        worker_image: The image of heads, roles and controllers whose manifest names none.
        worker_pull_policy: Its pull policy; "" leaves it to Kubernetes.
        ray_version: The version of Ray in the worker image.
        namespaces: The namespaces that are watched; empty means all.
        operator_namespace: Where the operator runs; its pods may call JobControl.
        key: 32 random bytes or more, from which the tokens of jobs are derived.
        state_storage_class: The class of claims made for jobs that name no place for their state; None: such jobs
            are refused.
        state_access_mode: The access mode of these claims.
        state_size: Their size.
        network_policies: Whether each job gets a NetworkPolicy.
        pod_monitors: Whether each job gets a PodMonitor.
        pod_monitor_labels: Labels of these, by which a Prometheus selects them.
        resync_seconds: The longest time between two looks at one job.
        progress_seconds: Time between two looks at a job that trains.
    """

    worker_image: str
    worker_pull_policy: str = ""
    ray_version: str = "2.60.0"
    namespaces: tuple[str, ...] = ()
    operator_namespace: str = "rlhf-operator"
    key: bytes = field(default=b"", repr=False)
    state_storage_class: str | None = None
    state_access_mode: str = "ReadWriteMany"
    state_size: str = "10Gi"
    network_policies: bool = True
    pod_monitors: bool = False
    pod_monitor_labels: Mapping[str, str] = field(default_factory=dict)
    resync_seconds: float = 300.0
    progress_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the operator's process runs; nothing here changes what becomes of a job.

    Attributes:
        identity: This replica's name: its pod's.
        leader_election: Whether only the replica that holds the lease works.
        lease_seconds: A lease that is not renewed so long is free.
        renew_seconds: A leader that cannot renew so long gives up; less than `lease_seconds`.
        retry_seconds: Between two tries to renew or to get the lease.
        workers: Jobs that are looked at at the same time.
        stuck_seconds: A look that takes longer, or a job that waits longer for its look, makes the liveness probe fail.
        audit_seconds: Between two comparisons of what the watches brought with what the API server lists.
        health_port: Of the probes.
        metrics_port: Of Prometheus metrics.
        context: The kubeconfig's context, outside a cluster.
    """

    identity: str
    leader_election: bool = True
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    workers: int = 8
    stuck_seconds: float = 180.0
    audit_seconds: float = 120.0
    health_port: int = 8080
    metrics_port: int = 9090
    context: str | None = None
