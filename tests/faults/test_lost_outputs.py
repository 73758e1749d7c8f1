"""Outputs that die with the node that holds them: computed again, or read from their second copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from builders import STATE, Run, RunBuilder, a_run
from toy_ppo import ROLES, Outcome, a_ppo, outcome
from toy_workers import Counter

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.errors import SkippedStepError, StepError, WeightsLostError
from rlhf_runtime.worker import Dispatch, Effect, Worker, register

COUNTS: dict[str, int] = {}


class Maker(Worker):
    def __init__(self, name: str = "maker") -> None:
        self.name, self.scale = name, 1.0

    @register()
    def make(self, rows: int = 4) -> dict[str, Any]:
        COUNTS[self.name] = COUNTS.get(self.name, 0) + 1
        return {"x": self.scale * torch.arange(float(rows))}

    @register(durable=True)
    def make_durable(self, rows: int = 4) -> dict[str, Any]:
        return self.make(rows)

    @register(repeatable=False)
    def make_once(self, rows: int = 4) -> dict[str, Any]:
        return self.make(rows)

    @register()
    def twice(self, x: torch.Tensor) -> dict[str, Any]:
        COUNTS["twice"] = COUNTS.get("twice", 0) + 1
        return {"x": 2 * x}

    @register()
    def show(self, x: torch.Tensor) -> dict[str, Any]:
        return {"rows": x.tolist()}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, x: torch.Tensor | None = None) -> None:
        self.scale *= 10

    @register()
    def touch(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    COUNTS.clear()


def _runs(*faults: Fault) -> RunBuilder:
    return (
        a_run()
        .role("maker", Maker)
        .role("middle", Maker)
        .role("user", Maker)
        .role("other", Maker)
        .hit_by(*faults)
        .losing_buffers()
    )


def _lose(role: str, run: Run) -> None:
    """Lose the role's node between two steps: it is noticed by the touch after it."""
    run.step(role, "touch").wait()


LOSES = Fault(role="maker", method="touch", at="answered", kind="lose")


def test_a_lost_input_is_made_again_and_nobody_else_is_restarted() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    _lose("maker", run)
    assert run.step("user", "show", ["rows"], x=made["x"])["rows"].get() == [0.0, 1.0, 2.0, 3.0]
    assert COUNTS["maker"] == 2
    assert run.restarts == {"maker": 1}


def test_what_the_controller_reads_is_made_again() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    _lose("maker", run)
    assert made["x"].get().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_chain_of_lost_inputs_is_made_again_from_its_beginning() -> None:
    faults = [LOSES, Fault(role="middle", method="touch", at="answered", kind="lose")]
    run = _runs(*faults).start()
    made = run.step("maker", "make", ["x"])
    doubled = run.step("middle", "twice", ["x"], x=made["x"])
    doubled.wait()
    _lose("maker", run)
    _lose("middle", run)
    assert run.step("user", "show", ["rows"], x=doubled["x"])["rows"].get() == [0.0, 2.0, 4.0, 6.0]
    assert COUNTS == {"maker": 2, "twice": 2}
    assert run.restarts == {"maker": 1, "middle": 1}


def test_two_readers_of_one_lost_input_have_it_made_again_once() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    _lose("maker", run)
    first = run.step("user", "show", ["rows"], x=made["x"])
    second = run.step("other", "show", ["rows"], x=made["x"])
    assert first["rows"].get() == second["rows"].get() == [0.0, 1.0, 2.0, 3.0]
    assert COUNTS["maker"] == 2


def test_only_the_lost_one_of_several_inputs_is_made_again() -> None:
    class Adder(Maker):
        @register()
        def add(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
            return {"rows": (a + b).tolist()}

    run = _runs(LOSES).role("adder", Adder).role("second", Maker, init_kwargs={"name": "second"}).start()
    a = run.step("maker", "make", ["x"])
    b = run.step("second", "make", ["x"])
    a.wait(), b.wait()
    _lose("maker", run)
    assert run.step("adder", "add", ["rows"], a=a["x"], b=b["x"])["rows"].get() == [0.0, 2.0, 4.0, 6.0]
    assert COUNTS == {"maker": 2, "second": 1}


def test_one_lost_shard_is_made_again_alone() -> None:
    run = a_run().role("maker", Maker, replicas=3).role("user", Maker).losing_buffers().start()
    source = run.step("user", "make", ["x"], rows=6)
    made = run.step("maker", "twice", ["x"], x=source["x"])
    made.wait()
    process = run.controller.engine.groups["maker"].seats[1].process
    process.host.buffers_lost = True  # type: ignore[union-attr]
    run.simulated.kill(process.host)  # type: ignore[arg-type]
    assert run.step("user", "show", ["rows"], x=made["x"])["rows"].get() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert COUNTS["twice"] == 4
    assert [seat.attempt for seat in run.controller.engine.groups["maker"].seats] == [0, 1, 0]


def test_a_write_that_has_not_begun_waits_until_its_role_has_computed_again() -> None:
    """The reader finds its input lost while the role's next write still waits for another input."""
    run = _runs(LOSES).lasting("other.make", 50.0).lasting("middle.make", 10.0).lasting("maker.make", 60.0).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    _lose("maker", run)
    slow = run.step("other", "make", ["x"])
    run.step("maker", "update", [], x=slow["x"])  # could begin at 110 s
    middle = run.step("middle", "make", ["x"])
    shown = run.step("user", "show", ["rows"], x=made["x"])  # finds its input lost at once
    assert shown["rows"].get() == [0.0, 1.0, 2.0, 3.0]
    middle.wait()
    run.controller.finish()
    assert run.controller.engine.groups["maker"].version == 1


def test_an_output_of_a_version_that_is_gone_ends_its_readers_with_advice() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make", ["x"])
    run.step("maker", "update", []).wait()
    _lose("maker", run)
    shown = run.step("user", "show", ["rows"], x=made["x"])
    after = run.step("user", "show", ["rows"], x=shown["rows"])
    with pytest.raises(StepError, match=r"the outputs of step 0\.0 maker\.make are lost, .*: declare it `durable`"):
        shown.wait()
    with pytest.raises(SkippedStepError):
        after.wait()
    with pytest.raises(StepError, match="declare it `durable`"):
        made["x"].get()
    assert sum(run.restarts.values()) == 0 or run.restarts == {"maker": 1}


def test_a_write_in_flight_moves_the_version_under_a_lost_output_and_no_healthy_role_is_restarted() -> None:
    run = _runs().lasting("maker.update", 10.0).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    run.step("maker", "update", [])  # runs now; only its shared memory is lost
    made.node.results["x"].pieces[0].buffer.host.buffers_lost = True
    with pytest.raises(StepError, match="declare it `durable`"):
        run.step("user", "show", ["rows"], x=made["x"]).wait()
    assert run.restarts == {}


def test_an_output_that_must_not_be_computed_twice_ends_its_readers() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make_once", ["x"])
    made.wait()
    _lose("maker", run)
    with pytest.raises(StepError, match="declare it `durable`"):
        run.step("user", "show", ["rows"], x=made["x"]).wait()
    assert COUNTS["maker"] == 1


def test_a_durable_output_is_read_from_its_second_copy() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make_durable", ["x"])
    run.step("maker", "update", []).wait()  # it could not be computed again
    _lose("maker", run)
    assert run.step("user", "show", ["rows"], x=made["x"])["rows"].get() == [0.0, 1.0, 2.0, 3.0]
    assert made["x"].get().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert COUNTS["maker"] == 1


def test_no_second_copy_is_written_where_buffers_outlive_their_process() -> None:
    run = a_run().role("maker", Maker).start()
    run.step("maker", "make_durable", ["x"]).wait()
    assert run.backend.open_store(STATE).list("outputs/") == []


def test_what_nobody_can_make_again_is_an_error_and_not_a_loop() -> None:
    run = _runs(LOSES).start()
    made = run.step("maker", "make", ["x"])
    made.wait()
    run.controller.engine.retire(0)  # committed: it let go of its inputs
    _lose("maker", run)
    with pytest.raises(StepError, match="cannot be run again"):
        made["x"].get()
    with pytest.raises(StepError, match="cannot be run again"):
        run.step("user", "show", ["rows"], x=made["x"]).wait()


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return outcome(a_ppo(), steps=4)


@pytest.mark.parametrize("call", [1, 3, 4])
@pytest.mark.parametrize(
    ("role", "method", "at"),
    [
        ("actor", "generate", "received"),
        ("actor", "update", "received"),
        ("actor", "update", "logged"),
        ("critic", "values", "received"),
        ("critic", "update", "received"),
        ("reward", "score", "received"),
        ("reference", "log_probs", "received"),
        ("reference", "update", "received"),
        ("reference", "update", "applied"),
    ],
)
def test_without_second_copies_what_is_lost_before_its_role_moves_on_is_computed_again(
    undisturbed: Outcome, role: str, method: str, at: str, call: int
) -> None:
    fault = Fault(role=role, method=method, at=at, call=call, kind="lose")
    found = outcome(a_ppo().hit_by(fault).losing_buffers(), steps=4)
    assert found.weights == undisturbed.weights
    assert found.metrics == undisturbed.metrics
    assert found.applied == undisturbed.applied
    assert found.run.restarts == {role: 1}
    assert set(found.run.restarts) <= set(ROLES)


class Publisher(Counter):
    """Publishes the place of its weights."""

    @register(dispatch=Dispatch.RANK_ZERO)
    def publish(self) -> dict[str, Any]:
        self.published = getattr(self, "published", 0) + 1
        return {"weights": {"try": self.published}}


class Reader(Counter):
    """Finds the weights at the `wanted`-th place that it is told of."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted = wanted

    @register(parts_per_worker=2)
    def read(self, x: torch.Tensor, weights: dict[str, int]) -> dict[str, Any]:
        if weights["try"] < self.wanted:
            raise WeightsLostError(f"nothing at place {weights['try']}")
        return {"x": x, "found": torch.full((len(x),), weights["try"])}


def _read(wanted: int) -> list[int]:
    run = a_run().role("actor", Publisher).role("reader", Reader, replicas=2, init_kwargs={"wanted": wanted}).start()
    told = run.step("actor", "publish", ["weights"])
    found = run.step("reader", "read", ["found"], x=torch.arange(8.0), weights=told["weights"])
    run.step("actor", "update", [], amount=1.0, seen=found["found"])
    return found["found"].get().tolist()


def test_weights_that_are_not_where_they_should_be_are_published_again() -> None:
    assert min(_read(wanted=2)) == 2


def test_weights_that_are_never_there_fail_the_step_and_do_not_go_round_for_ever() -> None:
    with pytest.raises(StepError, match="nothing at place"):
        _read(wanted=10_000)
