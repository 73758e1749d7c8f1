"""A node: containerd, kubelet and kube-proxy in network, mount and process namespaces of their own, like a machine.

The process namespace makes a power cut real: when its first process is killed, the kernel ends all others in it at
the same instant, kubelet and containers alike, and with the mount namespace every mount of theirs is gone. What lies
in the node's own folder is its disk: it is bound over ``/var/lib`` and ``/var/log``, so that four kubelets and four
containerds can all use the paths that they insist on, and survives a restart; ``/run`` is empty after each start.
"""

import json
from pathlib import Path
from typing import Any

from e2e.cluster import builds, cgroups, network, paths, pki
from e2e.cluster.config import (
    DNS_DOMAIN,
    DNS_SERVICE_ADDRESS,
    GPU_TAINT,
    POD_RANGE,
    POOL_LABEL,
    SERVICE_RANGE,
    ClusterConfig,
    NodeConfig,
)
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import Process, find

PAUSE_IMAGE_NAME = "pause:1"
VOLUMES = "/var/lib/rlhf-volumes"
"""Where a node keeps the volumes of its own pods; another folder on each node."""
SHARED_VOLUMES = "/var/lib/rlhf-shared"
"""Where volumes lie that pods of all nodes share, as on a network file system; the same folder on each node."""


def folder(node: NodeConfig) -> Path:
    """The node's disk and configuration."""
    return paths.STATE / "nodes" / node.name


def process_name(node: NodeConfig) -> str:
    """The name under which a node's first process is known."""
    return f"node-{node.name}"


def create(node: NodeConfig, config: ClusterConfig) -> None:
    """Write a node's configuration and make its folders; :func:`start` starts it."""
    own = folder(node)
    for part in (
        "lib/containerd",
        "lib/kubelet",
        "lib/rlhf-cluster",
        f"lib/{Path(VOLUMES).name}",
        "lib/tmp",
        "log",
        "cni",
    ):
        (own / part).mkdir(parents=True, exist_ok=True)
    (own / f"lib/{Path(SHARED_VOLUMES).name}").mkdir(exist_ok=True)
    (paths.STATE / "shared").mkdir(exist_ok=True)
    (own / "containerd.toml").write_text(_containerd(own))
    (own / "cni/10-bridge.conflist").write_text(json.dumps(_cni(node), indent=1))
    (own / "kubelet.yaml").write_text(json.dumps(_kubelet(node, config), indent=1))
    (own / "kube-proxy.yaml").write_text(json.dumps(_kube_proxy(node), indent=1))
    (own / "init.sh").write_text(_init(node, config))


def start(node: NodeConfig, config: ClusterConfig) -> None:
    """Switch a node on: its network, then its programs."""
    network.create_node(node, config)
    cgroups.make(f"{node.name}/pods")
    argv = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    argv += ["--propagation=private", "tini", "--", "sh", str(folder(node) / "init.sh")]
    Process(
        name=process_name(node),
        argv=argv,
        netns=network.namespace(node),
        cgroup=f"{node.name}/system",
        env={"TMPDIR": "/var/lib/tmp"},
    ).start()


def cut_power(node: NodeConfig) -> None:
    """Switch a node off at once: kubelet, containerd and all containers die together; its disk stays."""
    find(process_name(node)).stop(grace=0)
    cgroups.kill(node.name)
    cgroups.remove(node.name)
    network.delete_node(node)


def containerd_socket(node: NodeConfig) -> Path:
    """The address of a running node's containerd, as seen from this machine.

    Raises:
        ClusterError: the node is off.
    """
    process = find(process_name(node))
    if not process.running():
        mend = f".venv/bin/python -m e2e.cluster fault restore-power {node.name}"
        raise ClusterError(f"node {node.name} has no power; `{mend}` gives it back")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return Path(f"/proc/{children[0] if children else process.pid}/root/run/containerd/containerd.sock")


def _init(node: NodeConfig, config: ClusterConfig) -> str:
    own, kubernetes = folder(node), builds.find(builds.KUBERNETES)
    kubelet = [
        kubernetes.program("kubelet"),
        f"--config={own / 'kubelet.yaml'}",
        f"--kubeconfig={pki.FOLDER / f'kubelet-{node.name}.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--node-labels={POOL_LABEL}={node.pool}",
        "--v=1",
    ]
    return f"""#!/bin/sh
# The first program of node {node.name}; see nodes.py.
set -eu
echo {node.name} >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/state /run/lock /run/containerd
mount --bind {paths.STATE} /run/state
mount --bind /run/state/nodes/{node.name}/log /var/log
mount --bind /run/state/nodes/{node.name}/lib /var/lib
mount --move /run/state {paths.STATE}
mount --bind {paths.STATE}/shared {SHARED_VOLUMES}

# As a service manager would: start again what has ended.
keep() {{
    name=$1; shift
    while :; do
        "$@" >>/var/log/$name.log 2>&1 || echo "$name ended with $?" >>/var/log/$name.log
        sleep 1
    done
}}
keep containerd containerd --config {own / "containerd.toml"} &
keep kubelet {" ".join(str(word) for word in kubelet)} &
keep kube-proxy {kubernetes.program("kube-proxy")} --config={own / "kube-proxy.yaml"} &
{_network_policy(node) if config.network_policy else ""}
wait
"""


def _network_policy(node: NodeConfig) -> str:
    """kube-router, only for its firewall; it starts with the node's first pod, since it has nothing to do before."""
    words = [
        builds.find(builds.KUBE_ROUTER).program("kube-router"),
        f"--kubeconfig={pki.FOLDER / 'kube-router.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--enable-cni=false",
        "--health-port=0",
    ]
    start = f"keep kube-router {' '.join(str(word) for word in words)}"
    return f"(until grep -q cni0: /proc/net/dev; do sleep 0.5; done; {start}) &"


def _containerd(own: Path) -> str:
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/{PAUSE_IMAGE_NAME}"
  # Where root lacks CAP_SYS_RESOURCE, runc may not lower the score and dies without saying so.
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_cni_programs()}"
    conf_dir = "{own / "cni"}"
"""


def _cni_programs() -> str:
    places = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
    return next((place for place in places if (Path(place) / "bridge").exists()), places[0])


def _cni(node: NodeConfig) -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False},
        ],
    }


def _kubelet(node: NodeConfig, config: ClusterConfig) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(pki.CA)}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.FOLDER / f"kubelet-{node.name}.crt"),
        "tlsPrivateKeyFile": str(pki.FOLDER / f"kubelet-{node.name}.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.ROOT}/{node.name}/pods",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "clusterDomain": DNS_DOMAIN,
        "resolvConf": "",  # nothing outside can be reached, so no name from there is asked for
        "podCIDR": node.pod_range,
        "registerWithTaints": [GPU_TAINT] if node.gpus else [],
        "nodeStatusUpdateFrequency": "3s" if config.node_loss == "quick" else "10s",
        "serializeImagePulls": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # A test machine is often nearly full, and images that were pruned could not be pulled again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _kube_proxy(node: NodeConfig) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(pki.FOLDER / "kube-proxy.kubeconfig")},
        "hostnameOverride": node.name,
        "clusterCIDR": POD_RANGE,
        "mode": "nftables",
        "conntrack": {"maxPerCore": 0},  # the limit belongs to the whole machine, not to a namespace
    }
