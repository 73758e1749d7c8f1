"""A role whose ranks compute as one: they come, go and answer together, and no answer mixes two attempts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from builders import Run, RunBuilder, a_run
from toy_workers import Counter

from rlhf_runtime.backends.inprocess import InProcessBackend
from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.errors import StepError
from rlhf_runtime.worker import Dispatch, Effect, register


class Ensemble(Counter):
    """Says of each row which attempt of the role computed it, and where that attempt met."""

    @register(collective=True)
    def read(self, x: torch.Tensor) -> dict[str, Any]:
        return {
            "x": x + self.total,
            "attempt": torch.full((len(x),), self.context.attempt),
            "met": [self.context.meeting_place] * len(x),
        }


class Severed(Ensemble):
    """Its second rank finds the connection to the first closed, once."""

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, amount: float = 1.0, **_: Any) -> dict[str, Any]:
        if self.context.rank == 1 and self.context.attempt == 0:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:40123")
        return super().update(amount)


def an_ensemble(cls: type = Ensemble, **fields: Any) -> RunBuilder:
    return a_run().role("actor", cls, replicas=3, process_group=True, **fields).role("other", Counter)


def _attempts(run: Run, role: str = "actor") -> list[int]:
    return [seat.attempt for seat in run.controller.engine.groups[role].seats]


def _read(run: Run) -> tuple[list[float], set[int]]:
    out = run.step("actor", "read", ["x", "attempt", "met"], x=torch.arange(7.0))
    assert len(set(out["met"].get())) == 1
    return out["x"].get().tolist(), set(out["attempt"].get().tolist())


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize(
    ("method", "at"),
    [("read", "received"), ("read", "answered"), *(("update", at) for at in ("received", "logged", "applied"))],
)
def test_all_ranks_come_back_and_every_effect_is_there_once(method: str, at: str, rank: int) -> None:
    run = an_ensemble().hit_by(Fault(role="actor", method=method, at=at, call=rank + 1)).start()
    first, attempts = _read(run)
    assert first == [float(row) for row in range(7)] and len(attempts) == 1
    run.step("actor", "update", [], amount=1.0)
    run.step("other", "update", [], amount=1.0)
    run.step("actor", "update", [], amount=1.0)
    second, attempts = _read(run)
    assert second == [row + 3.0 for row in range(7)]
    assert attempts == {1}
    assert _attempts(run) == [1, 1, 1]
    assert _attempts(run, "other") == [0]
    assert run.restarts == {"actor": 1}
    look = run.step("actor", "look", ["total", "seen"], x=[1, 2, 3])
    assert look["total"].get() == 3.0
    assert look["seen"].get() == ["0.1", "0.3"] * 3


def test_every_attempt_meets_at_another_place() -> None:
    run = an_ensemble().hit_by(Fault(role="actor", method="read", call=5)).start()
    met = [run.step("actor", "read", ["met"], x=torch.arange(3.0))["met"].get() for _ in range(2)]
    assert [len(set(places)) for places in met] == [1, 1]
    assert met[0] != met[1]


def test_ranks_that_start_at_different_times_wait_for_each_other() -> None:
    run = an_ensemble().starting_in(20.0).start()
    assert _read(run)[0] == [float(row) for row in range(7)]


def test_the_loss_of_an_output_is_made_good_by_all_ranks_together() -> None:
    lost = Fault(role="actor", method="read", at="answered", call=2, kind="lose")
    run = an_ensemble().role("user", Ensemble).losing_buffers().hit_by(lost).start()
    made = run.step("actor", "read", ["x", "attempt"], x=torch.arange(7.0))
    used = run.step("user", "read", ["x"], x=made["x"])
    assert used["x"].get().tolist() == [float(row) for row in range(7)]
    assert len(set(made["attempt"].get().tolist())) == 1


def test_a_restart_on_request_counts_once_for_all_ranks() -> None:
    run = an_ensemble().start()
    _read(run)
    run.controller.engine.restart_role("actor", reason="a look at new weights")
    assert _read(run) == ([float(row) for row in range(7)], {1})
    group = run.controller.engine.groups["actor"]
    assert (group.restarts, group.uncounted_restarts) == (0, 1)


def test_a_share_of_no_rows_is_refused() -> None:
    run = an_ensemble().start()
    with pytest.raises(StepError, match=r"actor\.read.*must reach all 3 workers; there are 2 rows to split"):
        run.step("actor", "read", ["x"], x=torch.arange(2.0))["x"].get()


def test_a_rank_that_lost_another_waits_for_the_news_of_its_death() -> None:
    hang = Fault(role="actor", method="update", call=1, kind="hang")
    run = an_ensemble(Severed, method_timeout=3.0).hit_by(hang).start()
    assert run.step("actor", "update", ["total"], amount=2.0)["total"].get() == 2.0
    (incident,) = run.seen.incidents
    assert (incident.worker, incident.reason) == ("actor-worker-000", "MethodTimeout")
    assert run.backend.now() == 3.0
    assert run.restarts == {"actor": 1}


def test_a_broken_connection_without_a_death_ends_all_ranks() -> None:
    run = an_ensemble(Severed).start()
    assert run.step("actor", "update", ["total"], amount=2.0)["total"].get() == 2.0
    (incident,) = run.seen.incidents
    assert incident.worker == "actor-worker-001"
    assert "Connection closed by peer" in incident.message
    assert _attempts(run) == [1, 1, 1]


def test_one_process_cannot_hold_several_ranks() -> None:
    run = an_ensemble().on(InProcessBackend).settings(state_location="memory:ranks-in-process").start()
    with pytest.raises(StepError, match="need processes of their own"):
        run.step("actor", "read", ["x"], x=torch.arange(7.0))["x"].get()
