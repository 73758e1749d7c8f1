"""All roles in the controller's own process, one call at a time.

A call runs when somebody waits for something, in the thread that waits: `breakpoint()` in a worker works.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.base import Backend, BufferRef, Host, OnDone, Outcome, Place
from rlhf_runtime.errors import HostDiedError, RlhfError
from rlhf_runtime.host import WorkerHost


@dataclass(eq=False)
class LocalHost(Host):
    """A host that is an object."""

    name: str
    worker_host: WorkerHost = field(repr=False)
    alive: bool = True


def run_operation(host: LocalHost, operation: str, arguments: Sequence[Any], buffers: Sequence[BufferRef]) -> Outcome:
    """Run one operation here and now."""
    if not host.alive:
        return Outcome(error=HostDiedError(f"{host.name} was ended", reason=FailureReason.KILLED))
    try:
        if operation == "call":
            reply, buffer = host.worker_host.call(arguments[0], buffers)
            if buffer is not None:
                buffer.flags.writeable = False  # as it would arrive from another process
            return Outcome(value=reply, buffer=buffer)
        return Outcome(value=getattr(host.worker_host, operation)(*arguments))
    except Exception as error:  # whatever a worker raises is the engine's to judge
        return Outcome(error=error)


class InProcessBackend(Backend):
    """Runs queued operations in the caller's thread."""

    name = "in-process"
    threaded = False
    buffers_outlive_hosts = True

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[tuple[LocalHost, Callable[[], Outcome], OnDone]] = deque()

    def start_host(self, name: str, *, preload: Sequence[str] | None = None, place: Place | None = None) -> LocalHost:
        """Make a blank host object."""
        return LocalHost(name=name, worker_host=WorkerHost())

    def submit(
        self,
        host: Host,
        operation: str,
        arguments: Sequence[Any],
        buffers: Sequence[BufferRef],
        on_done: OnDone,
    ) -> None:
        """Queue the operation for the next `pump`."""
        assert isinstance(host, LocalHost)
        if operation == "open_meeting":
            error = RlhfError(
                "the ranks of a process group need processes of their own: use the Ray backend, or one rank"
            )
            self._queue.append((host, lambda: Outcome(error=error), on_done))
            return
        self._queue.append((host, lambda: run_operation(host, operation, arguments, buffers), on_done))

    def kill(self, host: Host) -> None:
        """Forget the host's workers."""
        assert isinstance(host, LocalHost)
        host.alive = False

    def put(self, buffer: np.ndarray) -> BufferRef:
        """The buffer itself."""
        return buffer

    def fetch(self, buffer: BufferRef) -> np.ndarray:
        """The buffer itself."""
        assert isinstance(buffer, np.ndarray)
        return buffer

    def gpus(self) -> int:
        """This machine's."""
        import torch

        return torch.cuda.device_count()

    def now(self) -> float:
        """Wall-clock seconds."""
        return time.time()

    def pump(self, timeout: float) -> bool:
        """Run the next operation, or sleep until the next timer."""
        if timer := self._due_timer():
            timer.callback()
            return True
        if self._queue:
            _, run, on_done = self._queue.popleft()
            on_done(run())
            return True
        if (due := self._next_timer()) is not None:
            time.sleep(min(timeout, max(0.0, due - self.now())))
            return True
        return False

    def close(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
