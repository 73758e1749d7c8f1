"""A step that fails for good: what it says, what it takes along, and what goes on."""

from __future__ import annotations

import pytest
from builders import RunBuilder, a_run
from toy_workers import BadConstructor, Counter, Echo, FailsBelow

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.control.graph import NodeState
from rlhf_runtime.errors import RemoteError, RoleExhaustedError, SkippedStepError, StepError, WorkerClassError
from rlhf_runtime.resilience.incidents import signature


@pytest.fixture(params=["simulated", "in-process"])
def runs(request: pytest.FixtureRequest) -> RunBuilder:
    return a_run() if request.param == "simulated" else a_run().in_process()


def test_out_of_memory_twice_names_step_role_worker_and_cause(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).role("critic", Echo, replicas=4).start()
    samples = run.step("actor", "same", ["x"], x=[1, 2, 3, 4])
    bad = run.step("critic", "out_of_memory", ["y"], x=samples["x"])
    with pytest.raises(StepError) as caught:
        bad["y"].get()
    message = str(caught.value)
    assert message.startswith("step 0.1 critic.out_of_memory failed on critic-worker-00")
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" in message
    assert 'raise torch.OutOfMemoryError("CUDA out of memory.' in message  # the worker's own traceback
    assert bad.node.state is NodeState.FAILED
    assert {i.reason for i in run.seen.incidents} == {"CUDAOutOfMemory"}
    assert {i.role for i in run.seen.incidents} == {"critic"}


def test_the_worker_that_failed_is_named_by_its_rank(runs: RunBuilder) -> None:
    class PicksOnThree(Echo):
        def same(self, x: object) -> dict[str, object]:
            if self.context.rank == 3:
                raise ValueError("row is bad")
            return {"x": x}

    run = runs.role("critic", PicksOnThree, replicas=4).start()
    with pytest.raises(StepError, match=r"step 0\.0 critic\.same failed on critic-worker-003: ValueError: row is bad"):
        run.step("critic", "same", ["x"], x=[1, 2, 3, 4]).wait()


def test_what_needs_a_failed_step_is_skipped_with_the_root_cause_and_the_rest_runs(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).role("critic", Echo).role("reward", Echo).start()
    samples = run.step("actor", "same", ["x"], x=[1])
    values = run.step("critic", "fail", ["x"], x=samples["x"])
    advantages = run.step("actor", "same", ["x"], x=values["x"])
    update = run.step("actor", "update", [], x=advantages["x"])
    rewards = run.step("reward", "same", ["x"], x=samples["x"])
    assert rewards["x"].get() == [1]
    with pytest.raises(SkippedStepError) as caught:
        update.wait()
    assert "step 0.3 actor.update was not run: step 0.1 critic.fail failed on critic-worker-000" in str(caught.value)
    assert "ValueError: this is wrong" in str(caught.value)
    assert isinstance(caught.value.__cause__, StepError)
    kinds = {(e.role, e.method): e.kind for e in run.seen.events if e.kind in ("failed", "skipped")}
    assert kinds == {("critic", "fail"): "failed", ("actor", "same"): "skipped", ("actor", "update"): "skipped"}


def test_a_failed_read_does_not_stop_the_next_write_of_its_role(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).start()
    broken = run.step("actor", "fail", ["x"])
    update = run.step("actor", "update", [])
    assert update.wait().node.state is NodeState.DONE
    with pytest.raises(StepError):
        broken.wait()


def test_after_a_failed_write_nothing_sees_the_state_that_should_not_be(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).role("critic", Echo).start()
    run.step("actor", "bad_update", [])
    look = run.step("actor", "same", ["x"], x=1)
    aside = run.step("actor", "aside", ["done"])
    other = run.step("critic", "same", ["x"], x=1)
    assert other["x"].get() == 1
    assert aside["done"].get() is True
    with pytest.raises(SkippedStepError, match=r"was not run: step 0\.0 actor\.bad_update failed"):
        look.wait()
    late = run.step("actor", "same", ["x"], x=1)  # declared after the failure
    with pytest.raises(SkippedStepError, match=r"was not run: step 0\.0 actor\.bad_update failed"):
        late.wait()


def test_a_thousand_steps_in_a_row_are_skipped_without_a_deep_stack(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).start()
    last = run.step("actor", "fail", ["x"])
    for _ in range(1200):
        last = run.step("actor", "same", ["x"], x=last["x"])
    with pytest.raises(SkippedStepError, match=r"was not run: step 0\.0 actor\.fail failed"):
        last.wait()


def test_user_code_that_raises_in_a_read_is_not_restarted(runs: RunBuilder) -> None:
    run = runs.role("reward", Echo).start()
    with pytest.raises(StepError, match="ValueError: this is wrong"):
        run.step("reward", "fail", ["x"]).wait()
    assert run.restarts == {}
    assert run.seen.incidents == []
    assert run.step("reward", "same", ["x"], x=1)["x"].get() == 1


def test_the_same_exception_twice_in_a_write_fails_with_the_workers_traceback(runs: RunBuilder) -> None:
    run = runs.role("actor", Echo).start()
    with pytest.raises(StepError) as caught:
        run.step("actor", "bad_update", []).wait()
    assert 'raise RuntimeError("half of the weights are new")' in str(caught.value)
    assert "toy_workers.py" in str(caught.value)
    assert [i.reason for i in run.seen.incidents] == ["Exception", "Exception"]  # both states were discarded


def test_an_exception_that_passes_is_survived_by_a_write(runs: RunBuilder) -> None:
    run = runs.role("actor", FailsBelow, init_kwargs={"attempts": 1}).start()
    assert run.step("actor", "update", ["total"])["total"].get() == 1
    assert run.restarts == {"actor": 1}


def test_running_out_of_memory_is_tried_once_more_whatever_numbers_it_tells(runs: RunBuilder) -> None:
    run = runs.role("critic", FailsBelow, init_kwargs={"attempts": 1}).start()
    assert run.step("critic", "score", ["done"])["done"].get() is True
    run = runs.role("critic", FailsBelow, init_kwargs={"attempts": 99}).start()
    with pytest.raises(StepError, match="CUDA out of memory"):
        run.step("critic", "score", ["done"]).wait()
    assert run.restarts == {"critic": 1}


@pytest.mark.parametrize(
    ("text", "other", "want_same"),
    [
        ("at 0x7f11aa", "at 0x7f22bb", True),
        ("1.5 GiB free of 24 GiB", "1.25 GiB free of 24 GiB", True),
        ("index out of range", "division by zero", False),
    ],
)
def test_numbers_do_not_make_another_error(text: str, other: str, want_same: bool) -> None:
    first, second = (signature(RemoteError(kind="E", text=t, traceback="", poisoned=True)) for t in (text, other))
    assert (first == second) is want_same


def test_a_budget_that_is_used_up_fails_the_role_by_name() -> None:
    faults = [Fault(role="critic", method="same", call=call) for call in (1, 2, 3)]
    run = a_run().role("critic", Echo, max_restarts=2).role("actor", Echo).hit_by(*faults).start()
    bad = run.step("critic", "same", ["x"], x=1)
    good = run.step("actor", "same", ["x"], x=1)
    with pytest.raises(StepError, match=r'role "critic" has used up its `maxRestarts` \(2\); the last') as caught:
        bad.wait()
    assert isinstance(caught.value.__cause__, RoleExhaustedError)
    assert good["x"].get() == 1
    with pytest.raises(StepError, match="used up"):
        run.step("critic", "same", ["x"], x=1).wait()


def test_colocated_roles_share_their_fate_and_say_so() -> None:
    faults = [Fault(role="critic", method="same", call=call) for call in (1, 2)]
    run = (
        a_run()
        .role("critic", Echo, max_restarts=1)
        .role("reward", Echo, colocate_with="critic")
        .hit_by(*faults)
        .lasting("critic.same", 1.0)
        .start()
    )
    bad = run.step("critic", "same", ["x"], x=1)
    beside = run.step("reward", "same", ["x"], x=1)
    with pytest.raises(StepError, match='role "critic" has used up'):
        bad.wait()
    with pytest.raises(StepError, match='role "reward" shares its processes: role "critic" has used up'):
        beside.wait()


def test_a_death_of_colocated_roles_brings_both_back() -> None:
    run = (
        a_run()
        .role("critic", Counter)
        .role("reward", Counter, colocate_with="critic")
        .hit_by(Fault(role="critic", method="update", at="applied", call=2))
        .start()
    )
    for _ in range(3):
        run.step("critic", "update", [], amount=1.0)
        run.step("reward", "update", [], amount=2.0)
    assert run.step("critic", "look", ["total"])["total"].get() == 7.0
    assert run.step("reward", "look", ["total"])["total"].get() == 14.0
    assert run.restarts == {"critic": 1, "reward": 1}


def test_what_must_not_be_repeated_fails_and_its_process_is_replaced() -> None:
    run = a_run().role("payer", Echo).hit_by(Fault(role="payer", method="once")).start()
    with pytest.raises(StepError, match=r"step 0\.0 payer\.once failed on payer-worker-000: .* was killed"):
        run.step("payer", "once", ["done"]).wait()
    assert run.step("payer", "once", ["done"])["done"].get() is True
    assert run.restarts == {"payer": 1}


def test_a_constructor_that_raises_is_told_with_the_role(runs: RunBuilder) -> None:
    run = runs.role("critic", BadConstructor).start()
    with pytest.raises(StepError, match=r'role "critic" could not be started: .*FileNotFoundError: no such model'):
        run.controller.engine.wait_ready()
    assert run.restarts == {}


def test_a_class_that_cannot_be_imported_is_told_at_once(runs: RunBuilder) -> None:
    with pytest.raises(WorkerClassError, match='worker class of role "critic" "nowhere:Critic" cannot be imported'):
        runs.role("critic", "nowhere:Critic").start()
