"""Which pods of each role have joined Ray.

The operator starts a role's pods with a Ray resource of the role, so that Ray itself says which are there. A thread
asks it, since nobody who holds the engine's lock may wait for Ray's head, which can be gone for minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_PERIOD_SECONDS = 1.0
_PREFIX = "role-"


class PlaceWatch:
    """The newest known answer of Ray about the pods of roles.

    Args:
        list_nodes: Asks Ray for its nodes, each as `ray.nodes()` has them.
    """

    def __init__(self, list_nodes: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self._list_nodes = list_nodes
        self._pods: dict[str, list[str]] = {}
        self._closed = threading.Event()
        self._look()
        threading.Thread(target=self._watch, name="rlhf-places", daemon=True).start()

    def pods_of(self, role: str) -> list[str]:
        """The pods of a role that are there, by name."""
        return self._pods.get(role, [])

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_PERIOD_SECONDS):
            try:
                self._look()
            except Exception:  # Ray's head is away, in whatever words: what was known stays
                continue

    def _look(self) -> None:
        self._pods = pods_by_role(self._list_nodes())


def pods_by_role(nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The names of living nodes by the role whose resource they have."""
    pods: dict[str, list[str]] = {}
    for node in nodes:
        if node["Alive"]:
            for resource in node["Resources"]:
                if resource.startswith(_PREFIX):
                    pods.setdefault(resource.removeprefix(_PREFIX), []).append(node["NodeManagerHostname"])
    return {role: sorted(names) for role, names in pods.items()}
