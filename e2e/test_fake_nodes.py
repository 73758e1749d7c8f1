"""Fake nodes for scale tests take pods that name them, and no other."""

import pytest

from e2e.cluster.addons import kwok
from e2e.lab import Lab, is_ready
from e2e.manifests import pod


@pytest.fixture
def fake_nodes(lab: Lab) -> list[str]:
    if not lab.config.kwok:
        pytest.skip("the cluster has no fake nodes; `make cluster-up KWOK=100` gives it some")
    return [item["metadata"]["name"] for item in lab.get("nodes", "--selector=type=kwok")["items"] if is_ready(item)]


def test_a_pod_that_names_fake_nodes_seems_to_run_on_one(lab: Lab, fake_nodes: list[str]) -> None:
    toleration = {"key": kwok.TAINT["key"], "operator": "Exists"}
    lab.run_pods(pod("fake", nodeSelector=kwok.TYPE_LABEL, tolerations=[toleration]), timeout=30)
    assert lab.get("pod", "fake")["spec"]["nodeName"] in fake_nodes


def test_no_other_pod_is_on_a_fake_node(lab: Lab, fake_nodes: list[str]) -> None:
    assert len(fake_nodes) == lab.config.kwok
    pods = lab.get("pods", "--all-namespaces")["items"]
    for found in pods:
        if found["spec"].get("nodeName") in fake_nodes:
            assert found["spec"]["nodeSelector"] == kwok.TYPE_LABEL
