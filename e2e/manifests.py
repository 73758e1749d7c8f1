"""Objects that several tests use, as small as they can be."""

from typing import Any

from e2e.cluster.config import GPU_RESOURCE, POOL_LABEL

WORKER_IMAGE = "localhost/rlhf-worker:dev"
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def pod(name: str, *command: str, node: str = "", pool: str = "", **spec: Any) -> dict[str, Any]:
    """A pod of one container from the worker image, on a node or pool (GPU taint tolerated)."""
    place: dict[str, Any] = {"nodeName": node} if node else {}
    if pool:
        place["nodeSelector"] = {POOL_LABEL: pool}
    container = {
        "name": "main",
        "image": WORKER_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command) or ["sleep", "infinity"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "tolerations": [GPU_TOLERATION],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            **place,
            **spec,
        },
    }


def ray_cluster(name: str, groups: dict[str, str]) -> dict[str, Any]:
    """A RayCluster with its head on the CPU pool and a group of one worker, with a GPU, on each named pool."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": {"spec": _ray_pod("ray-head", {POOL_LABEL: "cpu"}, {"memory": "2Gi", "cpu": "1"})},
            },
            "workerGroupSpecs": [
                {
                    "groupName": group,
                    "replicas": 1,
                    "minReplicas": 0,
                    "maxReplicas": 4,
                    "rayStartParams": {"num-cpus": "1"},
                    "template": {
                        "spec": _ray_pod(
                            "ray-worker", {POOL_LABEL: pool}, {"memory": "2Gi", "cpu": "1", GPU_RESOURCE: "1"}
                        )
                    },
                }
                for group, pool in groups.items()
            ],
        },
    }


def _ray_pod(name: str, selector: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    requests = {**limits, "cpu": "100m", "memory": "500Mi"}
    return {
        "nodeSelector": selector,
        "tolerations": [GPU_TOLERATION],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": name,
                "image": WORKER_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": limits, "requests": requests},
            }
        ],
    }


def claim(name: str, mode: str, **spec: str) -> dict[str, Any]:
    """A claim of the default class, unless ``storageClassName`` is given."""
    size = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": size, **spec},
    }
