"""Every role computes with the threads that it declares, also where roles share a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from builders import RunBuilder, a_run

from rlhf_runtime.worker import Dispatch, Effect, Worker, register


class Threads(Worker):
    def __init__(self) -> None:
        self.at_start = torch.get_num_threads()
        self.at_updates: list[int] = []

    @register()
    def look(self) -> dict[str, Any]:
        return {"now": torch.get_num_threads(), "start": self.at_start, "updates": self.at_updates}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self) -> None:
        self.at_updates.append(torch.get_num_threads())


@pytest.fixture(autouse=True)
def threads_of_the_test() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["simulated", "in-process"])
def runs(request: pytest.FixtureRequest) -> RunBuilder:
    return a_run() if request.param == "simulated" else a_run().in_process()


def test_colocated_roles_keep_their_own_number_of_threads(runs: RunBuilder) -> None:
    run = runs.role("a", Threads, threads=2).role("b", Threads, threads=1, colocate_with="a").start()
    for _ in range(2):
        for role, want in (("a", 2), ("b", 1)):
            run.step(role, "update", []).wait()
            look = run.step(role, "look", ["now", "start", "updates"])
            assert (look["now"].get(), look["start"].get()) == (want, want)
            assert set(look["updates"].get()) == {want}
