"""The Ray actor class of a role process. It is imported in the process itself: keep it light until it runs."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import ray


class RoleProcess:
    """A blank role process, which waits for its assignment.

    Args:
        preload: Of a spare, which may become any role, the modules that it imports now, without taking the processor
            from those that work. None: it imports what its role needs, when it gets one.
    """

    def __init__(self, *, preload: Sequence[str] | None = None) -> None:
        _ignore_interrupts()
        _end_with_parent()
        gc.disable()  # until it is assigned: the collector makes the imports an eighth slower
        if preload is not None:
            from rlhf_runtime.backends.preload import import_in_background

            import_in_background(preload)
        import torch

        from rlhf_runtime.host import WorkerHost

        torch.set_num_threads(1)
        self._host = WorkerHost(tell=_tell)

    def run(self, operation: str, arguments: tuple[Any, ...], *buffers: Any) -> tuple[Any, Any]:
        """One operation of `WorkerHost`; errors come back as values, so that they keep their type."""
        from rlhf_runtime.errors import RlhfError
        from rlhf_runtime.executor import remote_error

        try:
            if operation == "call":
                return self._host.call(arguments[0], buffers)
            if operation == "assign" and arguments[0].log_file:
                from rlhf_runtime.host import redirect_output

                redirect_output(arguments[0].log_file)
            return getattr(self._host, operation)(*arguments), None
        except RlhfError as error:
            return error, None
        except Exception as error:  # whatever a worker raises is the engine's to judge
            return remote_error(error, poisoned=False), None
        finally:
            if operation == "assign":
                gc.enable()

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]
    def control(self, operation: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """An operation that must not queue behind a long call."""
        return getattr(self._host, operation)(*arguments), None


def _tell(line: str) -> None:
    print(line, flush=True)


def _ignore_interrupts() -> None:
    """Ctrl-C in a terminal reaches every process of it; it is the controller's to handle."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with_parent() -> None:
    """Ask the kernel to end this process with Ray's node process; by itself it would notice only seconds later."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
