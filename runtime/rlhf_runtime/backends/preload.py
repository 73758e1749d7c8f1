"""The slow imports of a spare process, done before it knows its role: they are most of what a restart takes."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading

_MODULES = (
    "torch",
    "torch.nn.functional",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.generation.utils",
    "rlhf_runtime.host",
    "rlhf_runtime.workers.actor",
    "rlhf_runtime.workers.critic",
    "rlhf_runtime.workers.reference",
    "rlhf_runtime.workers.reward",
    "rlhf_runtime.workers.rule",
)
_LOWEST_PRIORITY = 19


def _import_all() -> None:
    """A module that is not installed is not needed."""
    for name in _MODULES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)


def import_all_in_background() -> None:
    """Import what any role may need, at the lowest priority: a spare must not take the processor from roles that work.

    On Linux a priority belongs to a thread, so the imports get one of their own; without privileges a thread that was
    made to wait could never be hurried again.
    """
    import numpy  # noqa: F401 - starts threads of its own, which would keep the priority for ever

    failures: list[BaseException] = []

    def work() -> None:
        try:
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
            _import_all()
        except BaseException as error:  # raised again in the thread that waits
            failures.append(error)

    thread = threading.Thread(target=work, name="rlhf-preload")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
