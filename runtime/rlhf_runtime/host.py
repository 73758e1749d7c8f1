"""What runs inside a role's process, whatever started that process.

A host is born blank: it has done the slow imports and nothing else. An assignment makes it a worker of a role, so the
same kind of process serves every role, a spare can replace any of them, and several roles may share one (colocation).
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.executor import Answer, FaultHook, RoleExecutor
from rlhf_runtime.messages import Assignment, CallRequest, Joined
from rlhf_runtime.resilience.state_store import StateStore, open_state_store


class WorkerHost:
    """Executes the workers of the roles assigned to this process, one call at a time.

    Args:
        open_store: Opens the state store that an assignment names.
        at_point: Passed to the executors, for scripted faults.
        clock: Wall-clock time in seconds.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[str], StateStore] = open_state_store,
        at_point: FaultHook = lambda point, request: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_store = open_store
        self._at_point = at_point
        self._clock = clock
        self._executors: dict[str, RoleExecutor] = {}
        self._calls = 0

    def assign(self, assignment: Assignment) -> Joined:
        """Make this process a worker of a role and bring it to the version asked for.

        Raises:
            WorkerClassError: The class cannot be imported.
            RemoteError: Its constructor raised.
            FencedError: A newer controller has already called the worker that is here.
        """
        started = self._clock()
        if assignment.role in self._executors:
            self._executors[assignment.role].fence(assignment.epoch)
        use_threads(assignment.threads)
        store = self._open_store(assignment.state_location) if assignment.state_location else None
        executor = RoleExecutor(assignment, store=store, at_point=self._at_point, clock=self._clock)
        replayed = executor.restore(assignment.restore_version)
        self._executors[assignment.role] = executor
        return Joined(
            worker_name=executor.context.worker_name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=executor.version,
            replayed=replayed,
            seconds=self._clock() - started,
        )

    def call(self, request: CallRequest, buffers: Sequence[np.ndarray | None]) -> Answer:
        """Answer a call of one of this process's roles; errors as `RoleExecutor.call` has them."""
        self._calls += 1
        executor = self._executor(request.role)
        use_threads(executor.context.threads)
        return executor.call(request, buffers)

    def ping(self) -> dict[str, Any]:
        """That the process is alive, how many calls it began, and the most memory it ever held, in bytes."""
        return {"pid": os.getpid(), "calls": self._calls, "peak_memory_bytes": peak_memory_bytes()}

    def _executor(self, role: str) -> RoleExecutor:
        if role not in self._executors:
            raise RlhfError(f'this process serves {sorted(self._executors) or "no role"}, not "{role}"')
        return self._executors[role]


def use_threads(count: int) -> None:
    """Let torch use `count` threads for what the calling thread does next.

    Asked before every call, since colocated roles may declare different numbers, which change results as well as
    speed. The setting belongs to the thread that makes it: a host does all its work in one.
    """
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def peak_memory_bytes() -> int:
    """The most resident memory this process ever held."""
    import resource  # not on Windows, where nothing else of the runtime works either

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def redirect_output(log_file: str) -> None:
    """Send all that this process prints, also from native code, to `log_file`, with last words on a crash.

    Ray hides a worker's output in files of its own; a role's output belongs where its users look.
    """
    os.makedirs(os.path.dirname(log_file), exist_ok=True)
    file = open(log_file, "a", buffering=1, encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    faulthandler.enable(file=file)
