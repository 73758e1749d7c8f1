"""Runs an algorithm's iterations, one commit after another.

    declare iteration i ─► (lag L) wait for iteration i - L ─► commit it ─► snapshot when due ─► ...

A commit says which version of each role's state belongs to which finished iteration. Whatever happens afterwards, a
run resumes there: roles restore that version from their newest snapshot and the updates logged since, and since all
random numbers are counted, not drawn, the iterations that follow give the numbers of an uninterrupted run.

A loop that is asked to stop does so at a boundary: what is declared is finished and committed, a snapshot is taken.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlhf_runtime.control.channels import DataChannel
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.errors import StepError
from rlhf_runtime.resilience.checkpoint import Commit, CommitLog
from rlhf_runtime.resilience.state_store import StateStore

COMMITS_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One finished iteration, or an evaluation.

    Attributes:
        step: Counts from 1; an evaluation before the first step has step 0.
        ended: When its last step was done, by the backend's clock.
        seconds: From its declaration to then.
        metrics: What `_build_dag` gave.
        evaluation: What `_build_evaluation` gave.
    """

    step: int
    ended: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluation: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How far and how often.

    Attributes:
        total_steps: Iterations of the whole run.
        epoch: Of this controller.
        snapshot_every: Iterations between snapshots.
        keep: Snapshots kept.
        evaluate_every: Iterations between evaluations; 0: only before the first step and after the last.
        lag: How many iterations may be unfinished when the next is declared.
    """

    total_steps: int
    epoch: int = 1
    snapshot_every: int = 10
    keep: int = 3
    evaluate_every: int = 0
    lag: int = 0


@dataclass(slots=True, kw_only=True)
class _Declared:
    iteration: int
    began: float
    metrics: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    snapshot: bool


class TrainingLoop:
    """Drives a controller from its last commit to the end.

    Args:
        controller: Its `_build_dag` declares an iteration; its roles are registered.
        store: Where commits are kept.
        settings: How far and how often.
        start: The commit to go on from; None: the beginning.
        on_step: Called with each finished iteration, after its commit.
        on_snapshot: Called with the number of steps that a snapshot holds, once it is whole.
    """

    def __init__(
        self,
        controller: Controller,
        store: StateStore,
        settings: LoopSettings,
        *,
        start: Commit | None = None,
        on_step: Callable[[StepRecord], None] = lambda record: None,
        on_snapshot: Callable[[int], None] = lambda step: None,
    ) -> None:
        self._controller = controller
        self._store = store
        self._commits = CommitLog(store)
        self._settings = settings
        self._on_step = on_step
        self._on_snapshot = on_snapshot
        self._stopping = threading.Event()
        self._next = start.iteration + 1 if start is not None else 0
        self._committed = dict(start.versions) if start is not None else {}
        self._finished: StepRecord | None = None

    def stop(self) -> None:
        """Ask `run` to return at the next boundary; may be called from any thread."""
        self._stopping.set()

    def run(self) -> bool:
        """Run to the end, or until `stop`.

        Returns:
            Whether it came to the end.

        Raises:
            StepError: A step failed for good; everything before its iteration is committed.
            EpochFencedError: A newer controller has taken over the run.
        """
        declared: deque[_Declared] = deque()
        following = self._next
        for iteration in range(self._next, self._settings.total_steps):
            if self._stopping.is_set():
                break
            following = iteration + 1
            try:
                declared.append(self._declare(iteration))
            finally:
                self._commit_finished()
            if len(declared) > self._settings.lag:
                self._finish(declared.popleft())
        while declared:
            self._commit_finished()
            self._finish(declared.popleft())
        self._commit_finished()
        if following < self._settings.total_steps:
            self._save_and_leave(following)
            return False
        self._evaluate_at_end()
        return True

    def _declare(self, iteration: int) -> _Declared:
        controller, settings = self._controller, self._settings
        began = controller.engine.backend.now()
        controller.begin_iteration(iteration)
        snapshot = iteration > 0 and iteration % settings.snapshot_every == 0
        if snapshot:
            controller.snapshot(keep=settings.keep, committed=self._committed)
        due = iteration == 0 or (settings.evaluate_every and iteration % settings.evaluate_every == 0)
        evaluation = controller.build_evaluation() if due else {}
        metrics = controller.build_dag()
        return _Declared(iteration=iteration, began=began, metrics=metrics, evaluation=evaluation, snapshot=snapshot)

    def _finish(self, declared: _Declared) -> None:
        """Wait for an iteration; it is committed while the next one already runs."""
        controller = self._controller
        controller.finish(declared.iteration)
        if declared.snapshot:
            self._on_snapshot(declared.iteration)
        ended = controller.engine.backend.now()
        metrics = _numbers(declared.metrics)
        if bad := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise StepError(
                f'step {declared.iteration}: the metric "{bad[0]}" is {metrics[bad[0]]}; '
                "the steps before it are committed"
            )
        self._finished = StepRecord(
            step=declared.iteration + 1,
            ended=ended,
            seconds=ended - declared.began,
            metrics=metrics,
            evaluation=_numbers(declared.evaluation),
        )

    def _commit_finished(self) -> None:
        """Commit the iteration that was finished last, and tell of it."""
        record, self._finished = self._finished, None
        if record is None:
            return
        engine, iteration = self._controller.engine, record.step - 1
        if record.evaluation:  # before the commit: a run that ends between the two evaluates again, and gets the same
            self._on_step(StepRecord(step=iteration, ended=record.ended, evaluation=record.evaluation))
        versions = {name: group.version_after(iteration) for name, group in engine.groups.items()}
        epoch = self._settings.epoch
        self._commits.commit(Commit(iteration=iteration, epoch=epoch, versions=versions, metrics=dict(record.metrics)))
        self._committed = versions
        self._commits.prune(COMMITS_KEPT)
        engine.retire(iteration)
        self._on_step(replace(record, evaluation={}))

    def _save_and_leave(self, iteration: int) -> None:
        """Everything before `iteration` is committed: save it, so that whoever goes on has no updates to replay."""
        self._controller.begin_iteration(iteration)
        self._controller.snapshot(keep=self._settings.keep, committed=self._committed)
        self._controller.finish(iteration)
        self._on_snapshot(iteration)

    def _evaluate_at_end(self) -> None:
        total = self._settings.total_steps
        self._controller.begin_iteration(total)
        self._controller.snapshot(keep=self._settings.keep, committed=self._committed)
        evaluation = self._controller.build_evaluation()
        self._controller.finish(total)
        self._on_snapshot(total)
        if evaluation:
            ended = self._controller.engine.backend.now()
            self._on_step(StepRecord(step=total, ended=ended, evaluation=_numbers(evaluation)))


def _numbers(channels: Mapping[str, Any]) -> dict[str, float]:
    """Read metrics: a number, the mean of several ranks' numbers, or a mapping of such."""
    flat: dict[str, float] = {}
    for name, channel in channels.items():
        value = channel.get() if isinstance(channel, DataChannel) else channel
        if isinstance(value, Mapping):
            flat |= {_joined(name, key): float(item) for key, item in value.items()}
        elif isinstance(value, list):
            flat |= _mean_of(name, value)
        else:
            flat[name] = float(value)
    return flat


def _mean_of(name: str, values: list[Any]) -> dict[str, float]:
    if values and isinstance(values[0], Mapping):
        return {_joined(name, key): sum(float(v[key]) for v in values) / len(values) for key in values[0]}
    return {name: sum(map(float, values)) / max(1, len(values))}


def _joined(name: str, key: str) -> str:
    return f"{name}/{key}" if name else key
