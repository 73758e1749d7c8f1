"""The termination file: it says something true from the beginning on.

What it says of a process that is killed is that nothing more is known, and how far the run was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rlhf_api.ending import Ending, EndingOutcome
from rlhf_api.reasons import ConditionReason
from rlhf_runtime.service.board import Board
from rlhf_runtime.service.endings import Judgement

_SECONDS_BETWEEN_DRAFTS = 10.0
_DIED = (
    "The controller's process was ended from outside, or died, before it could say why: see its exit code and the end "
    "of its log.\nThe next controller goes on after the last step."
)


class TerminationFile:
    """See the module.

    Args:
        file: Where the `Ending` goes.
        board: Knows how far the run is.
        log: For lines that people should see.
    """

    def __init__(self, file: Path, *, board: Board, log: Callable[[str], None]) -> None:
        self._file = file
        self._board = board
        self._log = log
        self._drafted = float("-inf")
        self._pen = threading.Lock()

    def draft(self) -> None:
        """Write what is to be read if this process is killed from now on."""
        now = time.monotonic()
        if now - self._drafted < _SECONDS_BETWEEN_DRAFTS or not self._pen.acquire(blocking=False):
            return
        try:
            self._drafted = now
            self._put(self._board.ending(EndingOutcome.INTERRUPTED, ConditionReason.CONTROLLER_LOST, _DIED))
        finally:
            self._pen.release()

    def write(self, judgement: Judgement) -> None:
        """Write how the process ends; whoever comes second waits for that end and writes nothing."""
        self._pen.acquire()
        self._put(self._board.ending(judgement.outcome, judgement.reason, judgement.message))

    def _put(self, ending: Ending) -> None:
        try:
            self._file.write_text(ending.encode(), encoding="utf-8")
        except OSError as error:
            self._log(f'"{self._file}" cannot be written: {error.strerror}')
