"""A rank dies or stops in the middle of a collective operation: no other hangs, and nothing is made twice."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import Run
from real_processes import Gate, is_alive, kill, wait_until
from toy_workers import Process

from rlhf_runtime.engines.ranks import join_ranks
from rlhf_runtime.worker import Dispatch, Effect, register

pytestmark = pytest.mark.ray


class Summing(Process):
    """Its updates add up the ranks' numbers; the second rank is late when a test says so."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.ranks = join_ranks(self.context)

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, amount: float = 1.0, **_: Any) -> dict[str, Any]:
        if self.context.rank == 1:
            self._gate("sum")
        share = amount * (self.context.rank + 1)
        self.total = 2 * self.total + self.ranks.sums({"x": torch.tensor(share)})["x"]
        return {"total": self.total}


@pytest.fixture
def run(runs: Any, tmp_path: Path) -> Run:
    started: Run = (
        runs.role(
            "actor", Summing, replicas=2, process_group=True, method_timeout=6.0, init_kwargs={"folder": str(tmp_path)}
        )
        .role("critic", Process)
        .settings(spares=2)
        .start()
    )
    started.controller.engine.wait_ready()
    return started


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGKILL, "Killed"), (signal.SIGSTOP, "MethodTimeout")], ids=["killed", "stopped"]
)
def test_a_rank_falls_out_of_a_sum(run: Run, tmp_path: Path, number: int, reason: str) -> None:
    run.step("critic", "update", [], amount=1.0)
    assert run.step("actor", "update", ["total"], amount=1.0)["total"].get() == 3.0
    before = run.pids
    with Gate(tmp_path, "sum") as gate:
        answer = run.step("actor", "update", ["total"], amount=2.0)["total"]
        late = gate.wait_inside()
        assert late == before["actor"][1]
        kill(late, number)
    assert answer.get() == 12.0
    after = run.pids
    assert after["critic"] == before["critic"]
    assert not set(after["actor"]) & set(before["actor"])
    assert run.restarts == {"actor": 1}
    (incident,) = run.seen.incidents
    assert incident.reason == reason
    if number == signal.SIGKILL:
        assert incident.worker == "actor-worker-001"
    for pid in before["actor"]:
        wait_until(lambda pid=pid: not is_alive(pid), "the old ranks to be gone", seconds=30)
    assert run.step("actor", "update", ["total"], amount=1.0)["total"].get() == 27.0
