"""Why a process died, from what it left behind.

Ray says the same of SIGKILL, a segfault and an abort ("connection error code 2. End of file"). The process's log ends
with faulthandler's words in the latter two cases; a kernel that ran out of memory shows in the cgroup's counters.
"""

from __future__ import annotations

import os

_TAIL_BYTES = 8192
_FATAL = "Fatal Python error: "


def death_of(ray_message: str, log_file: str | None) -> tuple[str, str]:
    """The incident word and one line for a process that is gone.

    Args:
        ray_message: What Ray says of it.
        log_file: The process's own output, if it had a file.
    """
    text = ray_message.lower()
    if "out of memory" in text or "oom" in text.split():
        return "HostOutOfMemory", "ended since the machine ran out of memory"
    words = _fatal_line(log_file)
    if words is not None:
        reason = "Segfault" if "Segmentation" in words else "Abort"
        return reason, f"died of a fatal error: {words} (stack in {log_file})"
    if "exit code" in text and "exit_actor" in text:
        return "Exited", "left on its own"
    return "Killed", "ended by a signal from outside (SIGKILL, or the kernel's out-of-memory killer)"


def _fatal_line(log_file: str | None) -> str | None:
    if log_file is None or not os.path.exists(log_file):
        return None
    with open(log_file, "rb") as file:
        file.seek(max(0, os.path.getsize(log_file) - _TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    lines = [line for line in tail.splitlines() if line.startswith(_FATAL)]
    return lines[-1].removeprefix(_FATAL) if lines else None
