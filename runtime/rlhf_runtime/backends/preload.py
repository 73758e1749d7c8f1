"""The slow imports of a spare process, done before it knows its role: they are most of what a restart takes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Sequence

_LOWEST_PRIORITY = 19


def _import_all(modules: Sequence[str]) -> None:
    for name in ("torch", "rlhf_runtime.host", *modules):
        with contextlib.suppress(ImportError):  # a worker that needs it will say so; a spare has nobody to tell
            importlib.import_module(name)


def import_in_background(modules: Sequence[str]) -> None:
    """Import what any role needs and these modules, at the lowest priority: those that work need the processor.

    On Linux a priority belongs to a thread, so the imports get one of their own; without privileges a thread that was
    made to wait could never be hurried again.
    """
    import numpy  # noqa: F401 - starts threads of its own, which would keep the priority for ever

    failures: list[BaseException] = []

    def work() -> None:
        try:
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
            _import_all(modules)
        except BaseException as error:  # raised again in the thread that waits
            failures.append(error)

    thread = threading.Thread(target=work, name="rlhf-preload")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
