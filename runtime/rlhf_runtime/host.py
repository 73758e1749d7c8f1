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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlhf_api import in_pod
from rlhf_runtime.errors import RemoteError, RlhfError
from rlhf_runtime.executor import Answer, FaultHook, RoleExecutor
from rlhf_runtime.messages import SNAPSHOT, Assignment, CallRequest, Joined, Reply
from rlhf_runtime.pod_logs import link_log
from rlhf_runtime.resilience.state_store import StateStore, open_state_store
from rlhf_runtime.worker import WorkerContext


class WorkerHost:
    """Executes the workers of the roles assigned to this process, one call at a time.

    Args:
        open_store: Opens the state store that an assignment names.
        at_point: Passed to the executors, for scripted faults.
        clock: Wall-clock time in seconds.
        tell: Given a line for people about each call and each start of a worker that has a log file.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[str], StateStore] = open_state_store,
        at_point: FaultHook = lambda point, request: None,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._open_store = open_store
        self._at_point = at_point
        self._clock = clock
        self._tell = tell
        self._executors: dict[str, RoleExecutor] = {}
        self._calls = 0
        self._meetings: list[Any] = []  # kept, since the ranks come back to them when they make more groups

    def open_meeting(self) -> str:
        """Open the place where the ranks of a role meet, this being rank 0's process; gives its address.

        Raises:
            RanksError: No port can be had.
        """
        from rlhf_runtime.engines.ranks import open_meeting_place

        address, store = open_meeting_place()
        self._meetings.append(store)
        return address

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
        seconds = self._clock() - started
        if assignment.log_file:
            self._tell(joined_line(executor.context, replayed=replayed, seconds=seconds, engines=executor.engines))
        return Joined(
            worker_name=executor.context.worker_name,
            pod=os.environ.get(in_pod.POD_VARIABLE) or socket.gethostname(),
            node=os.environ.get(in_pod.NODE_VARIABLE, ""),
            pid=os.getpid(),
            version=executor.version,
            replayed=replayed,
            seconds=seconds,
            engines=executor.engines,
        )

    def call(self, request: CallRequest, buffers: Sequence[np.ndarray | None]) -> Answer:
        """Answer a call of one of this process's roles; errors as `RoleExecutor.call` has them."""
        self._calls += 1
        executor = self._executor(request.role)
        use_threads(executor.context.threads)
        if not executor.has_log_file:
            return executor.call(request, buffers)
        started = self._clock()
        try:
            answer = executor.call(request, buffers)
        except RlhfError as error:
            self._tell(call_line(executor.context, request, seconds=self._clock() - started, error=error))
            raise
        self._tell(call_line(executor.context, request, seconds=self._clock() - started, reply=answer[0]))
        return answer

    def worker_name(self, role: str) -> str:
        """The name of this process's worker of a role.

        Raises:
            RlhfError: It has none.
        """
        return self._executor(role).context.worker_name

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


def joined_line(context: WorkerContext, *, replayed: int, seconds: float, engines: Mapping[str, str]) -> str:
    """Such as `critic-worker-000 ready at version 2 (attempt 1, 2 updates replayed) after 3.20 s, pid 4711`."""
    history = f"attempt {context.attempt}, {replayed} {'update' if replayed == 1 else 'updates'} replayed"
    version = f"version {context.version}"
    picked = "".join(f", {kind} {name}" for kind, name in engines.items())
    return f"{context.worker_name} ready at {version} ({history}) after {seconds:.2f} s, pid {os.getpid()}{picked}"


def call_line(
    context: WorkerContext,
    request: CallRequest,
    *,
    seconds: float,
    reply: Reply | None = None,
    error: RlhfError | None = None,
) -> str:
    """Such as `step 12 actor-worker-000 generate 0.31 s (64 samples)`; steps count from 1, as a job's status does."""
    method = "snapshot" if request.method == SNAPSHOT else request.method
    line = f"step {request.call.iteration + 1} {context.worker_name} {method}"
    if error is not None:
        trace = f"\n{error.traceback.rstrip()}" if isinstance(error, RemoteError) else ""
        return f"{line} failed after {seconds:.2f} s: {error}{trace}"
    made = [spec.rows for spec in reply.columns.values() if spec.rows is not None] if reply else []
    return f"{line} {seconds:.2f} s" + (f" ({max(made)} samples)" if made else "")


def redirect_output(log_file: str, *, pod_logs: str = in_pod.POD_LOGS_FOLDER) -> None:
    """Send all that this process prints, also from native code, to `log_file`, with last words on a crash.

    Ray hides a worker's output in files of its own; a role's output belongs where its users look. In a role's pod the
    first process copies what this one appends to the pod's own output: `rlhf_runtime.node`.
    """
    os.makedirs(os.path.dirname(log_file), exist_ok=True)
    file = open(log_file, "a", buffering=1, encoding="utf-8")
    link_log(log_file, pod_logs)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    faulthandler.enable(file=file)
