"""A run that is asked to stop finishes its step, saves itself, and goes on later with the same numbers."""

from __future__ import annotations

import pytest
from builders import STATE
from toy_ppo import a_ppo, outcome

from rlhf_runtime.control.loop import LoopSettings, StepRecord, TrainingLoop
from rlhf_runtime.resilience.checkpoint import CommitLog, SnapshotStore
from rlhf_runtime.resilience.state_store import MemoryStateStore

STEPS = 6


def stopped(stores: dict[str, MemoryStateStore], *, after: int) -> tuple[bool, list[int], list[int]]:
    """Train, and ask to stop from within step `after`; gives whether it came to the end, its steps and snapshots."""
    steps: list[int] = []
    snapshots: list[int] = []
    with a_ppo().keeping_state_in(stores).start() as run:
        engine = run.controller.engine
        engine.wait_ready()
        loop = TrainingLoop(
            run.controller,
            run.simulated.open_store(STATE),
            LoopSettings(total_steps=STEPS, snapshot_every=100),
            on_step=lambda record: told(record),
            on_snapshot=snapshots.append,
        )

        def told(record: StepRecord) -> None:
            if not record.evaluation:
                steps.append(record.step)
                if record.step == after:
                    loop.stop()

        if after == 0:
            loop.stop()
        return loop.run(), steps, snapshots


@pytest.mark.parametrize("after", [1, 2, 4])
def test_it_finishes_what_is_declared_saves_it_and_goes_on_with_the_same_numbers(after: int) -> None:
    undisturbed = outcome(a_ppo(), steps=STEPS)
    stores: dict[str, MemoryStateStore] = {}
    came_to_the_end, steps, snapshots = stopped(stores, after=after)
    done = len(steps)
    assert (came_to_the_end, snapshots) == (False, [done])
    assert steps == list(range(1, done + 1)) and after <= done <= after + 1
    assert SnapshotStore(stores[STATE], role="actor", rank=0).versions() == [done]

    epoch, commit = CommitLog(stores[STATE]).take_over()
    assert commit is not None and commit.iteration == done - 1
    resumed = outcome(a_ppo().keeping_state_in(stores), steps=STEPS, start=commit, epoch=epoch)
    assert resumed.metrics == undisturbed.metrics[done:]
    assert (resumed.weights, resumed.applied) == (undisturbed.weights, undisturbed.applied)


def test_asked_before_the_first_step_it_makes_none() -> None:
    assert stopped({}, after=0)[:2] == (False, [])


def test_asked_in_the_last_step_it_comes_to_the_end() -> None:
    assert stopped({}, after=STEPS)[0]
