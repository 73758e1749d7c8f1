"""What the operator is told of a run, also of the sessions before this one."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_api.ending import EndingOutcome
from rlhf_api.formats import decimal
from rlhf_api.job_control import messages
from rlhf_api.reasons import ConditionReason
from rlhf_runtime.service.board import INCIDENTS_KEPT, Board, RoleState

START = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(clock)


def line(step: int, *, ended: float, seconds: float | None, **metrics: float) -> dict[str, Any]:
    return {"step": step, "time": START + ended, "seconds": seconds, **metrics}


def death(worker: str = "critic-worker-000", *, attempt: int = 0, epoch: int = 1, **fields: Any) -> dict[str, Any]:
    role = worker.partition("-worker-")[0]
    return {
        "role": role,
        "worker": worker,
        "attempt": attempt,
        "epoch": epoch,
        "reason": "Killed",
        "message": "ended by a signal",
        "time": START,
        **fields,
    }


def step(board: Board, number: int, *, ended: float, seconds: float, **metrics: float) -> None:
    board.step(number, metrics=metrics, evaluation={}, ended=START + ended, seconds=seconds)


class TestProgress:
    def test_before_the_first_step_there_are_no_numbers(self, board: Board) -> None:
        progress = board.report().progress
        assert progress.step == 0
        absent = ("reward", "evaluation", "snapshot_step", "started", "effective_training_time_ratio")
        assert [name for name in absent if progress.HasField(name)] == []

    def test_it_goes_on_from_what_earlier_sessions_left(self, board: Board, clock: Clock) -> None:
        board.taken_over(3, [line(1, ended=10, seconds=10, reward=0.1), line(2, ended=20, seconds=10, reward=0.2)], [])
        clock.now = START + 40
        step(board, 3, ended=40, seconds=10, reward=0.5)
        board.step(3, metrics={}, evaluation={"heldout_accuracy": 0.75}, ended=START + 40, seconds=0.0)
        board.snapshot(3)
        report = board.report()
        assert (report.epoch, report.progress.step, report.progress.snapshot_step) == (3, 3, 3)
        assert (report.progress.reward, report.progress.evaluation) == (0.5, 0.75)
        assert report.progress.started == START

    def test_the_time_ratio_is_that_of_committed_steps(self, board: Board, clock: Clock) -> None:
        board.taken_over(2, [line(1, ended=10, seconds=10), line(2, ended=20, seconds=None)], [])
        clock.now = START + 40
        step(board, 3, ended=40, seconds=20)
        assert board.report().progress.effective_training_time_ratio == pytest.approx(30 / 40)


class TestDeaths:
    def test_each_counts_once_and_by_its_kind(self, board: Board) -> None:
        board.role(RoleState(name="critic", desired=1))
        board.taken_over(2, [], [death(attempt=0), death(attempt=1, counted=False)])
        board.incident(death(attempt=0, epoch=2, pod="tiny-critic-1", node="n1", exit_code=137))
        board.incident(death(attempt=0, epoch=2))
        report = board.report()
        assert [(role.restarts, role.uncounted_restarts) for role in report.roles] == [(2, 1)]
        assert [incident.id for incident in report.incidents] == [
            "critic-worker-000/0/1",
            "critic-worker-000/1/1",
            "critic-worker-000/0/2",
        ]
        last = report.incidents[-1]
        assert (last.pod, last.node, last.exit_code, last.counted) == ("tiny-critic-1", "n1", 137, True)
        assert not report.incidents[0].HasField("exit_code")

    def test_only_the_newest_are_told_but_all_are_counted(self, board: Board) -> None:
        board.role(RoleState(name="critic"))
        for attempt in range(INCIDENTS_KEPT + 5):
            board.incident(death(attempt=attempt))
        report = board.report()
        assert len(report.incidents) == INCIDENTS_KEPT
        assert report.incidents[0].id == "critic-worker-000/5/1"
        assert report.roles[0].restarts == INCIDENTS_KEPT + 5


class TestChanges:
    def test_what_is_told_again_is_no_change(self, board: Board) -> None:
        before = board.wait(-1, timeout=0)
        board.tell(messages.TRAINING, "")
        board.role(RoleState(name="actor", ready=1))
        after = board.wait(before, timeout=0)
        board.tell(messages.TRAINING, "")
        board.role(RoleState(name="actor", ready=1))
        assert after > before and board.wait(after, timeout=0) == after

    def test_a_run_that_stops_says_nothing_else_any_more(self, board: Board) -> None:
        board.tell(messages.STOPPING, "Suspend")
        board.tell(messages.TRAINING, "All roles are ready.")
        assert (board.report().phase, board.report().message) == (messages.STOPPING, "Suspend")


def test_an_ending_has_the_last_numbers(board: Board, clock: Clock) -> None:
    board.role(RoleState(name="critic"))
    board.incident(death())
    board.taken_over(4, [], [])
    step(board, 12, ended=10, seconds=10, reward=1 / 3)
    ending = board.ending(EndingOutcome.SUSPENDED, ConditionReason.SUSPENDED, "Stopped.")
    assert ending.epoch == 4
    assert [(role.name, role.restarts) for role in ending.roles] == [("critic", 1)]


@pytest.mark.parametrize(
    ("value", "want"),
    [(None, None), (1 / 3, "0.3333"), (-12.34567, "-12.346"), (123456.7, "123457"), (1e9, None), (float("nan"), None)],
)
def test_numbers_in_status(value: float | None, want: str | None) -> None:
    assert decimal(value) == want
