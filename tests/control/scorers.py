"""A role without state for tests of scaling, and a backend whose roles have pods of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlhf_runtime.backends.base import Place
from rlhf_runtime.backends.simulated import SimulatedBackend, SimulatedHost
from rlhf_runtime.worker import Worker, register


class Scorer(Worker):
    """Scores rows with noise that is counted by the row, as generation's is."""

    @register()
    def score(self, x: torch.Tensor) -> dict[str, Any]:
        call = self.context.call
        rows = range(call.row_offset, call.row_offset + len(x))
        seeds = [1_000_000 * self.context.seed + 1000 * call.iteration + row for row in rows]
        noise = [torch.rand(1, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return {"scores": x + torch.cat(noise), "by": [self.context.worker_name] * len(x)}

    @register(repeatable=False)
    def pay(self, x: torch.Tensor) -> dict[str, Any]:
        return {"paid": x, "attempt": self.context.attempt}


class RolePods(SimulatedBackend):
    """In virtual time, with one pod for each host of a role; `pods` says which have joined."""

    pins_places = True

    def __init__(self, pods: dict[str, list[str]], **options: Any) -> None:
        super().__init__(**options)
        self.pods = pods
        self.places: list[Place] = []

    def start_host(
        self, name: str, *, preload: Sequence[str] | None = None, place: Place | None = None
    ) -> SimulatedHost:
        assert place is not None
        self.places.append(place)
        return super().start_host(name, preload=preload, place=place)

    def pods_of(self, role: str) -> list[str]:
        return self.pods.get(role, [])
