"""Fake nodes for scale tests take pods that name them, and no other."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from e2e.cluster.addons import kwok
from e2e.cluster.api import is_ready
from e2e.lab import Lab
from e2e.manifests import pod

COUNT = 20


@pytest.fixture
def fake_nodes(lab: Lab) -> Iterator[list[str]]:
    """The fake nodes of the cluster; 20 for the test if it was brought up without any."""
    with nullcontext() if lab.config.kwok else kwok.nodes(COUNT):
        found = lab.get("nodes", "--selector=type=kwok")["items"]
        yield [item["metadata"]["name"] for item in found if is_ready(item)]
        lab.kubectl("delete", "pods", "--all", "--timeout=60s")


def test_fake_nodes_take_the_pods_that_name_them_and_no_other(lab: Lab, fake_nodes: list[str]) -> None:
    assert len(fake_nodes) == (lab.config.kwok or COUNT)
    toleration = {"key": kwok.TAINT["key"], "operator": "Exists"}
    lab.run_pods(pod("fake", nodeSelector=kwok.TYPE_LABEL, tolerations=[toleration]), timeout=30)
    assert lab.get("pod", "fake")["spec"]["nodeName"] in fake_nodes

    lab.run_pods(pod("real", pool="gpu-b"))
    assert lab.get("pod", "real")["spec"]["nodeName"] == lab.node("gpu-b")
    for found in lab.get("pods", "--all-namespaces")["items"]:
        if found["spec"].get("nodeName") in fake_nodes:
            assert found["spec"]["nodeSelector"] == kwok.TYPE_LABEL


def test_fake_nodes_stay_ready(lab: Lab, fake_nodes: list[str]) -> None:
    """The node controller takes a node for lost that does not renew its lease."""

    def renewals() -> dict[str, str]:
        leases = lab.get("leases", "--namespace=kube-node-lease")["items"]
        times = {found["metadata"]["name"]: str(found["spec"]["renewTime"]) for found in leases}
        return {name: times[name] for name in fake_nodes if name in times}

    lab.wait("all have a lease", lambda: len(renewals()) == len(fake_nodes))
    before = renewals()
    lab.wait("all renew it", lambda: all(now > before[name] for name, now in renewals().items()), timeout=20)
