"""KubeRay's operator from its own manifests, changed only in the image and in the options of :class:`KubeRayConfig`."""

import copy
import json
from typing import Any

from e2e.cluster import api, builds, paths, processes
from e2e.cluster.addons.waiting import Deployment, pods_of, wait_available
from e2e.cluster.config import KubeRayConfig
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import apply, program
from e2e.cluster.shell import run
from e2e.cluster.steps import step

IMAGE = f"localhost/kuberay-operator:{builds.KUBERAY_VERSION}"
DEFINITION = "rayclusters.ray.io"
DEPLOYMENT = Deployment("default", "kuberay-operator")
"""Where KubeRay's own manifests put it."""
READY_SECONDS = 90
"""The limit of a wait; its manifests' own probe first asks after 10 s."""
_CONTAINER = "kuberay-operator"
_LEASE = "ray-operator-leader"


def rendered() -> list[dict[str, Any]]:
    """KubeRay's objects as its users get them from its ``config/default``.

    Kept beside the build, since rendering and parsing 3 MB of YAML takes 7 s of CPU.
    """
    built = builds.find(builds.KUBERAY)
    kept = built.folder / "default.json"
    if not kept.exists():
        import yaml  # slow to import, and needed once per build

        text = run([program(), "kustomize", built.files("config") / "default"])
        objects = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        paths.write_whole(kept, json.dumps(objects))
    found: list[dict[str, Any]] = json.loads(kept.read_text())
    return found


def manifests(options: KubeRayConfig, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rendered ``objects`` with our image and with ``options``."""
    return [_operator(found, options) if _is_operator(found) else found for found in objects]


def configure(options: KubeRayConfig) -> None:
    """Change the options of the operator on a running cluster, and wait until the changed one runs.

    Options that are back at their defaults are as in KubeRay's own manifests again.

    Raises:
        ClusterError: the operator does not start with these options.
    """
    with step("restart the KubeRay operator with its new options"):
        apply(*filter(_is_operator, manifests(options, rendered())))
        wait()


def wait(*, timeout: float = READY_SECONDS) -> None:
    """Wait until the operator is available and works, and the API server serves its RayClusters.

    After a restart it is available up to 15 s before it works: it waits for its predecessor's lease to run out.

    Raises:
        ClusterError: it is not in time; the message says why.
    """
    wait_available(DEPLOYMENT, timeout=timeout)
    processes.wait_until("the KubeRay operator has the lease to work", _leads, timeout=timeout)
    condition = established()
    if condition["status"] != "True":
        raise ClusterError(f"the API server does not serve RayClusters: {condition.get('message', 'no reason given')}")


def established() -> dict[str, Any]:
    """The condition that says whether the API server serves RayClusters."""
    found = api.call(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}")
    conditions: dict[str, dict[str, Any]] = {
        condition["type"]: condition for condition in found.get("status", {}).get("conditions") or ()
    }
    return conditions.get("Established", {"status": "Unknown"})


def _leads() -> bool:
    leases = api.call(f"/apis/coordination.k8s.io/v1/namespaces/{DEPLOYMENT.namespace}/leases")["items"]
    holders = [found["spec"].get("holderIdentity", "") for found in leases if found["metadata"]["name"] == _LEASE]
    names = [pod["metadata"]["name"] for pod in pods_of(api.call(DEPLOYMENT.path))]
    return any(holder.startswith(f"{name}_") for holder in holders for name in names)


def _is_operator(found: dict[str, Any]) -> bool:
    return bool(found["kind"] == "Deployment" and found["metadata"]["name"] == DEPLOYMENT.name)


def _operator(deployment: dict[str, Any], options: KubeRayConfig) -> dict[str, Any]:
    changed = copy.deepcopy(deployment)
    container = next(c for c in changed["spec"]["template"]["spec"]["containers"] if c["name"] == _CONTAINER)
    container |= {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}
    limits = container["resources"]["limits"]
    for name, value in (("cpu", options.cpu), ("memory", options.memory)):
        if value == "none":
            del limits[name]
        elif value is not None:
            limits[name] = value
    if options.concurrency != 1:
        container["args"] = [*container.get("args", ()), f"--reconcile-concurrency={options.concurrency}"]
    if not options.init_container:
        switch = {"name": "ENABLE_INIT_CONTAINER_INJECTION", "value": "false"}
        container["env"] = [*(container.get("env") or ()), switch]
    return changed
