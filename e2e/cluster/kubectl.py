"""kubectl of the server's own version, always with this cluster's kubeconfig."""

import json
from pathlib import Path
from typing import Any

from e2e.cluster import builds, paths
from e2e.cluster.shell import run


def program() -> Path:
    """The kubectl that was built with the cluster; with kind, the machine's own."""
    return Path("kubectl") if paths.KIND else builds.find(builds.KUBERNETES).program("kubectl")


def kubectl(*words: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
    """Run kubectl against the cluster; returns what it printed.

    Raises:
        CommandError: it ended with an error.
    """
    return run([program(), f"--kubeconfig={paths.KUBECONFIG}", *words], stdin=stdin, timeout=timeout)


def get(*words: str, timeout: float = 30) -> dict[str, Any]:
    """``kubectl get ... -o json`` as a dictionary."""
    found: dict[str, Any] = json.loads(kubectl("get", *words, "--output=json", timeout=timeout))
    return found


def apply(*objects: dict[str, Any], timeout: float = 60) -> None:
    """Server-side apply objects given as dictionaries."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=json.dumps(items), timeout=timeout)
