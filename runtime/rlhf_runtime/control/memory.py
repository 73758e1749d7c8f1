"""Asks every role's process how much memory it has held at most."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from rlhf_runtime.backends.base import Outcome

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.control.processes import WorkerSeat


class PeakMemory:
    """One question to all processes; make it under the engine's lock.

    Args:
        engine: Whose processes are asked.
        limit: Seconds after which those that have not answered are left out.

    Attributes:
        answers: Bytes by role, of the role's largest process.
    """

    def __init__(self, engine: Engine, *, limit: float) -> None:
        self.answers: dict[str, int] = {}
        seats = [seat for group in engine.groups.values() for seat in group.seats if seat.ready]
        self._waiting = set(map(id, seats))
        self._timer = engine.backend.call_later(limit, lambda: engine.guard(lambda _: self._waiting.clear())(None))
        for seat in seats:
            host = seat.process.host
            assert host is not None
            engine.backend.submit(host, "ping", (), (), engine.guard(functools.partial(self._answer, seat)))

    @property
    def answered(self) -> bool:
        """Whether all have answered, or the time is over."""
        if not self._waiting:
            self._timer.cancel()
        return not self._waiting

    def _answer(self, seat: WorkerSeat, outcome: Outcome) -> None:
        self._waiting.discard(id(seat))
        if outcome.error is None:
            name = seat.group.role.name
            self.answers[name] = max(self.answers.get(name, 0), outcome.value["peak_memory_bytes"])
