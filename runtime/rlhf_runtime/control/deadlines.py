"""Every call has a limit: one that is not answered in time counts as a hang, and its process is replaced.

A process does one thing after another, so only the call that it is working on is timed: from when it was sent, or from
when the process answered the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_api.enums import FailureReason
from rlhf_runtime.control.graph import Shard
from rlhf_runtime.control.processes import Process
from rlhf_runtime.errors import HostDiedError

if TYPE_CHECKING:
    from rlhf_runtime.backends.base import Timer
    from rlhf_runtime.control.engine import Engine


class Deadlines:
    """Watches the running calls of an engine with a single timer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timer: Timer | None = None

    def arm(self) -> None:
        """Set the timer for the earliest deadline, unless it rings before that anyway."""
        due = min((due for _, due in self._limited()), default=None)
        if due is None or (self._timer is not None and self._timer.due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, due - self._engine.backend.now())
        self._timer = self._engine.backend.call_later(delay, lambda: self._engine.guard(self._check)(None))

    def settle(self) -> None:
        """A call was answered: when nothing runs, no timer is needed."""
        if self._timer is not None and not self._limited():
            self._timer.cancel()
            self._timer = None

    def _check(self, _: None) -> None:
        self._timer = None
        now = self._engine.backend.now()
        for shard, due in self._limited():
            if due <= now and shard.running:
                limit = self._engine.groups[shard.node.role].role.method_timeout
                message = f"no answer within `methodTimeoutSeconds` ({limit:g} s)"
                self._engine.recovery.shard_failed(shard, HostDiedError(message, reason=FailureReason.METHOD_TIMEOUT))
        self.arm()

    def _limited(self) -> list[tuple[Shard, float]]:
        """The calls that processes are working on, each with the time until which it may take."""
        first: dict[Process, Shard] = {}
        for node in self._engine.active.values():
            for shard in node.shards:
                if shard.running:
                    process = self._engine.groups[node.role].seat(shard.worker).process
                    if process not in first or shard.turn < first[process].turn:
                        first[process] = shard
        found = []
        for process, shard in first.items():
            limit = self._engine.groups[shard.node.role].role.method_timeout
            if limit is not None and all(seat.ready for seat in process.seats):
                found.append((shard, max(shard.started, process.heard) + limit))
        return found
