"""Ctrl-C and SIGTERM, so that a run stops in seconds and whole, and stops in any case."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from rlhf_runtime.descendants import end_descendants

DEADLINE_SECONDS = 4.5


class StopSignals:
    """While entered: the first SIGINT or SIGTERM raises KeyboardInterrupt in the main thread.

    A second one ends the process at once, and so does a deadline after the first; the processes that it started, Ray's
    and the roles', end with it.

    Attributes:
        received: The first signal, once there was one.
        abrupt: True while there is nothing to wind up, such as during imports, in which an exception at a random
            place does harm: then the first signal ends the process too.
    """

    def __init__(self, *, before_end: Callable[[], None], deadline: float = DEADLINE_SECONDS) -> None:
        self.received: signal.Signals | None = None
        self.abrupt = False
        self._before_end = before_end
        self._deadline = deadline
        self._timer: threading.Timer | None = None
        self._former: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """As a shell expects it: 130 after SIGINT, 143 after SIGTERM."""
        return 128 + (self.received or signal.SIGINT)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received = signal.Signals(number)
        if not first or self.abrupt:
            self._end()
        self._timer = threading.Timer(self._deadline, self._end)
        self._timer.daemon = True
        self._timer.start()
        raise KeyboardInterrupt

    def _end(self) -> None:
        self._before_end()
        end_descendants()
        os._exit(self.exit_code)
