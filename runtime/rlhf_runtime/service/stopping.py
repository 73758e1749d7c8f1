"""Suspend and SIGTERM: the run ends between two steps if it can in time, at once if it cannot.

    Suspend, SIGTERM ─► trains?  yes ─► stop after the present step, snapshot ─► the run returns by itself
                           │                                └─ the grace is nearly over, second SIGTERM ─┐
                           └── no ──────────────────────────────────────────────────────────────────────► end now

To end now loses nothing but the step that is being made: what is committed is whole, and its updates are logged.
A signal's handler only puts a word into a queue, since it may have interrupted a thread that holds any lock.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType

SUSPEND, SIGTERM = "Suspend", "SIGTERM"


class StopRequests:
    """Waits for requests in a thread of its own.

    Args:
        finish: Asks the run to end after its present step; tells whether it will.
        end: Ends the process.
        grace: Seconds from the first request after which the process must be gone.
    """

    def __init__(self, *, finish: Callable[[str], bool], end: Callable[[], None], grace: float) -> None:
        self._finish = finish
        self._end = end
        self._limit = grace - margin(grace)
        self._requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="rlhf-stopping", daemon=True)
        self.asked = False
        """Whether somebody asked."""

    def start(self) -> None:
        """Take requests from now on, and SIGTERM where this is the main thread."""
        self._thread.start()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._signalled)

    def request(self, word: str = SUSPEND) -> None:
        """Ask; returns at once."""
        self._requests.put(word)

    def close(self) -> None:
        """The run is over: nobody needs to be stopped any more."""
        self._requests.put(None)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._requests.put(SIGTERM)

    def _serve(self) -> None:
        word = self._requests.get()
        if word is None:
            return
        self.asked = True
        if not self._finish(word):
            self._end()
            return
        terms = int(word == SIGTERM)
        over = threading.Timer(self._limit, self._requests.put, args=("",))
        over.daemon = True
        over.start()
        while (word := self._requests.get()) is not None:
            terms += word == SIGTERM
            if terms > 1 or not word:
                self._end()
                return
        over.cancel()


def margin(grace: float) -> float:
    """The part of a grace period that is kept for the way out."""
    return min(15.0, max(3.0, grace / 5)) if grace > 3.0 else grace
