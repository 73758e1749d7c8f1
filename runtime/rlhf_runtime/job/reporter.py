"""What a run tells whoever watches it; the command line draws it, a test records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command line shows something before torch is imported
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.control.loop import StepRecord
    from rlhf_runtime.resilience.incidents import Incident


TRAINING = "Training"
"""The phase in which steps are made."""


class Reporter:
    """Does nothing; override what you want to hear. Calls may come from the engine's thread."""

    def phase(self, text: str) -> None:
        """A part of the run begins, such as "Starting 4 roles"."""

    def taken_over(
        self, epoch: int, lines: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]
    ) -> None:
        """This process owns the run from now on; earlier sessions left these metric lines and incidents."""

    def engine_started(self, engine: Engine) -> None:
        """Roles are about to be started on `engine`."""

    def progress(self, text: str, done: int, total: int) -> None:
        """A long piece of work stands at `done` of `total`."""

    def role_ready(self, role: str, workers: int) -> None:
        """Every worker of a role can be called."""

    def resumed(self, step: int, total: int) -> None:
        """The run goes on after `step`."""

    def step(self, record: StepRecord, rates: dict[str, float]) -> None:
        """An iteration is committed, or an evaluation done; `rates` has samples and tokens per second."""

    def snapshot(self, step: int) -> None:
        """A snapshot of all roles after `step` is whole."""

    def incident(self, incident: Incident) -> None:
        """A worker died, hung or raised, and is being replaced."""

    def recovered(self, worker: str, seconds: float) -> None:
        """A replaced worker is ready again."""
