"""Commits, resume, epochs."""

from __future__ import annotations

import pytest
from builders import STATE, RunBuilder, a_run
from toy_ppo import ROLES, Outcome, a_ppo, outcome, train
from toy_workers import Counter

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.control.loop import LoopSettings, TrainingLoop
from rlhf_runtime.errors import EpochFencedError, FencedError, StepError
from rlhf_runtime.executor import RoleExecutor
from rlhf_runtime.messages import Assignment, CallRequest, WorkerClass
from rlhf_runtime.resilience.checkpoint import CommitLog, claim_epoch
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.resilience.update_log import UpdateLog
from rlhf_runtime.worker import CallInfo, Effect

STEPS = 7


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return outcome(a_ppo(), steps=STEPS)


def test_every_iteration_is_committed_with_its_versions(undisturbed: Outcome) -> None:
    assert [(i, versions) for i, versions, _ in undisturbed.committed] == [
        (i, dict.fromkeys(ROLES, i + 1)) for i in range(STEPS - 5, STEPS)
    ]
    assert [step for step, _ in undisturbed.metrics] == list(range(1, STEPS + 1))
    assert all(len(set(ids)) == len(ids) == STEPS for ids in undisturbed.applied.values())


def _interrupted(stores: dict[str, MemoryStateStore], *, after: int, **options: object) -> RunBuilder:
    """Train until the controller dies in the middle of an iteration: some roles have written already, some not."""
    builder = a_ppo(max_restarts=0).keeping_state_in(stores)
    death = Fault(role="critic", method="update", call=after + 1)
    with pytest.raises(StepError, match="used up"):
        train(builder.hit_by(death), steps=STEPS, **options)
    return a_ppo().keeping_state_in(stores)


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_resumed_run_gives_the_numbers_of_an_uninterrupted_one(undisturbed: Outcome, after: int) -> None:
    stores: dict[str, MemoryStateStore] = {}
    builder = _interrupted(stores, after=after)
    epoch, commit = CommitLog(stores[STATE]).take_over()
    assert commit is not None
    assert (commit.iteration, commit.versions["actor"]) == (after - 1, after)
    resumed = outcome(builder, steps=STEPS, start=commit, epoch=epoch)
    assert resumed.weights == undisturbed.weights
    assert resumed.applied == undisturbed.applied
    assert resumed.metrics == undisturbed.metrics[after:]
    assert resumed.committed[-1] == undisturbed.committed[-1]


def test_a_resumed_run_drops_the_log_beyond_the_commit() -> None:
    stores: dict[str, MemoryStateStore] = {}
    builder = _interrupted(stores, after=3)
    log = UpdateLog(stores[STATE], role="actor", rank=0)
    assert log.versions()[-1] == 4  # made, not committed
    epoch, commit = CommitLog(stores[STATE]).take_over()
    run = builder.settings(epoch=epoch, restore_versions=commit.versions if commit else {}).start()
    run.controller.engine.wait_ready()
    assert log.versions()[-1] == 3
    assert run.step("actor", "show", ["applied"])["applied"].get() == ["0.4", "1.4", "2.4"]


def test_a_finished_run_that_is_resumed_trains_nothing(undisturbed: Outcome) -> None:
    stores: dict[str, MemoryStateStore] = {}
    outcome(a_ppo().keeping_state_in(stores), steps=STEPS)
    epoch, commit = CommitLog(stores[STATE]).take_over()
    again = outcome(a_ppo().keeping_state_in(stores), steps=STEPS, start=commit, epoch=epoch)
    assert again.metrics == []
    assert again.weights == undisturbed.weights


@pytest.mark.parametrize(("every", "keep"), [(1, 1), (3, 1), (100, 1), (2, 5)])
def test_how_often_a_run_is_saved_does_not_change_its_numbers(undisturbed: Outcome, every: int, keep: int) -> None:
    other = outcome(a_ppo(), steps=STEPS, snapshot_every=every, keep=keep)
    assert other.weights == undisturbed.weights
    assert other.applied == undisturbed.applied
    assert other.metrics == undisturbed.metrics


def test_old_snapshots_and_the_log_before_them_go() -> None:
    stores: dict[str, MemoryStateStore] = {}
    outcome(a_ppo().keeping_state_in(stores), steps=STEPS, snapshot_every=2, keep=2)
    snapshots = stores[STATE].list("roles/actor/0/snapshots/")
    assert len(snapshots) == 2
    assert UpdateLog(stores[STATE], role="actor", rank=0).versions() == [7]  # snapshots of 6 and 7


def test_a_finished_iteration_lets_go_of_its_batches() -> None:
    run, _ = train(a_ppo(), steps=STEPS)
    engine = run.controller.engine
    assert len(engine._done) <= 2 * len(ROLES)  # the last iteration's snapshots
    assert not engine.active


# ---- one step off


def _lagged(lag: int, **kwargs: object) -> RunBuilder:
    return a_ppo(**kwargs).lasting("actor.generate", 4.0).lasting("critic.update", 4.0).lasting("critic.values", 1.0)


def test_one_step_off_generates_while_others_learn_and_is_faster() -> None:
    synchronous, _ = train(_lagged(0), steps=STEPS, lag=0)
    ahead, _ = train(_lagged(1), steps=STEPS, lag=1)
    assert ahead.backend.now() * 1.3 <= synchronous.backend.now()
    updates = ahead.timeline["critic.update"]
    assert any(g[0] < u[1] and u[0] < g[1] for g in ahead.timeline["actor.generate"] for u in updates)
    pairs = zip(synchronous.timeline["actor.generate"][1:], synchronous.timeline["critic.update"], strict=False)
    assert all(generated[0] >= learned[1] for generated, learned in pairs)


@pytest.mark.parametrize("lag", [1, 2])
def test_commits_keep_their_order_and_tell_the_version_of_their_iteration(lag: int) -> None:
    ahead = outcome(_lagged(lag), steps=STEPS, lag=lag)
    assert [step for step, _ in ahead.metrics] == list(range(1, STEPS + 1))
    for iteration, versions, _ in ahead.committed:
        assert versions == dict.fromkeys(ROLES, iteration + 1)
    assert all(len(set(ids)) == len(ids) == STEPS for ids in ahead.applied.values())


@pytest.mark.parametrize("after", [2, 3, 4, 5])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_ahead_of_its_commits_resumes_without_an_update_made_twice(after: int, keep: int) -> None:
    stores: dict[str, MemoryStateStore] = {}
    builder = _lagged(1, max_restarts=0).keeping_state_in(stores)
    death = Fault(role="critic", method="values", call=after + 1)
    with pytest.raises(StepError, match="used up"):
        train(builder.hit_by(death), steps=STEPS, lag=1, keep=keep, snapshot_every=1)
    epoch, commit = CommitLog(stores[STATE]).take_over()
    assert commit is not None
    resumed = outcome(
        _lagged(1).keeping_state_in(stores), steps=STEPS, lag=1, start=commit, epoch=epoch, keep=keep, snapshot_every=1
    )
    for ids in resumed.applied.values():
        assert [i.partition(".")[0] for i in ids] == [str(i) for i in range(STEPS)]


def test_a_failure_of_a_later_iteration_does_not_spoil_an_earlier_commit() -> None:
    stores: dict[str, MemoryStateStore] = {}
    builder = _lagged(1, max_restarts=0).lasting("critic.update", 50.0).keeping_state_in(stores)
    death = Fault(role="reward", method="score", call=2)
    with pytest.raises(StepError, match="used up"):
        train(builder.hit_by(death), steps=STEPS, lag=1)
    latest = CommitLog(stores[STATE]).latest()
    assert latest is not None
    assert latest.iteration == 0


# ---- epochs


def _executor(store: MemoryStateStore, *, epoch: int, version: int = 0) -> RoleExecutor:
    executor = RoleExecutor(
        Assignment(
            role="actor",
            rank=0,
            world_size=1,
            attempt=0,
            epoch=epoch,
            job="job",
            seed=0,
            threads=1,
            worker=WorkerClass(cls=Counter),
            state_location=STATE,
            restore_version=version,
        ),
        store=store,
    )
    executor.restore(version)
    return executor


def _update(*, epoch: int, version: int, iteration: int) -> CallRequest:
    return CallRequest(
        role="actor",
        method="update",
        call=CallInfo(iteration=iteration),
        epoch=epoch,
        effect=Effect.WRITE,
        arguments={},
        expected_version=version,
        update_id=f"actor/{iteration}.0",
    )


def test_a_worker_refuses_the_calls_of_a_controller_that_was_replaced() -> None:
    executor = _executor(MemoryStateStore(), epoch=2)
    with pytest.raises(FencedError, match="actor-worker-000 belongs to epoch 2; epoch 1 is that of a controller"):
        executor.call(_update(epoch=1, version=0, iteration=0), [])
    assert executor.version == 0


def test_a_worker_that_has_seen_a_newer_controller_refuses_the_one_that_made_it() -> None:
    executor = _executor(MemoryStateStore(), epoch=1)
    executor.call(_update(epoch=1, version=0, iteration=0), [])
    executor.call(_update(epoch=2, version=1, iteration=1), [])
    for iteration in (0, 1, 2):  # also what it would have answered from memory
        with pytest.raises(FencedError):
            executor.call(_update(epoch=1, version=2, iteration=iteration), [])


def test_the_same_update_twice_is_applied_once_and_answered_twice() -> None:
    executor = _executor(MemoryStateStore(), epoch=1)
    first = executor.call(_update(epoch=1, version=0, iteration=0), [])
    assert executor.call(_update(epoch=1, version=0, iteration=0), []) is first
    assert executor.version == 1
    assert executor.worker.applied == ["0.0"]


def test_a_commit_of_an_older_controller_is_refused() -> None:
    store = MemoryStateStore()
    run = a_ppo().keeping_state_in({STATE: store}).start()
    run.controller.engine.wait_ready()
    assert [claim_epoch(store), claim_epoch(store)] == [1, 2]  # its own, and that of a newer one
    loop = TrainingLoop(run.controller, store, LoopSettings(total_steps=3, epoch=1))
    with pytest.raises(EpochFencedError, match="a controller of epoch 2 has taken over"):
        loop.run()
    assert CommitLog(store).latest() is None


def test_an_older_controller_that_restarts_a_role_leaves_the_newer_ones_log_alone() -> None:
    store = MemoryStateStore()
    assert claim_epoch(store) == 1
    _executor(store, epoch=1).call(_update(epoch=1, version=0, iteration=0), [])
    assert claim_epoch(store) == 2
    newer = _executor(store, epoch=2, version=1)
    newer.call(_update(epoch=2, version=1, iteration=1), [])
    with pytest.raises(FencedError, match="a controller of epoch 2 has taken over the run"):
        _executor(store, epoch=1, version=0)
    assert UpdateLog(store, role="actor", rank=0).versions() == [1, 2]


def test_two_runs_that_follow_each_other_claim_epochs_of_their_own() -> None:
    stores: dict[str, MemoryStateStore] = {STATE: MemoryStateStore()}
    assert [CommitLog(stores[STATE]).take_over()[0] for _ in range(3)] == [1, 2, 3]
    assert a_run().engine.epoch == 1
