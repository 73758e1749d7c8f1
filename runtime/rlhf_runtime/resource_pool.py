"""`RayResourcePool`: where the processes of worker groups are, and how many groups share one.

A pool has a place for each process that `process_on_nodes` counts, and a group has one process, one rank, at every
place. With `max_colocate_count=1` these processes are the group's own, and the groups on a pool share what is at its
places (GPUs, say), each at least one place's worth of the whole: there are never more groups than places. With a
higher count, up to so many groups live in the same processes.

    process_on_nodes=[2], two groups    max_colocate_count=1          max_colocate_count=2
    place 0                             actor rank 0 | critic rank 0  actor + critic rank 0
    place 1                             actor rank 1 | critic rank 1  actor + critic rank 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlhf_runtime.backends.base import Backend
from rlhf_runtime.control.engine import Engine
from rlhf_runtime.errors import ResourcePoolError


@dataclass(eq=False)
class RayResourcePool:
    """Places for the processes of worker groups.

    Attributes:
        process_on_nodes: Processes on each node: `[4] * 2` is two nodes with four each.
        use_gpu: Whether each process needs a GPU at its place.
        max_colocate_count: How many groups may share one process.
    """

    process_on_nodes: Sequence[int]
    use_gpu: bool = True
    max_colocate_count: int = 1
    _shared: list[tuple[Engine, list[str]]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self.process_on_nodes = list(self.process_on_nodes)
        if not self.process_on_nodes or min(self.process_on_nodes) < 1:
            raise ResourcePoolError(
                f"`process_on_nodes` must list at least one process for each node; got {self.process_on_nodes}"
            )
        if self.max_colocate_count < 1:
            raise ResourcePoolError(f"`max_colocate_count` must be at least 1; got {self.max_colocate_count}")

    @property
    def world_size(self) -> int:
        """The number of places, and of ranks of each group."""
        return sum(self.process_on_nodes)

    def take(self, group: str, engine: Engine) -> str | None:
        """Make room for a group.

        Returns:
            The group whose processes it shares; None: it has its own.

        Raises:
            ResourcePoolError: The pool is full, or asks for GPUs that are not there.
        """
        self._check_gpus(engine.backend)
        self._shared = [(owner, names) for owner, names in self._shared if not owner.closed]
        for owner, names in self._shared:
            if owner is engine and len(names) < self.max_colocate_count:
                names.append(group)
                return names[0]
        if len(self._shared) == self.world_size:
            taken = ", ".join(f'"{name}"' for _, names in self._shared for name in names)
            raise ResourcePoolError(
                f'no place for the group "{group}": the pool has {self.world_size} (process_on_nodes='
                f"{self.process_on_nodes}), taken by {taken}; give the group a RayResourcePool of its own, or raise "
                f"`max_colocate_count` (now {self.max_colocate_count}) so that groups share processes"
            )
        self._shared.append((engine, [group]))
        return None

    def _check_gpus(self, backend: Backend) -> None:
        there = backend.gpus() if self.use_gpu else None
        if there is None or there >= self.world_size:
            return
        found = f"finds {there}" if there else "finds none"
        raise ResourcePoolError(
            f"a pool with `use_gpu=True` and process_on_nodes={self.process_on_nodes} needs {self.world_size} GPUs, "
            f'but the "{backend.name}" backend {found}: set `use_gpu=False` to run on CPUs, or lower `process_on_nodes`'
        )
