"""Who may reach a job's pods.

Ray's processes listen on ports that are drawn by chance, and with Ray's token anyone who reaches them may run code.
Therefore the pods of a job may reach each other on every port, and nobody else any but these: the operator's namespace
JobControl, and everybody the metrics. The kubelet's probes need no rule.

Egress is left open: weights, data, object stores, trackers and a Redis can be anywhere, and only the user knows where.
"""

from __future__ import annotations

from typing import Any

from rlhf_api import in_pod, names
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests.controller_job import CONTROL_PORT_NAME
from rlhf_operator.manifests.objects import Manifest, controller_labels, manifest

RAY_METRICS_PORT = 8080
"""KubeRay's default."""
_NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


def controller_service(job: RLHFJob) -> Manifest:
    """The Service by which the operator finds the controller, also while it is not ready to train."""
    spec = {
        "selector": controller_labels(job),
        "publishNotReadyAddresses": True,
        "ports": [{"name": CONTROL_PORT_NAME, **_tcp(in_pod.CONTROL_PORT), "targetPort": CONTROL_PORT_NAME}],
    }
    return manifest("v1", "Service", names.controller(job.name), job=job, spec=spec)


def network_policy(job: RLHFJob, settings: Settings) -> Manifest:
    """The NetworkPolicy of a job's pods."""
    pods = {"matchLabels": names.job_labels(job.name)}
    operator = {"matchLabels": {_NAMESPACE_NAME_LABEL: settings.operator_namespace}}
    spec = {
        "podSelector": pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": pods}]},
            {"from": [{"namespaceSelector": operator}], "ports": [_tcp(in_pod.CONTROL_PORT)]},
            {"ports": [_tcp(in_pod.METRICS_PORT), _tcp(RAY_METRICS_PORT)]},
        ],
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", names.network_policy(job.name), job=job, spec=spec)


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}
