"""Fake nodes for scale tests: kwok plays kubelet for Node objects behind which there is no machine.

They carry a taint that nothing of ours tolerates; a pod that is meant for them names it and the label ``type: kwok``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster import api, builds, paths, processes
from e2e.cluster.config import GPU_RESOURCE, HUB_ADDRESS, POOL_LABEL
from e2e.cluster.kubectl import apply, kubectl
from e2e.cluster.network import HUB
from e2e.cluster.processes import Process

TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
TYPE_LABEL = {"type": "kwok"}
POOL = "kwok"
POD_RANGE = "198.18.128.0/17"
"""The half of the pods' range that no real node has a part of."""
READY_SECONDS = 60
_LEASE_SECONDS = 8
"""Renewed four times as often; without it a fake node is taken for lost soon after it was made."""
_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""Not `pod-complete`, by which the pod of a Job, such as a controller, would end as soon as it runs."""


def manifests(count: int) -> list[dict[str, Any]]:
    """The Node objects ``kwok-0000`` and on."""
    return [_node(f"kwok-{index:04d}") for index in range(count)]


def start() -> None:
    """Start kwok in the hub; it does nothing until there are nodes for it."""
    stages = builds.find(builds.KWOK).files("kustomize") / "stage"
    config = paths.STATE / "kwok.yaml"
    config.write_text("---\n".join((stages / name).read_text() for name in _STAGES))
    Process(
        name="kwok",
        argv=[
            str(builds.find(builds.KWOK).program("kwok")),
            f"--config={config}",
            f"--kubeconfig={paths.KUBECONFIG}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
            f"--cidr={POD_RANGE}",
            f"--node-ip={HUB_ADDRESS}",
        ],
        netns=HUB,
        cgroup="kwok",
    ).start()


@contextmanager
def nodes(count: int) -> Iterator[None]:
    """``count`` fake nodes and kwok for a while, on a cluster that was brought up without any."""
    builds.build(builds.KWOK)
    start()
    apply(*manifests(count))
    try:
        wait(count)
        yield
    finally:
        remove()


def remove() -> None:
    """Remove the fake nodes and stop kwok; pods on them are for others to remove."""
    kubectl("delete", "nodes", "--selector=type=kwok", "--timeout=60s")
    processes.find("kwok").forget()


def wait(count: int, *, timeout: float = READY_SECONDS) -> None:
    """Wait until ``count`` fake nodes are Ready.

    Raises:
        ClusterError: they are not within ``timeout`` seconds, or kwok has ended.
    """
    kwok = processes.find("kwok")
    processes.wait_until(
        f"{count} fake nodes are Ready",
        lambda: sum(map(api.is_ready, api.call("/api/v1/nodes?labelSelector=type%3Dkwok")["items"])) >= count,
        timeout=timeout,
        processes=[kwok],
    )


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU_RESOURCE: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": _ANNOTATION,
            "labels": {
                **TYPE_LABEL,
                POOL_LABEL: POOL,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": resources, "allocatable": resources},
    }
