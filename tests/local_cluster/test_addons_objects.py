"""What all objects that are installed into the local cluster have in common."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import addons, builds
from e2e.cluster.addons import dns, kwok, network_policy, volumes
from e2e.cluster.config import DNS_SERVICE_ADDRESS, FOUR_NODES, ClusterConfig

CONFIG = ClusterConfig(kwok=12)


def pod_specs() -> Iterator[dict[str, Any]]:
    for found in addons.manifests(CONFIG, []):
        if found["kind"] == "Deployment":
            yield found["spec"]["template"]["spec"]
    yield volumes._helper_pod()["spec"]


def test_no_two_objects_have_the_same_name():
    objects = addons.manifests(CONFIG, [])
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(set(names)) == len(names)


def test_objects_can_be_sent_as_json():
    json.dumps(addons.manifests(CONFIG, []))


def test_every_image_is_one_that_the_nodes_have():
    there = {f"localhost/{name}" for name in addons.images(CONFIG)} | {volumes.SHELL_IMAGE}
    containers = [container for spec in pod_specs() for container in spec["containers"]]
    assert {container["image"] for container in containers} <= there
    assert {container["imagePullPolicy"] for container in containers} == {"IfNotPresent"}


def test_what_is_installed_does_not_run_as_root():
    contexts = [spec["containers"][0]["securityContext"] for spec in list(pod_specs())[:-1]]
    assert all(context["runAsNonRoot"] and context["runAsUser"] > 0 for context in contexts)


def test_our_pods_stay_off_fake_nodes():
    for spec in pod_specs():
        assert not [t for t in spec.get("tolerations", ()) if t.get("key") in (None, kwok.TAINT["key"])]


@pytest.mark.parametrize(
    ("folder", "module", "version"),
    [
        ("coredns", "github.com/coredns/coredns", dns.VERSION),
        ("local-path", "github.com/rancher/local-path-provisioner", volumes.VERSION),
        ("kuberay", "github.com/ray-project/kuberay/ray-operator", builds.KUBERAY_VERSION),
        ("helm", "helm.sh/helm/v4", builds.HELM_VERSION),
        ("kubernetes", "k8s.io/kubernetes", builds.KUBERNETES_VERSION),
    ],
)
def test_versions_that_are_told_are_those_that_are_built(folder, module, version):
    text = (builds.PROGRAMS / folder / "go.mod").read_text()
    assert re.findall(rf"^(?:require)?\s*{re.escape(module)} (\S+)", text, re.MULTILINE) == [version]


def test_programs_are_only_those_that_the_options_need():
    always = {"kuberay", "coredns", "local-path"}
    assert {f.name for f in addons.programs(ClusterConfig(network_policy=False))} == always
    assert {f.name for f in addons.programs(ClusterConfig())} == always | {"kube-router"}
    assert {f.name for f in addons.programs(CONFIG)} == always | {"kube-router", "kwok"}


def test_without_network_policy_nobody_gets_its_rights():
    found = addons.manifests(ClusterConfig(network_policy=False), [])
    assert network_policy.USER not in {o["metadata"]["name"] for o in found}


def test_pods_find_dns_at_the_address_that_kubelets_tell_them():
    service = next(o for o in dns.manifests() if o["kind"] == "Service")
    deployment = next(o for o in dns.manifests() if o["kind"] == "Deployment")
    assert service["spec"]["clusterIP"] == DNS_SERVICE_ADDRESS
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_dns_forwards_nothing():
    assert "forward" not in json.dumps(dns.manifests())


def test_one_storage_class_is_the_default():
    classes = {o["metadata"]["name"]: o for o in volumes.manifests() if o["kind"] == "StorageClass"}
    marked = [
        n for n, o in classes.items() if o["metadata"]["annotations"].get("storageclass.kubernetes.io/is-default-class")
    ]
    assert sorted(classes) == ["local", "shared"]
    assert marked == ["local"]
    assert classes["local"]["volumeBindingMode"] == "WaitForFirstConsumer"


def test_the_provisioner_is_told_of_each_class():
    data = next(o for o in volumes.manifests() if o["kind"] == "ConfigMap")["data"]
    config = json.loads(data["config.json"])["storageClassConfigs"]
    assert set(config) == {"local", "shared"}
    assert set(config["local"]) != set(config["shared"])


def test_fake_nodes_are_marked_and_tainted():
    nodes = kwok.manifests(12)
    assert [n["metadata"]["name"] for n in nodes][:2] == ["kwok-0000", "kwok-0001"]
    assert len({n["metadata"]["name"] for n in nodes}) == 12
    for node in nodes:
        assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
        assert node["metadata"]["labels"]["type"] == "kwok"
        assert node["spec"]["taints"] == [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]
        assert node["metadata"]["labels"]["pool"] not in {real.pool for real in FOUR_NODES}
