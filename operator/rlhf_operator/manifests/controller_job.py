"""The Job whose pod runs the control flow. It is created once and never edited.

| the pod ends with | the Job |
|---|---|
| 0 | is complete: all steps are done, or the run was suspended |
| 3 | fails at once: another pod would meet the same |
| anything else | makes another pod, `spec.controller.maxRestarts` times |
| a drained node, an eviction, a preemption | makes another pod, which does not count |

A pod is replaced only when it is over (`podReplacementPolicy: Failed`), so that two controllers do not meet in the
ordinary case; the epoch in the state store is for the others. Deadlines and the time after the end are the operator's,
which frees the roles' pods too.
"""

from __future__ import annotations

from typing import Any

from rlhf_api import in_pod, names
from rlhf_api.ending import FAILED_FOR_GOOD
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests import sizes
from rlhf_operator.manifests.objects import Manifest, manifest
from rlhf_operator.manifests.parts import controller_part
from rlhf_operator.manifests.podtemplates import pod_template
from rlhf_operator.manifests.volumes import Mounted, mounted

CONTAINER = "controller"
CONTROL_PORT_NAME = "job-control"
METRICS_PORT_NAME = "rlhf-metrics"
"""Not `metrics`, which is KubeRay's name for Ray's own on the other pods."""
_GCS_PORT = 6379
_PATIENCE_WITH_A_NEW_HEAD = {"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}
_START_SECONDS = 600
"""The health service answers before the heavy imports, but an image may be slow to read at first."""


def controller_job(job: RLHFJob, settings: Settings) -> Manifest:
    """The Job that runs a job's control flow."""
    part = controller_part(job)
    template = pod_template(
        job,
        settings,
        part,
        container={
            "name": CONTAINER,
            "command": list(in_pod.CONTROLLER_COMMAND),
            "ports": [
                _port(CONTROL_PORT_NAME, in_pod.CONTROL_PORT),
                _port("health", in_pod.HEALTH_PORT),
                _port(METRICS_PORT_NAME, in_pod.METRICS_PORT),
            ],
            "startupProbe": _probe(period=2, failures=_START_SECONDS // 2),
            "livenessProbe": _probe(period=10, failures=6),
            "readinessProbe": _probe(period=5, failures=2, service=in_pod.READY_SERVICE),
        },
        resources=sizes.container_resources(
            part.resources, requests=sizes.CONTROLLER_REQUESTS, limits=sizes.CONTROLLER_LIMITS
        ),
        shared_memory=sizes.shared_memory(part.resources, memory=sizes.CONTROLLER_LIMITS["memory"]),
        env=_ray(job),
        extra_volumes=_configuration(job),
        grace_seconds=job.spec.suspend_grace_period_seconds,
    )
    spec = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": job.spec.controller.max_restarts,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [FAILED_FOR_GOOD]},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": template,
    }
    return manifest("batch/v1", "Job", names.controller(job.name), job=job, spec=spec)


def _ray(job: RLHFJob) -> dict[str, str]:
    """What KubeRay gives the other nodes of Ray; the controller's pod is a node that KubeRay does not know."""
    patience = {} if job.spec.head.gcs_fault_tolerance is None else _PATIENCE_WITH_A_NEW_HEAD
    return {"RAY_ADDRESS": f"{names.head_service(job.name)}:{_GCS_PORT}", **patience}


def _configuration(job: RLHFJob) -> list[Mounted]:
    folder, _, _ = in_pod.JOB_FILE.rpartition("/")
    keys = (in_pod.CONTROL_TOKEN_KEY, in_pod.TLS_CERTIFICATE_KEY, in_pod.TLS_KEY_KEY)
    secret: dict[str, Any] = {
        "secretName": names.token_secret(job.name),
        "defaultMode": 0o440,
        "items": [{"key": key, "path": key} for key in keys],
    }
    return [
        mounted("rlhf-job", folder, read_only=True, configMap={"name": names.runtime_config(job.name)}),
        mounted("rlhf-secret", in_pod.SECRET_FOLDER, read_only=True, secret=secret),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _probe(*, period: int, failures: int, service: str = "") -> dict[str, Any]:
    grpc = {"port": in_pod.HEALTH_PORT, "service": service}
    return {"grpc": grpc, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}
