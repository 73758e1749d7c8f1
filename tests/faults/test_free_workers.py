"""Parts that go to whoever is free: a slow worker answers fewer, a dead one keeps nobody waiting."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from builders import Run, RunBuilder, a_run
from toy_workers import Counter

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.errors import StepError
from rlhf_runtime.worker import Dispatch, Effect, Worker, register

ROWS = 24


class Server(Worker):
    """Answers any rows."""

    @register(parts_per_worker=4, durable=True)
    def serve(self, x: torch.Tensor) -> dict[str, Any]:
        first = self.context.call.row_offset
        return {
            "x": 2 * x,
            "rank": torch.full((len(x),), self.context.rank),
            "index": torch.arange(first, first + len(x)),
        }

    @register(parts_per_worker=2)
    def raises(self, x: torch.Tensor) -> dict[str, Any]:
        raise ValueError("never")


def three_servers(**fields: Any) -> RunBuilder:
    return a_run().role("server", Server, replicas=3, **fields).lasting("server.serve", 1.0)


def serve(run: Run, rows: int = ROWS) -> list[int]:
    """Who answered how many of the rows; all of them were answered once, and in order."""
    out = run.step("server", "serve", ["x", "rank", "index"], x=torch.arange(float(rows)))
    assert out["x"].get().tolist() == [2.0 * row for row in range(rows)]
    assert out["index"].get().tolist() == list(range(rows))
    return torch.bincount(out["rank"].get(), minlength=3).tolist()


def test_equal_workers_answer_as_much_each() -> None:
    run = three_servers().start()
    assert serve(run) == [8, 8, 8]
    assert run.backend.now() == pytest.approx(4.0)


def test_a_slow_worker_answers_less_and_the_step_does_not_wait_for_a_full_share() -> None:
    run = three_servers().lasting("server-worker-001.serve", 4.0).start()
    slow = serve(run)
    assert slow[1] in (2, 4)
    assert sum(slow) == ROWS
    assert run.backend.now() <= 8.0  # a share of its own would have taken it 16


@pytest.mark.parametrize("call", [1, 2, 6, 12])
@pytest.mark.parametrize("at", ["received", "answered"])
def test_what_a_dead_worker_had_is_answered_by_the_others_at_once(at: str, call: int) -> None:
    fault = Fault(role="server", method="serve", at=at, call=call)
    run = three_servers(start_timeout=900.0).starting_in(100.0).hit_by(fault).start()
    run.controller.engine.wait_ready()
    began = run.backend.now()
    serve(run)
    assert run.backend.now() - began <= 7.0  # two workers for three, and one part twice
    later = serve(run)
    assert run.backend.now() - began <= 14.0  # nor does the next step wait for its return
    assert run.restarts == {"server": 1}
    dead = run.seen.incidents[0].rank
    assert later[dead] == 0
    run.step("server", "serve", x=torch.arange(3.0)).wait()
    while not run.controller.engine.groups["server"].ready:
        run.backend.pump(1.0)
    assert serve(run)[dead] > 0


def test_a_worker_that_hangs_holds_up_one_part_until_its_limit() -> None:
    fault = Fault(role="server", method="serve", call=2, kind="hang")
    run = three_servers(method_timeout=30.0).hit_by(fault).start()
    serve(run)
    assert 30.0 <= run.backend.now() <= 40.0
    assert [incident.reason.value for incident in run.seen.incidents] == ["MethodTimeout"]


def test_all_may_die_and_every_part_is_answered_once() -> None:
    faults = [Fault(role="server", method="serve", call=call) for call in (1, 2, 3, 5, 8)]
    run = three_servers().starting_in(5.0).hit_by(*faults).start()
    assert sum(serve(run)) == ROWS
    assert run.restarts == {"server": 5}


def test_a_worker_that_is_added_takes_the_next_part() -> None:
    run = three_servers().lasting("server.serve", 10.0).start()
    run.controller.engine.wait_ready()
    out = run.step("server", "serve", ["rank"], x=torch.arange(float(ROWS)))
    run.backend.pump(0.0)
    run.controller.engine.scale_role("server", 4)
    assert 3 in out["rank"].get().tolist()


def test_a_worker_that_is_taken_away_leaves_its_parts_to_the_others() -> None:
    run = three_servers().lasting("server.serve", 10.0).start()
    run.controller.engine.wait_ready()
    out = run.step("server", "serve", ["x", "rank"], x=torch.arange(float(ROWS)))
    run.controller.engine.scale_role("server", 1)
    assert out["x"].get().tolist() == [2.0 * row for row in range(ROWS)]
    assert run.restarts == {}
    assert set(serve(run)[1:]) == {0}


def test_fewer_rows_than_parts() -> None:
    assert sum(serve(three_servers().start(), rows=2)) == 2


def test_parts_of_two_steps_share_the_workers() -> None:
    run = three_servers().start()
    first, second = (run.step("server", "serve", ["x"], x=torch.arange(float(ROWS))) for _ in range(2))
    assert first["x"].get().tolist() == second["x"].get().tolist()
    assert run.backend.now() == pytest.approx(8.0)


def test_a_role_that_shares_the_processes_takes_its_turn() -> None:
    run = (
        a_run()
        .role("actor", Counter, replicas=1)
        .role("server", Server, replicas=1, colocate_with="actor")
        .lasting("actor.look", 3.0)
        .lasting("server.serve", 1.0)
        .start()
    )
    run.controller.engine.wait_ready()
    look = run.step("actor", "look", x=[1])
    out = run.step("server", "serve", ["x"], x=torch.arange(4.0))
    assert out["x"].get().tolist() == [0.0, 2.0, 4.0, 6.0]
    look.wait()
    assert run.backend.now() == pytest.approx(4.0)


def test_a_lost_part_is_computed_again_by_anybody() -> None:
    lost = Fault(role="server", method="serve", at="answered", call=2, kind="lose")
    run = three_servers().losing_buffers().hit_by(lost).start()
    assert sum(serve(run)) == ROWS


def test_an_exception_in_a_part_fails_the_step() -> None:
    with pytest.raises(StepError, match="never"):
        three_servers().start().step("server", "raises", x=torch.arange(4.0)).wait()


@pytest.mark.parametrize(
    "declared",
    [{"effect": Effect.WRITE}, {"collective": True}, {"dispatch": Dispatch.RANK_ZERO}],
)
def test_only_what_anybody_may_answer_can_be_cut_in_parts(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`parts_per_worker` needs a data-parallel method"):
        register(parts_per_worker=2, **declared)
