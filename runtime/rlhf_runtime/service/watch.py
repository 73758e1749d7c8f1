"""Looks at the run once a second: are the roles there, is the engine alive, is Ray still on this node.

Alive means that what the run waits for can still arrive. An engine shows it by letting a timer go off under its lock,
in the thread that delivers all news. A control flow that waits for nothing and does nothing is stuck, too. How long
a worker may take is no matter of this: the engine has limits for that (`methodTimeoutSeconds`, `startTimeoutSeconds`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlhf_api.job_control import messages
from rlhf_runtime.service.board import Board
from rlhf_runtime.service.health import HealthService
from rlhf_runtime.service.reporter import ServiceReporter

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine

LOOK_SECONDS = 1.0
ENGINE_SECONDS = 60.0
"""The longest that the engine's thread or lock may be busy with one thing."""
IDLE_SECONDS = 900.0
"""The longest that a training run may neither run a method nor make progress: plain Python between two steps."""
_READY = (messages.WAITING_FOR_PLACES, messages.STARTING_ROLES, messages.TRAINING, messages.STOPPING)


class Watch:
    """See the module.

    Args:
        board: Told what is seen.
        reporter: Knows the engine.
        health: Told whether the run is alive and ready.
        node_ended: What Ray on this node said last, when it has ended.
        on_node_end: Called once when that is so.
        log: For lines that people should see.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        *,
        board: Board,
        reporter: ServiceReporter,
        health: HealthService,
        node_ended: Callable[[], str | None],
        on_node_end: Callable[[str], None],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._reporter = reporter
        self._health = health
        self._node_ended = node_ended
        self._on_node_end = on_node_end
        self._log = log
        self._clock = clock
        self._stop = threading.Event()
        self._asked: float | None = None
        self._answered = clock()
        self._was_alive = True

    def start(self) -> None:
        """Look from now on, in two threads: one waits for no lock of the engine's, which may be what is stuck."""
        for name, work in (("rlhf-watch", self._watch), ("rlhf-roles", self._follow_roles)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            if (words := self._node_ended()) is not None and not self._stop.is_set():
                self._on_node_end(words)
                return
            self.look()

    def _follow_roles(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            engine = self._reporter.engine
            if engine is not None and not engine.closed:
                self.look_at_roles(engine)

    def look(self) -> None:
        """Look once whether the run is alive."""
        engine = self._reporter.engine
        stuck = self._stuck(engine) if engine is not None and not engine.closed else ""
        if stuck and self._was_alive:
            self._log(f"this controller is stuck: {stuck}")
        self._was_alive = not stuck
        self._health.tell(alive=not stuck, ready=self._board.phase in _READY)

    def look_at_roles(self, engine: Engine) -> None:
        """Look once at the roles' workers, and say what the run waits for."""
        self._reporter.look_at_roles()
        if self._board.phase not in (messages.WAITING_FOR_PLACES, messages.STARTING_ROLES, messages.TRAINING):
            return
        awaited = engine.waiting_for()
        if self._board.phase == messages.TRAINING:
            self._board.tell(messages.TRAINING, "; ".join(awaited) or "All roles are ready.")
        elif awaited:
            phase = messages.WAITING_FOR_PLACES if _lacks_places(engine) else messages.STARTING_ROLES
            self._board.tell(phase, "; ".join(awaited))

    def _stuck(self, engine: Engine) -> str:
        """Why nothing can arrive any more; empty while it can."""
        now = self._clock()
        if not engine.backend.threaded:
            return ""  # whoever waits does the work
        if self._asked is None:
            self._asked = now
            engine.backend.call_later(0.0, self._answer_of(engine))
        elif now - self._asked > ENGINE_SECONDS:
            return f"the engine has not answered for {now - self._asked:.0f} s"
        idle = self._board.idle_seconds
        if self._board.phase == messages.TRAINING and not engine.active and idle > IDLE_SECONDS:
            return f"the control flow has called no role for {idle:.0f} s"
        return ""

    def _answer_of(self, engine: Engine) -> Callable[[], None]:
        def answered(_: None) -> None:
            self._asked = None

        locked = engine.guard(answered)
        return lambda: locked(None)


def _lacks_places(engine: Engine) -> bool:
    """Whether a worker has no pod yet in which it could live."""
    return any(
        not seat.ready and engine.pool.lacks_pod(seat.process)
        for group in list(engine.groups.values())
        for seat in list(group.seats)
    )
