"""Wait for Deployments, and when one does not come, say which pod is the cause, why, and what it logged."""

import time
from typing import Any, NamedTuple

from e2e.cluster import api
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import kubectl

_NO_REGISTRY = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_FINAL = ("CreateContainerConfigError", "RunContainerError")
_RESTARTS_TO_GIVE_UP = 3
_LOG_LINES = 15


class Deployment(NamedTuple):
    """Which Deployment."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}"


def wait_available(deployment: Deployment, *, timeout: float) -> None:
    """Wait until all pods of a Deployment's newest version are available, and none of an older one is left.

    Raises:
        ClusterError: they are not within ``timeout`` seconds, or one has a problem that time will not heal.
    """
    give_up = time.monotonic() + timeout
    while not is_available(found := api.call(deployment.path)):
        pods = pods_of(found)
        hopeless = [text for pod in pods if (text := problem(pod, final=True))]
        if hopeless or time.monotonic() > give_up:
            raise ClusterError(_explain(deployment, pods, "" if hopeless else f" within {timeout:.0f} s"))
        time.sleep(0.25)


def is_available(deployment: dict[str, Any]) -> bool:
    """Whether a Deployment's newest version runs, and only that."""
    spec, status = deployment["spec"], deployment.get("status", {})
    wanted = spec.get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return seen and all(count == wanted for count in counts)


def problem(pod: dict[str, Any], *, final: bool = False) -> str | None:
    """What keeps a pod from being ready, or ``None``; with ``final`` only what waiting will not heal."""
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        if reason in _NO_REGISTRY:
            return f'{reason}: the image "{container["image"]}" is not on node {pod["spec"].get("nodeName")}'
        hopeless = reason in _FINAL or (waiting and container.get("restartCount", 0) >= _RESTARTS_TO_GIVE_UP)
        if hopeless or (waiting and not final):
            return ": ".join(filter(None, (reason, _ending(container, waiting))))
    if final:
        return None
    for condition in status.get("conditions", ()):
        if condition["status"] != "True" and condition.get("message"):
            return f"{condition.get('reason')}: {condition['message']}"
    return None


def _ending(container: dict[str, Any], waiting: dict[str, Any]) -> str:
    ended = container.get("lastState", {}).get("terminated")
    if ended:
        return f"container {container['name']} ended with exit code {ended['exitCode']} ({ended.get('reason')})"
    return str(waiting.get("message", ""))


def pods_of(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods of a Deployment, without those that are on their way out."""
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = "%2C".join(f"{name}%3D{value}" for name, value in labels.items())
    namespace = deployment["metadata"]["namespace"]
    items = api.call(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def _explain(deployment: Deployment, pods: list[dict[str, Any]], when: str) -> str:
    lines = [f"{deployment.name} in {deployment.namespace} is not available{when}:"]
    for pod in pods:
        lines.append(f"- pod {pod['metadata']['name']}: {problem(pod) or 'is not ready, without a reason given'}")
        lines += [f"    {line}" for line in _warnings(pod) + _log(pod)]
    if not pods:
        lines.append("- it has no pod; does the controller manager run?")
    return "\n".join(lines)


def _warnings(pod: dict[str, Any]) -> list[str]:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
    items = api.call(f"{path}?fieldSelector=type%3DWarning%2CinvolvedObject.name%3D{pod['metadata']['name']}")["items"]
    return [f"{item['reason']} ({item.get('count', 1)} times): {item['message']}" for item in items[-2:]]


def _log(pod: dict[str, Any]) -> list[str]:
    where = (f"--namespace={pod['metadata']['namespace']}", pod["metadata"]["name"], f"--tail={_LOG_LINES}")
    for which in ("--previous=false", "--previous=true"):
        try:
            if lines := kubectl("logs", *where, which, timeout=15).splitlines():
                return lines
        except ClusterError:  # no container has started yet
            continue
    return []
