"""Break the cluster on purpose, and mend it again.

Each fault is a pair of methods, and a context manager that mends what it broke however the block ends::

    faults = Faults()
    with faults.power_cut("gpu-a-0"):
        ...                                  # kubelet, containerd and all containers of the node died at once
    faults.kill_process("default", "my-pod") # the container's main process gets SIGKILL from outside
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.cluster import api, cgroups, control_plane, lifecycle, network, nodes, processes
from e2e.cluster.addons import kuberay
from e2e.cluster.config import ClusterConfig, NodeConfig
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import get, kubectl

_OPERATOR_PODS = "--selector=app.kubernetes.io/component=kuberay-operator"


class Faults:
    """The fault switches of the running cluster.

    Raises:
        ClusterError: no cluster is up, or a name is wrong; from every method.
    """

    def __init__(self, config: ClusterConfig | None = None) -> None:
        self._config = config or lifecycle.configuration()

    # --- nodes

    def cut_power(self, node: str) -> None:
        """Switch a node off at once, as a power cut would; what it wrote to its disk stays."""
        nodes.cut_power(self._config.node(node))

    def runs(self, node: str) -> bool:
        """Whether anything at all runs on a node."""
        return bool(cgroups.processes(self._config.node(node).name))

    def restore_power(self, node: str) -> None:
        """Switch a node on, and wait until its kubelet is back, the node Ready and its stand-in GPUs are there.

        Its network is whole again too, and what its pods' status says may be from before the cut for another moment.
        """
        config = self._config.node(node)
        if self.runs(node):
            return
        with wait_heartbeat(config):
            nodes.start(config, self._config)
        lifecycle.equip(config)

    @contextmanager
    def power_cut(self, node: str) -> Iterator[None]:
        """A node without power while the block runs."""
        self.cut_power(node)
        try:
            yield
        finally:
            self.restore_power(node)

    def cut_network(self, node: str) -> None:
        """Pull a node's network cable; its programs and containers go on."""
        network.set_link(self._config.node(node), up=False)

    def restore_network(self, node: str) -> None:
        """Plug the cable in again."""
        network.set_link(self._config.node(node), up=True)

    @contextmanager
    def network_cut(self, node: str) -> Iterator[None]:
        """A node without network while the block runs."""
        self.cut_network(node)
        try:
            yield
        finally:
            self.restore_network(node)

    # --- control plane and KubeRay

    def stop_api_server(self) -> None:
        """Stop the API server; etcd keeps what it stored."""
        processes.find("kube-apiserver").stop()

    def start_api_server(self) -> None:
        """Start it again, and wait until it is ready."""
        control_plane.start_api_server()

    def restart_api_server(self) -> None:
        """Stop and start the API server: every watch breaks."""
        self.stop_api_server()
        self.start_api_server()

    @contextmanager
    def no_api_server(self) -> Iterator[None]:
        """No API server while the block runs."""
        self.stop_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    def stop_kuberay(self) -> None:
        """Stop the KubeRay operator, and wait until its pod is gone."""
        self._scale_kuberay(0)
        kubectl("-n", kuberay.DEPLOYMENT.namespace, "wait", "pod", _OPERATOR_PODS, "--for=delete", "--timeout=60s")

    def start_kuberay(self) -> None:
        """Start the KubeRay operator again, and wait until it is available."""
        self._scale_kuberay(1)
        kuberay.wait(timeout=120)

    @contextmanager
    def no_kuberay(self) -> Iterator[None]:
        """No KubeRay operator while the block runs."""
        self.stop_kuberay()
        try:
            yield
        finally:
            self.start_kuberay()

    def _scale_kuberay(self, replicas: int) -> None:
        namespace, name = kuberay.DEPLOYMENT
        kubectl("-n", namespace, "scale", f"deployment/{name}", f"--replicas={replicas}")

    # --- containers

    def kill_process(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        match: str = "",
        signal_number: int = signal.SIGKILL,
    ) -> int:
        """Send a signal to a process of a container from outside, as the kernel's OOM killer does; returns its pid.

        It is the container's main process, or with ``match`` the newest whose command line contains that text. Without
        ``container`` it is the pod's first one.

        Raises:
            ClusterError: no such container runs on this machine, or nothing in it matches.
        """
        container_id = _container_id(get("pod", pod, f"--namespace={namespace}"), container)
        pids = sorted(pid for pid in _all_pids() if _in_container(pid, container_id))
        found = [pid for pid in pids if match in _command_line(pid)] if match else pids[:1]
        if not found:
            what = f'has a command line with "{match}"' if match else "is there"
            raise ClusterError(f"no process of pod {namespace}/{pod} {what}")
        os.kill(found[-1], signal_number)
        return found[-1]


@contextmanager
def wait_heartbeat(node: NodeConfig) -> Iterator[None]:
    """Start the node in the block; afterwards wait until its kubelet has said, since then, that the node is Ready."""
    started = datetime.now(UTC).replace(microsecond=0)
    yield

    def reported() -> bool:
        found = api.nodes()[node.name]
        beats = [c["lastHeartbeatTime"] for c in found["status"].get("conditions", []) if c["type"] == "Ready"]
        return api.is_ready(found) and all(datetime.fromisoformat(beat) > started for beat in beats)

    processes.wait_until(f"the kubelet of {node.name} reports again", reported, timeout=lifecycle.NODE_READY_SECONDS)


def _container_id(pod: dict[str, Any], container: str) -> str:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    for status in statuses:
        if container in ("", status["name"]) and status.get("containerID") and "running" in status["state"]:
            return str(status["containerID"]).rpartition("/")[2]
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    names = ", ".join(status["name"] for status in statuses) or "none has started"
    which = f'container "{container}"' if container else "container"
    raise ClusterError(f"no {which} of pod {name} is running; its containers: {names}")


def _all_pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def _in_container(pid: int, container_id: str) -> bool:
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
