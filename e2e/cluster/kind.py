"""The same cluster by kind, for people with Docker: ``PROVIDER=kind make cluster-up``.

It needs `docker`, `kind`, `kubectl`, `helm` and Go. Pools, taints, stand-in GPUs, images and KubeRay are the same as in
the cluster that is made here, so that the tests run on both. Not tried where this project is developed, which has no
Docker; docs/local-cluster.md says so.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.cluster import api, builds, lifecycle, paths, processes
from e2e.cluster.addons import kuberay, volumes
from e2e.cluster.config import GPU_TAINT, POOL_LABEL, ClusterConfig, NodeConfig
from e2e.cluster.errors import ClusterError
from e2e.cluster.faults import Faults, wait_heartbeat
from e2e.cluster.images import ARGUMENTS
from e2e.cluster.kubectl import apply
from e2e.cluster.nodes import SHARED_VOLUMES
from e2e.cluster.shell import run, succeeds
from e2e.cluster.steps import step

NAME = "rlhf"
CONFIG = ClusterConfig(
    nodes=tuple(
        # kind gives the names, in the order of its configuration.
        NodeConfig(name=f"{NAME}-worker{index if index > 1 else ''}", index=index, pool=pool, gpus=gpus)
        for index, (pool, gpus) in enumerate([("cpu", 0), ("gpu-a", 8), ("gpu-a", 8), ("gpu-b", 8)], start=1)
    ),
    network_policy=True,  # by kind's own network agent
)


class KindFaults(Faults):
    """The fault switches where a node is a container of Docker."""

    def cut_power(self, node: str) -> None:
        """Kill the node's container."""
        run(["docker", "kill", self._config.node(node).name])

    def runs(self, node: str) -> bool:
        """Whether the node's container runs."""
        form = "{{.State.Running}}"
        return run(["docker", "inspect", "--format", form, self._config.node(node).name]).strip() == "true"

    def restore_power(self, node: str) -> None:
        """Start the node's container, and wait until its kubelet reports again."""
        config = self._config.node(node)
        with wait_heartbeat(config):
            run(["docker", "start", config.name])
        lifecycle.equip(config)

    def cut_network(self, node: str) -> None:
        """Take the node's container off the network."""
        run(["docker", "network", "disconnect", "kind", self._config.node(node).name])

    def restore_network(self, node: str) -> None:
        """Bring it back."""
        run(["docker", "network", "connect", "kind", self._config.node(node).name])

    def stop_api_server(self) -> None:
        """Take away the API server's static pod."""
        self._move_api_server("/etc/kubernetes/manifests", "/etc/kubernetes")
        processes.wait_until("the API server is gone", lambda: not api.ready(), timeout=60)

    def start_api_server(self) -> None:
        """Put it back, and wait until it is ready."""
        self._move_api_server("/etc/kubernetes", "/etc/kubernetes/manifests")
        processes.wait_until("the API server is ready", api.ready, timeout=120)

    def _move_api_server(self, origin: str, to: str) -> None:
        run(["docker", "exec", f"{NAME}-control-plane", "mv", f"{origin}/kube-apiserver.yaml", to])


def up() -> None:
    """Bring up a cluster of kind, or bring the newest images to the one that is up.

    Raises:
        ClusterError: a program is missing, or a step failed.
    """
    for program in ("docker", "kind", "kubectl", "helm"):
        if not succeeds(["sh", "-c", f"command -v {program}"]):
            raise ClusterError(f"PROVIDER=kind needs `{program}`, which is not installed")
    if not is_up():
        with step("kind create cluster"):
            paths.KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
            config = json.dumps(_kind_config())
            words: list[str | Path] = [
                "kind",
                "create",
                "cluster",
                "--name",
                NAME,
                "--kubeconfig",
                paths.KUBECONFIG,
                "--config",
                "-",
            ]
            run(words, stdin=config, timeout=900)
        for node in CONFIG.nodes:
            lifecycle.equip(node)
    load_images()
    with step("install KubeRay and volumes"):
        apply(*kuberay.manifests(CONFIG.kuberay, kuberay.rendered()), *volumes.manifests())
        kuberay.wait()


def load_images() -> None:
    """Build the images of `worker_images/`, and of the programs in pods, with Docker, and bring them to the nodes."""
    for name in ("worker", "operator"):
        file = paths.PROJECT / f"worker_images/{name}/Dockerfile"
        _image(f"localhost/rlhf-{name}:dev", file, paths.PROJECT, ARGUMENTS.get(f"rlhf-{name}", {}))
    for image, family, name in (
        (kuberay.IMAGE, builds.KUBERAY, "manager"),
        (volumes.IMAGE, builds.LOCAL_PATH, "local-path-provisioner"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(builds.build(family).program(name), folder)
            (Path(folder) / "program").symlink_to(name)
            _image(image, paths.HERE / "images/program/Dockerfile", Path(folder))


def _image(reference: str, dockerfile: Path, context: Path, arguments: Mapping[str, str] | None = None) -> None:
    given = [word for name, value in (arguments or {}).items() for word in ("--build-arg", f"{name}={value}")]
    with step(f"build and load {reference}"):
        run(["docker", "build", "--tag", reference, "--file", dockerfile, *given, context], timeout=3600)
        run(["kind", "load", "docker-image", reference, "--name", NAME], timeout=1800)


def down() -> None:
    """Delete the cluster."""
    with step("kind delete cluster"):
        run(["kind", "delete", "cluster", "--name", NAME], timeout=300)
        paths.KUBECONFIG.unlink(missing_ok=True)


def is_up() -> bool:
    """Whether the cluster exists and answers."""
    return paths.KUBECONFIG.exists() and api.ready()


def _kind_config() -> dict[str, object]:
    nodes: list[dict[str, object]] = [{"role": "control-plane"}]
    for node in CONFIG.nodes:
        joined = {"kind": "JoinConfiguration", "nodeRegistration": {"taints": [GPU_TAINT] if node.gpus else []}}
        patches = [json.dumps(joined)]
        shared = {"hostPath": str(paths.cache_folder() / "kind-shared"), "containerPath": SHARED_VOLUMES}
        labels = {POOL_LABEL: node.pool}
        nodes.append({"role": "worker", "labels": labels, "kubeadmConfigPatches": patches, "extraMounts": [shared]})
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}


if __name__ == "__main__":
    commands: dict[str, Callable[[], None]] = {
        "up": up,
        "down": down,
        "images": load_images,
        "status": lambda: print("up" if is_up() else "down"),
    }
    try:
        commands[sys.argv[1]]()
    except ClusterError as error:
        sys.exit(f"Error: {error}")
