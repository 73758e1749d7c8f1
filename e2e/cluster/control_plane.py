"""etcd, the API server, the controller manager and the scheduler, as processes in the hub."""

import os

from e2e.cluster import api, builds, paths, pki, processes
from e2e.cluster.config import (
    DNS_DOMAIN,
    HUB_ADDRESS,
    POD_RANGE,
    SERVICE_RANGE,
    ClusterConfig,
)
from e2e.cluster.network import HUB
from e2e.cluster.processes import Process

CONTROL_PLANE_CGROUP = "control-plane"
API_SERVER_LIMIT_SECONDS = 90
"""How long the API server may take to become ready; 5 to 10 s on two free cores."""


def start(config: ClusterConfig) -> None:
    """Start the control plane, and wait until the API server answers."""
    etcd, api_server = _etcd(), _api_server()
    etcd.start()
    api_server.start()
    wait_ready([etcd, api_server])
    _controller_manager(config).start()
    _scheduler().start()


def start_api_server() -> None:
    """Start the API server of this cluster again, unless it runs, and wait until it is ready."""
    process = processes.find("kube-apiserver")
    process.start()
    wait_ready([process])


def wait_ready(parts: list[Process]) -> None:
    """Wait until the API server says that it is ready.

    Raises:
        ClusterError: it is not in time, or one of the programs has ended.
    """
    processes.wait_until("the API server is ready", api.ready, timeout=API_SERVER_LIMIT_SECONDS, processes=parts)


def _process(name: str, *arguments: str) -> Process:
    program = builds.find(builds.KUBERNETES).program(name)
    return Process(name=name, argv=[str(program), *arguments], netns=HUB, cgroup=CONTROL_PLANE_CGROUP)


def _etcd() -> Process:
    url = "http://127.0.0.1:2379"  # inside the hub's own namespace
    argv = [
        "etcd",
        f"--data-dir={paths.STATE / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--auto-compaction-retention=5m",
        "--quota-backend-bytes=4294967296",
        "--snapshot-count=10000",
        "--log-level=warn",
        "--logger=zap",
    ]
    # etcd warns of its processor otherwise on machines that it was not tested on.
    env = (
        {"ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64")}
        if os.uname().machine != "x86_64"
        else {}
    )
    return Process(name="etcd", argv=argv, netns=HUB, cgroup=CONTROL_PLANE_CGROUP, env=env)


def _api_server() -> Process:
    keys = pki.FOLDER
    return _process(
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={HUB_ADDRESS}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={pki.CA}",
        f"--tls-cert-file={keys / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={keys / 'kube-apiserver.key'}",
        f"--kubelet-certificate-authority={pki.CA}",
        f"--kubelet-client-certificate={keys / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'apiserver-kubelet-client.key'}",
        # Else `kubectl logs` looks a node's name up in a DNS that does not know it.
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{DNS_DOMAIN}",
        f"--service-account-key-file={keys / 'service-accounts.key'}",
        f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # No kube-proxy runs in the hub: webhooks are reached by their pods' addresses.
        "--enable-aggregator-routing=true",
        "--profiling=false",
        "--v=1",
    )


def _controller_manager(config: ClusterConfig) -> Process:
    keys = pki.FOLDER
    kubeconfig = keys / "kube-controller-manager.kubeconfig"
    quick = ["--node-monitor-grace-period=12s", "--node-monitor-period=2s"] if config.node_loss == "quick" else []
    return _process(
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--cluster-cidr={POD_RANGE}",
        f"--service-account-private-key-file={keys / 'service-accounts.key'}",
        f"--root-ca-file={pki.CA}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--profiling=false",
        *quick,
    )


def _scheduler() -> Process:
    kubeconfig = pki.FOLDER / "kube-scheduler.kubeconfig"
    return _process(
        "kube-scheduler",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--profiling=false",
    )
