"""KubeRay's options change on a running cluster, and go back to what its own manifests say."""

from typing import Any

from e2e.cluster.addons import kuberay
from e2e.cluster.config import KubeRayConfig
from e2e.lab import Lab


def test_options_of_the_operator_change_on_a_running_cluster(lab: Lab) -> None:
    kuberay.configure(KubeRayConfig(cpu="none", memory="none", concurrency=10, init_container=False))
    try:
        container = _container(lab)
        assert "limits" not in container["resources"]
        assert "--reconcile-concurrency=10" in container["args"]
        assert container["env"] == [{"name": "ENABLE_INIT_CONTAINER_INJECTION", "value": "false"}]
    finally:
        kuberay.configure(lab.config.kuberay)
    assert lab.config.kuberay != KubeRayConfig() or _container(lab)["resources"]["limits"]["cpu"] == "100m"


def _container(lab: Lab) -> dict[str, Any]:
    namespace, name = kuberay.DEPLOYMENT
    pods = lab.get("pods", f"--namespace={namespace}", f"--selector=app.kubernetes.io/component={name}")["items"]
    (found,) = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    container: dict[str, Any] = found["spec"]["containers"][0]
    return container
