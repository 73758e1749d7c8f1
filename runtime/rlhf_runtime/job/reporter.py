"""What a run tells whoever watches it; the command line draws it, a test records it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command line shows something before torch is imported
    from rlhf_runtime.control.loop import StepRecord
    from rlhf_runtime.resilience.incidents import Incident


class Reporter:
    """Does nothing; override what you want to hear. Calls may come from the engine's thread."""

    def phase(self, text: str) -> None:
        """A part of the run begins, such as "Starting 4 roles"."""

    def progress(self, text: str, done: int, total: int) -> None:
        """A long piece of work stands at `done` of `total`."""

    def role_ready(self, role: str, workers: int) -> None:
        """Every worker of a role can be called."""

    def resumed(self, step: int, total: int) -> None:
        """The run goes on after `step`."""

    def step(self, record: StepRecord, rates: dict[str, float]) -> None:
        """An iteration is committed, or an evaluation done; `rates` has samples and tokens per second."""

    def incident(self, incident: Incident) -> None:
        """A worker died, hung or raised, and is being replaced."""

    def recovered(self, worker: str, seconds: float) -> None:
        """A replaced worker is ready again."""
