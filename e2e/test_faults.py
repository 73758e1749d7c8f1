"""Each fault switch does what its name says, and what it broke is whole again afterwards."""

import time
from typing import Any

from e2e.cluster import api
from e2e.cluster.api import is_ready
from e2e.cluster.config import GPU_RESOURCE
from e2e.lab import Lab
from e2e.manifests import pod, ray_cluster

LOST_SECONDS = 100
"""Kubernetes' defaults see a silent node after 50 s, looking every 5 s."""


def test_a_power_cut_ends_all_containers_at_once_and_the_node_returns(lab: Lab) -> None:
    name = lab.node("gpu-a", 1)
    lab.run_pods(pod("victim", node=name, restartPolicy="Always"), pod("neighbour", node=lab.node("gpu-a", 0)))
    neighbour = _container(lab, "neighbour")
    with lab.faults.power_cut(name):
        assert not lab.faults.runs(name)
        assert is_ready(api.nodes()[name]), "nobody can know yet"
        lab.wait("the node counts as lost", lambda: not is_ready(api.nodes()[name]), timeout=LOST_SECONDS)
        lab.wait("its pod is not ready", lambda: not is_ready(lab.get("pod", "victim")), timeout=30)
    node = api.nodes()[name]
    assert is_ready(node)
    assert node["status"]["allocatable"][GPU_RESOURCE] == "8"
    lab.wait("its pod runs again", lambda: is_ready(lab.get("pod", "victim")))
    assert _container(lab, "victim")["restartCount"] >= 1
    assert _container(lab, "neighbour") == neighbour
    lab.run_pods(pod("newcomer", node=name))


def test_a_node_without_network_is_lost_and_its_containers_go_on(lab: Lab) -> None:
    name = lab.node("gpu-b")
    lab.run_pods(pod("victim", node=name))
    before = _container(lab, "victim")
    with lab.faults.network_cut(name):
        lab.wait("the node counts as lost", lambda: not is_ready(api.nodes()[name]), timeout=LOST_SECONDS)
        assert lab.faults.runs(name)
    lab.wait("the node is back", lambda: is_ready(api.nodes()[name]), timeout=60)
    lab.wait("its pod is ready again", lambda: is_ready(lab.get("pod", "victim")), timeout=60)
    assert _container(lab, "victim") == before


def test_pods_do_not_notice_a_restart_of_the_api_server(lab: Lab) -> None:
    lab.run_pods(pod("calm"))
    before = _container(lab, "calm")
    with lab.faults.no_api_server():
        assert not api.ready()
    assert api.ready()
    lab.run_pods(pod("newcomer"))
    assert _container(lab, "calm") == before


def test_without_the_kuberay_operator_nothing_is_made_until_it_is_back(lab: Lab) -> None:
    with lab.faults.no_kuberay():
        lab.apply(ray_cluster("waiting", {"actor": "gpu-a"}))
        time.sleep(5)  # that nothing happens can only be seen by looking for a while
        assert lab.pods() == []
    lab.wait("its pods are made", lambda: lab.pods(), timeout=60)
    lab.kubectl("delete", "raycluster", "waiting", "--wait=false")


def test_a_process_killed_from_outside_ends_its_container(lab: Lab) -> None:
    lab.run_pods(pod("victim", restartPolicy="Always"))
    lab.faults.kill_process(lab.namespace, "victim")
    again = lab.wait("the container was restarted", lambda: _restarted(lab, "victim"))
    assert again["lastState"]["terminated"]["exitCode"] == 137


def test_one_process_of_several_is_killed_by_what_its_command_line_holds(lab: Lab) -> None:
    lab.run_pods(pod("several", "sh", "-c", "sleep 1111 & sleep 2222 & wait $!; echo the second ended; sleep infinity"))
    lab.faults.kill_process(lab.namespace, "several", match="sleep 2222")
    lab.wait("the shell notices", lambda: "the second ended" in lab.kubectl("logs", "several"), timeout=30)
    assert _container(lab, "several")["restartCount"] == 0


def _container(lab: Lab, name: str) -> dict[str, Any]:
    status: dict[str, Any] = lab.get("pod", name)["status"]["containerStatuses"][0]
    return {key: status[key] for key in ("containerID", "restartCount")}


def _restarted(lab: Lab, name: str) -> dict[str, Any] | None:
    status: dict[str, Any] = lab.get("pod", name)["status"]["containerStatuses"][0]
    return status if status["restartCount"] and status["lastState"] else None
