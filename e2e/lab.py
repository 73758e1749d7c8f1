"""What a test does with the cluster: a namespace of its own, apply, wait, look, run commands in pods."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from e2e.cluster import kubectl
from e2e.cluster.api import is_ready
from e2e.cluster.config import ClusterConfig
from e2e.cluster.errors import ClusterError, CommandError
from e2e.cluster.faults import Faults

T = TypeVar("T")


class WaitError(AssertionError):
    """What was waited for did not come; the message shows what was seen last."""


@dataclass(frozen=True, slots=True)
class Lab:
    """The cluster as one test sees it: everything without a namespace of its own goes to the test's."""

    namespace: str
    faults: Faults
    config: ClusterConfig

    def node(self, pool: str, index: int = 0) -> str:
        """The name of a node of the pool; names differ between providers, pools do not."""
        return self.config.pool(pool)[index].name

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl in the test's namespace; returns what it printed."""
        return kubectl.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin, timeout=timeout)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Server-side apply objects into the test's namespace."""
        items = [{**item, "metadata": {"namespace": self.namespace, **item["metadata"]}} for item in objects]
        kubectl.apply(*items)

    def get(self, *words: str) -> dict[str, Any]:
        """One object, or a list of them, as a dictionary."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output=json"))
        return found

    def find(self, *words: str) -> dict[str, Any] | None:
        """One object, or None if it does not exist."""
        text = self.kubectl("get", *words, "--output=json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(text) if text.strip() else None
        return found

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        """The pods with these labels (``ray_io_group="actor"`` is the label ``ray.io/group``), oldest first."""
        selector = ",".join(f"{_label(key)}={value}" for key, value in labels.items())
        found: list[dict[str, Any]] = self.get("pods", *([f"--selector={selector}"] if selector else []))["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def run_pods(self, *pods: dict[str, Any], timeout: float = 120) -> None:
        """Apply pods and wait until all of them are ready."""
        self.apply(*pods)
        names = [pod["metadata"]["name"] for pod in pods]
        self.wait(f"{', '.join(names)} run", lambda: all(is_ready(self.get("pod", n)) for n in names), timeout=timeout)

    def execute(self, pod: str, *command: str, container: str = "", timeout: float = 120) -> str:
        """Run a command in a pod; returns what it printed."""
        where = ["--container", container] if container else []
        return self.kubectl("exec", pod, *where, "--", *command, timeout=timeout)

    def wait(self, what: str, look: Callable[[], T | None], *, timeout: float = 120) -> T:
        """Look again and again until something true is seen, and return it.

        Raises:
            WaitError: nothing is seen within ``timeout`` seconds.
        """
        give_up = time.monotonic() + timeout
        problem = ""
        while time.monotonic() < give_up:
            try:
                if seen := look():
                    return seen
                problem = ""
            except (CommandError, ClusterError) as error:  # such as an API server that is away for a moment
                problem = f"; the last look failed: {error}"
            time.sleep(0.3)
        raise WaitError(f"{what}: not within {timeout:.0f} s{problem}\n{self._pods_in_short()}")

    def _pods_in_short(self) -> str:
        try:
            return self.kubectl("get", "pods", "--output=wide")
        except ClusterError as error:
            return str(error)


def _label(key: str) -> str:
    return "ray.io/" + key.removeprefix("ray_io_").replace("_", "-") if key.startswith("ray_io_") else key
