"""The PodMonitor of a job: our metrics, from the controller, and Ray's own, from every pod."""

from __future__ import annotations

from rlhf_api import names
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests.controller_job import METRICS_PORT_NAME
from rlhf_operator.manifests.objects import Manifest, manifest

_RAY_METRICS_PORT_NAME = "metrics"
"""KubeRay's, on the head and the roles."""


def pod_monitor(job: RLHFJob, settings: Settings) -> Manifest:
    """The PodMonitor of a job's pods, with the labels by which the cluster's Prometheus selects it."""
    spec = {
        "selector": {"matchLabels": names.job_labels(job.name)},
        "podTargetLabels": [names.JOB_LABEL, names.ROLE_LABEL, names.COMPONENT_LABEL],
        "podMetricsEndpoints": [{"port": METRICS_PORT_NAME}, {"port": _RAY_METRICS_PORT_NAME}],
    }
    made = manifest("monitoring.coreos.com/v1", "PodMonitor", names.network_policy(job.name), job=job, spec=spec)
    made["metadata"]["labels"] = {**settings.pod_monitor_labels, **made["metadata"]["labels"]}
    return made
