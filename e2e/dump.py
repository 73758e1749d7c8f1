"""After a failure: objects, events and logs in a folder, so that a run in CI can be understood later."""

from collections.abc import Callable
from pathlib import Path

from e2e.cluster import nodes, paths, processes
from e2e.cluster.config import FOUR_NODES
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import get, kubectl

KINDS = "rayclusters,rayjobs,pods,jobs,services,configmaps,persistentvolumeclaims,networkpolicies"


def dump(namespace: str, folder: Path) -> None:
    """Write what is known of a namespace and of the cluster around it into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    here = f"--namespace={namespace}"
    _write(folder / "objects.yaml", lambda: kubectl("get", KINDS, here, "--output=yaml"))
    _write(folder / "pods.txt", lambda: kubectl("describe", "pods", here))
    _write(folder / "events.txt", lambda: kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"))
    _write(folder / "nodes.txt", lambda: kubectl("describe", "nodes"))
    _write(folder / "kuberay.log", lambda: kubectl("logs", "--namespace=default", "deployment/kuberay-operator"))
    _pod_logs(here, folder / "logs")
    for process in processes.known():
        if process.log.exists():
            _write(folder / "cluster" / f"{process.name}.log", lambda log=process.log: _tail(log))  # type: ignore[misc]
    for node in FOUR_NODES:
        for log in (nodes.folder(node) / "log").glob("*.log"):
            _write(folder / "cluster" / node.name / log.name, lambda log=log: _tail(log))  # type: ignore[misc]


def _pod_logs(here: str, folder: Path) -> None:
    try:
        pods = get("pods", here)["items"]
    except ClusterError:
        return  # objects.yaml already holds the reason
    for pod in pods:
        name = pod["metadata"]["name"]
        words = ["logs", here, name, "--all-containers", "--prefix", "--timestamps"]
        _write(folder / f"{name}.log", lambda words=words: kubectl(*words))  # type: ignore[misc]
        restarted = any(status.get("restartCount") for status in pod["status"].get("containerStatuses", []))
        if restarted:
            _write(folder / f"{name}.previous.log", lambda words=words: kubectl(*words, "--previous"))  # type: ignore[misc]


def _write(path: Path, read: Callable[[], str]) -> None:
    """Write what ``read`` returns, or why it could not: a dump of a broken cluster has gaps, and says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(read())
    except (ClusterError, OSError) as error:
        path.write_text(f"could not be read: {error}\n")


def _tail(path: Path, *, size: int = 200_000) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode(errors="replace")


def default_folder() -> Path:
    """Where dumps go: a folder of the project that git ignores."""
    return paths.PROJECT / "e2e-failures"
