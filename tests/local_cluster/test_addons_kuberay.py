"""KubeRay's own manifests, and the few things that are changed in them."""

import copy
from typing import Any

import pytest

from e2e.cluster.addons import kuberay
from e2e.cluster.config import KubeRayConfig

ARGS = ["--feature-gates=RayClusterStatusConditions=true"]


def as_rendered() -> list[dict[str, Any]]:
    container = {
        "name": "kuberay-operator",
        "image": "quay.io/kuberay/operator:v1.5.0",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/manager"],
        "args": list(ARGS),
        "resources": {"limits": {"cpu": "100m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "512Mi"}},
    }
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "kuberay-operator", "namespace": "default"},
        "spec": {"template": {"spec": {"securityContext": {"runAsNonRoot": True}, "containers": [container]}}},
    }
    return [{"kind": "CustomResourceDefinition", "metadata": {"name": "rayclusters.ray.io"}}, deployment]


def container_with(options: KubeRayConfig) -> dict[str, Any]:
    found: dict[str, Any] = kuberay.manifests(options, as_rendered())[1]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_by_default_only_the_image_is_another():
    want = as_rendered()
    want[1]["spec"]["template"]["spec"]["containers"][0]["image"] = "localhost/kuberay-operator:v1.5.0"
    assert kuberay.manifests(KubeRayConfig(), as_rendered()) == want


@pytest.mark.parametrize(
    ("options", "want_limits"),
    [
        pytest.param({"cpu": "none"}, {"memory": "512Mi"}, id="no CPU limit"),
        pytest.param({"memory": "none"}, {"cpu": "100m"}, id="no memory limit"),
        pytest.param({"cpu": "none", "memory": "none"}, {}, id="no limit at all"),
        pytest.param({"cpu": "2"}, {"cpu": "2", "memory": "512Mi"}, id="more CPU"),
        pytest.param({"memory": "2Gi"}, {"cpu": "100m", "memory": "2Gi"}, id="more memory"),
    ],
)
def test_limits_are_replaced_or_lifted_and_requests_stay(options, want_limits):
    container = container_with(KubeRayConfig(**options))
    assert container["resources"]["limits"] == want_limits
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "512Mi"}


def test_concurrency_is_added_to_its_own_arguments():
    assert container_with(KubeRayConfig(concurrency=10))["args"] == [*ARGS, "--reconcile-concurrency=10"]


def test_init_containers_are_switched_off_by_its_environment():
    assert "env" not in container_with(KubeRayConfig())
    want = [{"name": "ENABLE_INIT_CONTAINER_INJECTION", "value": "false"}]
    assert container_with(KubeRayConfig(init_container=False))["env"] == want


def test_the_rendered_objects_are_left_as_they_are():
    objects = as_rendered()
    before = copy.deepcopy(objects)
    kuberay.manifests(KubeRayConfig(cpu="none", concurrency=4, init_container=False), objects)
    assert objects == before
