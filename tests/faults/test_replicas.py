"""A role of several workers: alone where it holds no state, together where it does."""

from __future__ import annotations

import pytest
import torch
from builders import Run, a_run
from toy_workers import Counter, Echo

from rlhf_runtime.backends.simulated import Fault


def _attempts(run: Run, role: str) -> list[int]:
    return [seat.attempt for seat in run.controller.engine.groups[role].seats]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_of_workers_without_state_only_the_dead_one_is_replaced(rank: int) -> None:
    run = a_run().role("reward", Echo, replicas=3).hit_by(Fault(role="reward", method="rows", call=rank + 1)).start()
    out = run.step("reward", "rows", ["x", "rank"], x=torch.arange(7.0))
    assert out["x"].get().tolist() == [2.0 * i for i in range(7)]
    assert out["rank"].get().tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert _attempts(run, "reward") == [1 if r == rank else 0 for r in range(3)]
    assert run.seen.incidents[0].worker == f"reward-worker-00{rank}"


@pytest.mark.parametrize("at", ["received", "logged", "applied"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_workers_that_hold_state_together_come_back_together(rank: int, at: str) -> None:
    fault = Fault(role="actor", method="update", at=at, call=3 + rank + 1)
    run = a_run().role("actor", Counter, replicas=3).role("other", Counter).hit_by(fault).start()
    for _ in range(3):
        run.step("actor", "update", [], amount=1.0)
        run.step("other", "update", [], amount=1.0)
    totals = [run.step("actor", "look", ["total", "seen"], x=[1, 2, 3]) for _ in range(2)]
    assert all(t["total"].get() == 7.0 for t in totals)
    assert all(t["seen"].get() == ["0.0", "0.2", "0.4"] * 3 for t in totals)
    assert _attempts(run, "actor") == [1, 1, 1]
    assert _attempts(run, "other") == [0]
    assert run.restarts == {"actor": 1}
