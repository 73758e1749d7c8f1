"""Claims get volumes that behave as real ones: one node's disk, or a file system that all nodes share."""

from typing import Any

from e2e.lab import Lab
from e2e.manifests import claim, pod


def pod_with(name: str, claimed: str, *, pool: str = "") -> dict[str, Any]:
    """A pod that has the claim's volume at ``/data``."""
    found = pod(name, pool=pool, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}])
    found["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return found


def test_a_volume_of_one_node_draws_later_pods_to_that_node_and_no_other(lab: Lab) -> None:
    lab.apply(claim("disk", "ReadWriteOnce"))
    lab.run_pods(pod_with("writer", "disk", pool="gpu-b"))
    lab.execute("writer", "sh", "-c", "echo kept > /data/file")
    lab.kubectl("delete", "pod", "writer")

    lab.run_pods(pod_with("reader", "disk"))  # may run anywhere, by itself
    assert lab.get("pod", "reader")["spec"]["nodeName"] == lab.node("gpu-b")
    assert lab.execute("reader", "cat", "/data/file").strip() == "kept"

    lab.apply(pod_with("elsewhere", "disk", pool="gpu-a"))
    lab.wait("the scheduler refuses another node", lambda: "affinity" in _why_pending(lab, "elsewhere"), timeout=30)


def test_a_shared_volume_is_the_same_on_all_nodes(lab: Lab) -> None:
    lab.apply(claim("shared", "ReadWriteMany", storageClassName="shared"))
    lab.run_pods(pod_with("a", "shared", pool="gpu-a"), pod_with("b", "shared", pool="cpu"))
    lab.execute("a", "sh", "-c", "echo seen > /data/file")
    assert lab.execute("b", "cat", "/data/file").strip() == "seen"


def _why_pending(lab: Lab, name: str) -> str:
    conditions = lab.get("pod", name)["status"].get("conditions", [])
    return " ".join(found.get("message", "") for found in conditions if found["type"] == "PodScheduled")
