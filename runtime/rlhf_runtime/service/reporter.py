"""What the run tells, as lines of the log and on the board."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rlhf_api.job_control import messages
from rlhf_api.types import RLHFJob
from rlhf_runtime.job.reporter import TRAINING, Reporter
from rlhf_runtime.job.roles import rollout_engine_of
from rlhf_runtime.job.spread import spread_of
from rlhf_runtime.service.board import Board, RoleState
from rlhf_runtime.service.log import ControllerLog

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.control.loop import StepRecord
    from rlhf_runtime.control.processes import RoleGroup
    from rlhf_runtime.resilience.incidents import Incident

_TOLD_PARTS = 4  # of a long piece of work


class ServiceReporter(Reporter):
    """See the module.

    Attributes:
        engine: Of the run, once there is one.
    """

    def __init__(
        self, job: RLHFJob, *, board: Board, log: ControllerLog, on_step: Callable[[], None] = lambda: None
    ) -> None:
        self._job = job
        self._board = board
        self._log = log
        self._on_step = on_step
        self._told = ("", -1)
        self.engine: Engine | None = None

    def phase(self, text: str) -> None:
        """See `Reporter`."""
        self._log.line(text)
        if text == TRAINING:
            self._board.tell(messages.TRAINING, "All roles are ready.")
        elif self.engine is None:
            self._board.tell(messages.PREPARING, f"{text}.")
        elif self._board.phase == messages.TRAINING:
            self._board.tell(messages.TRAINING, f"{text}.")

    def taken_over(
        self, epoch: int, lines: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]
    ) -> None:
        """See `Reporter`."""
        self._log.line(f"epoch {epoch}")
        self._board.taken_over(epoch, lines, incidents)

    def engine_started(self, engine: Engine) -> None:
        """See `Reporter`."""
        self.engine = engine
        self._board.tell(messages.STARTING_ROLES, "The roles' processes are being started.")

    def progress(self, text: str, done: int, total: int) -> None:
        """See `Reporter`."""
        self._board.tell(messages.PREPARING, f"{text}: {done} of {total}.")
        part = (text, _TOLD_PARTS * done // max(total, 1))
        if part != self._told:
            self._told = part
            self._log.line(f"{text}: {done}/{total}")

    def role_ready(self, role: str, workers: int) -> None:
        """See `Reporter`."""
        self._log.line(f"{role} is ready" + (f" ({workers} workers)" if workers > 1 else ""))

    def resumed(self, step: int, total: int) -> None:
        """See `Reporter`."""
        self._log.line(f"going on after step {step} of {total}")

    def step(self, record: StepRecord, rates: dict[str, float]) -> None:
        """See `Reporter`."""
        self._board.step(
            record.step,
            metrics=record.metrics,
            evaluation=record.evaluation,
            ended=record.ended,
            seconds=record.seconds,
        )
        total = self._job.spec.algorithm.total_steps
        if record.evaluation:
            told = " ".join(f"{name} {value:.4g}" for name, value in record.evaluation.items())
            self._log.line(f"step {record.step}/{total} evaluation: {told}")
        else:
            self._log.line(f"step {record.step}/{total} {_numbers(record, rates)}{self._deaths()}")
        self._on_step()

    def snapshot(self, step: int) -> None:
        """See `Reporter`."""
        self._board.snapshot(step)
        self._log.line(f"snapshot after step {step}")

    def incident(self, incident: Incident) -> None:
        """See `Reporter`."""
        self._board.incident(asdict(incident))
        self._log.line(f"incident: {incident}")

    def recovered(self, worker: str, seconds: float) -> None:
        """See `Reporter`."""
        self._log.line(f"{worker} restored in {seconds:.1f} s")

    def look_at_roles(self) -> None:
        """Bring the board up to the roles' workers as they are now."""
        if self.engine is not None:
            for name, group in list(self.engine.groups.items()):
                self._board.role(self._state_of(name, group))

    def _state_of(self, name: str, group: RoleGroup) -> RoleState:
        spec = self._job.spec.role(name)
        trains = spec.type.trains
        joined = group.seats[0].joined if group.seats else None
        rollout = rollout_engine_of(spec, joined.engines if joined else {})
        engine = spread_of(spec).engine
        return RoleState(
            name=name,
            desired=spec.replicas if trains else group.replicas,
            ready=int(group.ready) if trains else sum(seat.ready for seat in list(group.seats)),
            class_name=group.role.worker.name,
            training_engine=engine.value if engine else "",
            rollout_engine=rollout.value if rollout else "",
            last_recovery_milliseconds=group.last_recovery_ms,
        )

    def _deaths(self) -> str:
        restarts = self._board.restarts
        return " restarts " + " ".join(f"{name}={count}" for name, count in restarts.items()) if restarts else ""


def _numbers(record: StepRecord, rates: Mapping[str, float]) -> str:
    shown = {name: record.metrics[name] for name in ("reward", "kl", "loss") if name in record.metrics}
    parts = [f"{name} {value:.4g}" for name, value in shown.items()] + [f"{record.seconds:.2f} s"]
    if "samples_per_second" in rates:
        parts.append(f"{rates['samples_per_second']:.1f} samples/s")
    return " ".join(parts)
