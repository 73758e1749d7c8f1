"""Why a process died, from what it left behind.

Ray says the same of SIGKILL, a segfault and an abort ("connection error code 2. End of file", with a list of guesses).
The process's log ends with faulthandler's words in the latter two cases. What its memory monitor killed Ray does name.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from rlhf_api.enums import FailureReason

_TAIL_BYTES = 65536
_FATAL = "Fatal Python error: "
_RAY_MEMORY_MONITOR = ("node_out_of_memory", "running low on memory")
_CREATION_FAILED = "error raised in its creation task"
_NODE_GONE = re.compile(r"\bnode\b[^.]*\b(died|dead|terminated|drained|removed)\b")
_EXIT_CODE = re.compile(r"exits? with an exit code (\d+)")
_SIGNALS = {FailureReason.SEGMENTATION_FAULT: 128 + 11, FailureReason.ABORTED: 128 + 6}


@dataclass(frozen=True, slots=True)
class Death:
    """The incident word, one line for people, and the exit code where it is known."""

    reason: FailureReason
    message: str
    exit_code: int | None = None


def death_of(ray_message: str, log_file: str | None, *, since: int = 0) -> Death:
    """What is known of the end of a process that is gone.

    Args:
        ray_message: What Ray says of it.
        log_file: The process's own output, if it had a file.
        since: Size of that file when the process began to write: what comes before is its predecessors'.
    """
    text = ray_message.lower()
    if any(words in text for words in _RAY_MEMORY_MONITOR):
        return Death(FailureReason.HOST_OUT_OF_MEMORY, "ended by Ray since the machine ran out of memory")
    words = _fatal_line(log_file, since)
    if words is not None:
        segfault = "Segmentation" in words
        reason = FailureReason.SEGMENTATION_FAULT if segfault else FailureReason.ABORTED
        return Death(reason, f"died of a fatal error: {words} (stack in {log_file})", _SIGNALS[reason])
    if _CREATION_FAILED in text:
        lines = [line.strip() for line in ray_message.splitlines() if line.strip()]
        return Death(FailureReason.EXCEPTION, f"the process could not be set up: {lines[-1]}")
    if _NODE_GONE.search(text):
        return Death(FailureReason.NODE_LOST, "its pod or node is gone")
    if left := _EXIT_CODE.search(text):
        return Death(FailureReason.EXITED, f"left on its own with exit code {left[1]}", int(left[1]))
    if "exit code" in text and "exit_actor" in text:
        return Death(FailureReason.EXITED, "left on its own")
    return Death(FailureReason.KILLED, "ended by a signal from outside (SIGKILL, or the kernel's out-of-memory killer)")


def size_of(log_file: str | None) -> int:
    """How much is in the file already."""
    return os.path.getsize(log_file) if log_file is not None and os.path.exists(log_file) else 0


def _fatal_line(log_file: str | None, since: int) -> str | None:
    if log_file is None or not os.path.exists(log_file):
        return None
    with open(log_file, "rb") as file:
        file.seek(max(since, os.path.getsize(log_file) - _TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    lines = [line for line in tail.splitlines() if line.startswith(_FATAL)]
    return lines[-1].removeprefix(_FATAL) if lines else None
