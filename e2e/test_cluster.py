"""What every cluster made here can do, before anything of ours is in it."""

import json
from pathlib import Path

import pytest

from e2e import conftest
from e2e.cluster import api, builds, paths
from e2e.cluster.config import GPU_RESOURCE, GPU_TAINT, POOL_LABEL, ClusterConfig
from e2e.cluster.shell import run
from e2e.lab import Lab
from e2e.manifests import pod
from e2e.operator import helm


def test_four_ready_nodes_in_three_pools_with_gpus_and_taints(cluster: ClusterConfig) -> None:
    nodes = api.nodes()
    pools = [nodes[node.name]["metadata"]["labels"][POOL_LABEL] for node in cluster.nodes]
    assert sorted(pools) == ["cpu", "gpu-a", "gpu-a", "gpu-b"]
    for node in cluster.nodes:
        found = nodes[node.name]
        assert api.is_ready(found)
        assert found["status"]["nodeInfo"]["kubeletVersion"] == builds.KUBERNETES_VERSION
        assert found["status"]["allocatable"].get(GPU_RESOURCE, "0") == str(node.gpus)
        taints = [{key: taint.get(key) for key in GPU_TAINT} for taint in found["spec"].get("taints", [])]
        assert taints == ([GPU_TAINT] if node.gpus else [])


def test_kubectl_is_of_the_servers_version(lab: Lab) -> None:
    versions = json.loads(lab.kubectl("version", "--output=json"))
    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"]


def test_a_pod_that_does_not_tolerate_the_gpu_taint_stays_on_the_cpu_pool(lab: Lab) -> None:
    lab.apply(pod("misplaced", pool="gpu-b", tolerations=[]))
    lab.run_pods(pod("free", tolerations=[]))
    assert lab.get("pod", "free")["spec"]["nodeName"] == lab.node("cpu")
    refusal = lab.wait("the scheduler's reason", lambda: _unschedulable(lab, "misplaced"))
    assert "untolerated taint" in refusal


def test_logs_and_exec_reach_a_pod_on_every_node(lab: Lab, cluster: ClusterConfig) -> None:
    greet = ("sh", "-c", "echo hello from $HOSTNAME; exec sleep infinity")
    lab.run_pods(*(pod(f"on-{node.name}", *greet, node=node.name) for node in cluster.nodes))
    for node in cluster.nodes:
        name = f"on-{node.name}"
        assert lab.kubectl("logs", name).strip() == f"hello from {name}"
        assert lab.execute(name, "cat", "/etc/hostname").strip() == name
        assert lab.execute(name, "id", "-u").strip() != "0", "the worker image must not run as root"


def test_a_service_is_found_by_name_and_reached_across_nodes(lab: Lab) -> None:
    server = pod("web", "python3", "-m", "http.server", "8000", node=lab.node("gpu-a"))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    lab.apply(service)
    lab.run_pods(server, pod("near", node=lab.node("gpu-a")), pod("far", node=lab.node("gpu-b")))
    assert "Directory listing" in _page(lab, "near", "http://web/")
    assert "Directory listing" in _page(lab, "far", "http://web/")


def test_a_pod_reaches_the_api_server_by_its_service_name(lab: Lab) -> None:
    lab.run_pods(pod("client"))
    ask = "wget -q -O- --ca-certificate=$D/ca.crt https://kubernetes.default.svc/version"
    answer = lab.execute("client", "sh", "-c", f"D=/var/run/secrets/kubernetes.io/serviceaccount; {ask}")
    assert json.loads(answer)["gitVersion"] == builds.KUBERNETES_VERSION


def test_helm_installs_a_chart(lab: Lab, tmp_path: Path) -> None:
    chart = tmp_path / "trivial"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: trivial\nversion: 0.1.0\n")
    (chart / "templates/map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-map'}\n"
        "data: {who: '{{ .Values.who }}'}\n"
    )
    words = helm(lab.namespace)
    run([*words, "install", "first", chart, "--set", "who=world", "--wait"])
    assert lab.get("configmap", "first-map")["data"] == {"who": "world"}
    run([*words, "uninstall", "first", "--wait"])
    assert lab.find("configmap", "first-map") is None


def _page(lab: Lab, name: str, url: str) -> str:
    ask = ("wget", "-q", "-T", "5", "-O-", url)
    return lab.wait(f"{name} reaches {url}", lambda: lab.execute(name, *ask), timeout=30)


def _unschedulable(lab: Lab, name: str) -> str:
    for condition in lab.get("pod", name)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def test_a_cluster_that_was_not_made_here_is_refused(
    cluster: ClusterConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebodys = tmp_path / "kubeconfig"
    somebodys.write_text(paths.KUBECONFIG.read_text().replace(paths.CONTEXT, "production"))
    monkeypatch.setattr(paths, "KUBECONFIG", somebodys)
    with pytest.raises(pytest.exit.Exception, match='the kube context is "production", not "rlhf-cluster"'):
        conftest.refuse_other_clusters()
