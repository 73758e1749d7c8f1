"""Bring the cluster up and down.

Everything that a cluster leaves on the machine has a fixed name (namespaces and links ``rlhf-*``, the cgroup
``rlhf-cluster``, one state folder), so that :func:`remove_everything` finds it whatever happened to the command that
made it, and `cluster-up` after a run that was killed half way simply starts over.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import api, cgroups, control_plane, network, nodes, paths, pki, processes
from e2e.cluster.config import GPU_RESOURCE, ClusterConfig, NodeConfig
from e2e.cluster.errors import ClusterError
from e2e.cluster.shell import run
from e2e.cluster.steps import say, step

_CONFIG = paths.STATE / "config.json"
_LOCK = Path("/run/lock/rlhf-cluster.lock")
NODE_READY_SECONDS = 120


def is_up() -> bool:
    """Whether a cluster was brought up here to the end, and its API server answers."""
    return is_complete() and api.ready()


def is_complete() -> bool:
    """Whether a cluster was brought up here to the end, whatever happened to it since."""
    return _CONFIG.exists()


def is_busy() -> bool:
    """Whether a command is bringing the cluster up or down at this moment."""
    if not _LOCK.exists():
        return False
    with _LOCK.open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def configuration() -> ClusterConfig:
    """What the running cluster was made with.

    Raises:
        ClusterError: there is none.
    """
    if not is_complete():
        raise ClusterError("no cluster is up on this machine; `make cluster-up` starts one")
    return ClusterConfig.from_json(_CONFIG.read_text())


@contextmanager
def locked() -> Iterator[None]:
    """Only one command at a time brings the cluster up or down."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that brings the cluster up or down ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start_machines(config: ClusterConfig) -> None:
    """Start control plane and nodes on a machine where none run; the nodes are Ready at the end."""
    with step("make certificates and the network"):
        paths.STATE.mkdir(parents=True, exist_ok=True)
        paths.STATE.chmod(0o755)
        pki.create(config)
        network.create_hub()
        for node in config.nodes:
            nodes.create(node, config)
    with step("start etcd and the API server"):
        control_plane.start(config)
    with step(f"start {len(config.nodes)} nodes"):
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda node: nodes.start(node, config), config.nodes))
        wait_nodes("have registered", config, lambda node: True)
        for node in config.nodes:
            equip(node)
    with step("wait until all nodes are Ready"):
        wait_nodes("are Ready", config, api.is_ready)


def wait_nodes(what: str, config: ClusterConfig, good: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until every node of the cluster exists and is ``good``.

    Raises:
        ClusterError: not in time, or a node's first process has ended.
    """

    def all_good() -> bool:
        there = api.nodes()
        return all(node.name in there and good(there[node.name]) for node in config.nodes)

    machines = [processes.find(nodes.process_name(node)) for node in config.nodes]
    processes.wait_until(f"all nodes {what}", all_good, timeout=NODE_READY_SECONDS, processes=machines)


def remember(config: ClusterConfig) -> None:
    """Note that the cluster is complete, and what it was made with."""
    _CONFIG.write_text(config.to_json())


def equip(node: NodeConfig) -> None:
    """Give a node its stand-in GPUs: the kubelet keeps what others write into its capacity, until it starts anew."""
    if node.gpus:
        count = {GPU_RESOURCE: str(node.gpus)}
        api.call(
            f"/api/v1/nodes/{node.name}/status",
            method="PATCH",
            body={"status": {"capacity": count, "allocatable": count}},
            content_type="application/merge-patch+json",
        )


def remove_everything() -> bool:
    """End and remove all of the cluster, also what a killed command left; returns whether there was anything.

    The nodes' namespaces end with their first process, and their mounts with them; the rest goes by its fixed names.
    """
    had = paths.STATE.exists() or bool(network.namespaces()) or bool(cgroups.processes())
    for process in processes.known():
        if process.name.startswith("node-"):
            process.stop(grace=0)
    cgroups.kill()
    cgroups.remove()
    network.delete_all()
    for mount in mounts():
        run(["umount", "--lazy", mount])
    if paths.STATE.exists():
        shutil.rmtree(paths.STATE)
    return had


def leftovers() -> list[str]:
    """What there is of a cluster on this machine; nothing after :func:`remove_everything`."""
    found = [f"process {pid}" for pid in sorted(cgroups.processes())]
    found += [f"cgroup {tree / cgroups.ROOT}" for tree in cgroups.all_trees() if (tree / cgroups.ROOT).exists()]
    found += [f"network namespace {name}" for name in network.namespaces()]
    links = run(["ip", "-brief", "link"]) + run(["ip", "route"])
    found += [f"link or route: {line}" for line in links.splitlines() if network.HOST_LINK in line]
    found += [f"mount {point}" for point in mounts()]
    return found + ([f"folder {paths.STATE}"] if paths.STATE.exists() else [])


def mounts() -> list[str]:
    """Mounts in the state folder that this machine's own mount namespace sees; the nodes' own are not among them."""
    lines = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((point for point in lines if point.startswith(f"{paths.STATE}/")), reverse=True)
