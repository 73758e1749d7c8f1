"""The processes that this one has started."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def end_descendants() -> None:
    """End every process that this one started, directly or not, where `/proc` tells which they are.

    By themselves Ray's notice only after seconds that the process which started them is gone.
    """
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    parents = [os.getpid()]
    while parents:
        for child in children.get(parents.pop(), ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            parents.append(child)
