"""Every call has a limit: one that is not answered in time counts as a hang, and its process is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_runtime.control.graph import Shard
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
        """Set the timer for the earliest deadline, unless it is set."""
        if self._timer is None and (due := min((due for _, due in self._limited()), default=None)) is not None:
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
                self._engine.recovery.shard_failed(shard, HostDiedError(message, reason="Hang"))
        self.arm()

    def _limited(self) -> list[tuple[Shard, float]]:
        found = []
        for node in self._engine.active.values():
            limit = self._engine.groups[node.role].role.method_timeout
            if limit is not None:
                found += [(shard, shard.started + limit) for shard in node.shards if shard.running]
        return found
