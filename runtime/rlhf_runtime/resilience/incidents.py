"""What went wrong with a role, in words that a policy can match, and what follows from it.

The judgement is a pure function of the error and of what this step has already suffered:

| what happened | verdict |
|---|---|
| the process is gone or hangs, or another rank's | restore the worker, repeat what it was doing |
| a writing method raised | its state is half changed: discard the process, restore, repeat once |
| out of memory in a reading method | discard the process, restore, repeat once |
| any other exception in a reading method | the step fails: user code is not restarted |
| the same exception at the same step twice | a bug, not a fault: the step fails with the traceback |
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from rlhf_api.enums import FailureReason
from rlhf_runtime.errors import (
    BufferLostError,
    HostDiedError,
    PeerLostError,
    RemoteError,
    StateDiscardedError,
    VersionMovedError,
)

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?")
_OUT_OF_MEMORY = {"OutOfMemoryError", "MemoryError", "AcceleratorError"}


class Verdict(enum.Enum):
    """What to do with a step whose worker answered with an error."""

    RESTORE = "restore the worker and repeat"
    RECOMPUTE_INPUTS = "compute lost inputs again and repeat"
    FAIL = "fail the step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One death, hang or exception of a worker.

    Attributes:
        role: The role's name.
        worker: The worker's name, such as `critic-worker-003`.
        attempt: Which process of this rank it was, from 0.
        reason: Why, in the words that a restart policy matches.
        message: The cause in one line.
        step: What it was doing; empty when idle.
        pid: Its process id.
        time: When the controller learned of it, wall-clock seconds.
        rank: The worker's rank.
        pod: The pod it ran in, or the machine where there are no pods; empty if it never joined.
        node: The Kubernetes node of that pod.
        epoch: Of the controller that tells it.
        iteration: Of the step that it was in; when idle, the newest that was begun.
        exit_code: Of its process, where known.
        counted: Whether it uses up the role's restart budget.
    """

    role: str
    worker: str
    attempt: int
    reason: FailureReason
    message: str
    step: str
    pid: int
    time: float
    rank: int = 0
    pod: str = ""
    node: str = ""
    epoch: int = 0
    iteration: int = 0
    exit_code: int | None = None
    counted: bool = True

    @property
    def id(self) -> str:
        """Unique within the job, also across its controllers: a process dies once."""
        return f"{self.worker}/{self.attempt}/{self.epoch}"

    def __str__(self) -> str:
        doing = f" in {self.step}" if self.step else ""
        where = f"{self.pod} on {self.node}" if self.node else self.pod
        return f"{self.worker} (pid {self.pid} in {where}){doing}: {self.reason}: {self.message}"


def reason_of(error: BaseException) -> FailureReason:
    """The incident vocabulary's word for `error`."""
    if isinstance(error, HostDiedError):
        return error.reason
    if isinstance(error, RemoteError):
        if error.kind in _OUT_OF_MEMORY:
            on_gpu = "CUDA" in error.text or error.kind == "AcceleratorError"
            return FailureReason.CUDA_OUT_OF_MEMORY if on_gpu else FailureReason.HOST_OUT_OF_MEMORY
        return FailureReason.EXCEPTION
    return FailureReason.UNKNOWN


def signature(error: BaseException) -> str:
    """What makes two errors at one step the same; empty for those that are never a bug of the step.

    Numbers do not count: out of memory, for one, tells how much was free.
    """
    if isinstance(error, RemoteError):
        return f"{error.kind}: {_NUMBER.sub('#', error.text)}"
    return ""


def judge(error: BaseException, *, failures: list[str]) -> Verdict:
    """What follows from `error` at a step that has already failed with `failures` (their signatures)."""
    if isinstance(error, BufferLostError):
        return Verdict.RECOMPUTE_INPUTS
    if isinstance(error, (HostDiedError, PeerLostError, VersionMovedError, StateDiscardedError)):
        return Verdict.RESTORE
    if isinstance(error, RemoteError):
        fault = error.poisoned or error.kind in _OUT_OF_MEMORY
        return Verdict.RESTORE if fault and signature(error) not in failures else Verdict.FAIL
    return Verdict.FAIL


def describe(error: BaseException) -> str:
    """An error as its reader needs it: a worker's exception with the worker's traceback."""
    if isinstance(error, RemoteError):
        return f"{error}\n\nThe worker's traceback:\n{error.traceback}"
    return str(error)
