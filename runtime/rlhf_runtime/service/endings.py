"""How a run's error ends its controller: for good or for another pod, with which reason and what advice.

| error | outcome | reason |
|---|---|---|
| a role's budget is used up | Failed | RestartsExhausted |
| worker or controller class cannot be imported | Failed | WorkerImportFailed |
| the same exception at the same step twice | Failed | RepeatedException |
| any other exception of a worker's code, which is not repeated | Failed | WorkerException |
| a model, data or manifest that cannot be used | Failed | InvalidSpec |
| state is full, damaged, or not there from the start | Failed | StateUnreachable |
| state does not answer any more while training | Interrupted | StateUnreachable |
| a newer controller took over | Interrupted | ControllerLost |
| Ray or its head is gone | Interrupted | HeadLost |
| anything else | Interrupted | ControllerLost |
| the same again, in the next pod at the same step | Failed | RepeatedException |

The message's last line says what to do. A run that is interrupted needs nobody: the Job makes another pod.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from rlhf_api.ending import FAILED_FOR_GOOD, EndingOutcome
from rlhf_api.reasons import ConditionReason
from rlhf_runtime.errors import (
    DataError,
    DeadlockError,
    EpochFencedError,
    FencedError,
    RefusedError,
    RemoteError,
    ResourcePoolError,
    RlhfError,
    RoleExhaustedError,
    StateCorruptError,
    StateMissingError,
    StateStoreError,
    StateStoreFullError,
    UnknownMethodError,
    UnsupportedValueError,
    WorkerClassError,
)
from rlhf_runtime.job.run_folder import RunFolderError
from rlhf_runtime.service.cluster import ClusterUnreachableError

DONE, AGAIN, FAILED = 0, 1, FAILED_FOR_GOOD
"""Exit codes; the Job's `podFailurePolicy` knows the last one."""

_IMPORTS = {"ImportError", "ModuleNotFoundError", "WorkerClassError"}
_SPEC_ERRORS = (DataError, RefusedError, ResourcePoolError, UnknownMethodError, UnsupportedValueError)
_SPEC_ERROR_NAMES = {"UnsupportedError", "RunFolderError", "ModelNotFoundError", "TaskError", "TaskFileError"}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OUT_OF_MEMORY = {"OutOfMemoryError", "MemoryError", "AcceleratorError"}
_TRACEBACK_LINES = 12
_LONGEST_HEADLINE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How an error ends the controller's process."""

    outcome: EndingOutcome
    reason: ConditionReason
    message: str

    @property
    def exit_code(self) -> int:
        """For the Job."""
        return EXIT_CODES[self.outcome]


EXIT_CODES = {
    EndingOutcome.COMPLETE: DONE,
    EndingOutcome.SUSPENDED: DONE,
    EndingOutcome.FAILED: FAILED,
    EndingOutcome.INTERRUPTED: AGAIN,
}


def judge_error(error: BaseException, *, training: bool, seen_before: bool = False) -> Judgement:
    """See the module.

    Args:
        error: What ended the run.
        training: Whether steps were being made.
        seen_before: Whether the pod before this one ended with the same error after the same step.
    """
    chain = list(causes(error))
    if any(isinstance(cause, EpochFencedError | FencedError) for cause in chain):
        return _again(
            ConditionReason.CONTROLLER_LOST, error, "A newer controller has taken over; nothing is to be done."
        )
    if judged := _of_state(error, chain, training=training):
        return judged
    remote = next((cause for cause in chain if isinstance(cause, RemoteError)), None)
    if any(isinstance(cause, RoleExhaustedError) for cause in chain):
        advice = (
            "Look at the role's log for the cause, in `logs/` of the run's folder too; if it passes by itself,"
            " raise `spec.roles[].restartPolicy.maxRestarts`. A new job of this name goes on after the last step."
        )
        return _failed(ConditionReason.RESTARTS_EXHAUSTED, error, advice, remote)
    if any(isinstance(cause, WorkerClassError) for cause in chain) or (remote and remote.kind in _IMPORTS):
        advice = (
            "The worker image must contain it: check the import path in `spec`, and that the package is installed in"
            " `spec.image` or lies in a folder of its PYTHONPATH."
        )
        return _failed(ConditionReason.WORKER_IMPORT_FAILED, error, advice, remote)
    if any(isinstance(cause, _SPEC_ERRORS) or type(cause).__name__ in _SPEC_ERROR_NAMES for cause in chain):
        return _failed(ConditionReason.INVALID_SPEC, error, "Correct it in the manifest and apply it as a new job.")
    if remote is not None:
        repeated = remote.poisoned or remote.kind in _OUT_OF_MEMORY
        reason = ConditionReason.REPEATED_EXCEPTION if repeated else ConditionReason.WORKER_EXCEPTION
        said = "The same exception came twice at the same step. " if repeated else ""
        advice = f"{said}Correct the code or the settings; a new job of this name goes on after the last step."
        return _failed(reason, error, advice, remote)
    return _of_the_controller(error, chain, seen_before=seen_before)


def _of_state(error: BaseException, chain: list[BaseException], *, training: bool) -> Judgement | None:
    if any(_is_full(cause) for cause in chain):
        advice = "Make room at `spec.state.location`, or a larger claim; a new job of this name goes on from there."
        return _failed(ConditionReason.STATE_UNREACHABLE, error, advice)
    state = next((cause for cause in chain if isinstance(cause, StateStoreError) or _is_unwritable(cause)), None)
    if state is None:
        return None
    if isinstance(state, StateCorruptError | StateMissingError):
        advice = "Restore `spec.state.location` from a copy, or start anew with another place there."
        return _failed(ConditionReason.STATE_UNREACHABLE, error, advice)
    if training:
        return _again(ConditionReason.STATE_UNREACHABLE, error, "The next controller tries again.")
    advice = (
        "`spec.state.location` must be reachable from the controller's and all roles' pods: check the address, the"
        " credentials in `spec.env` or `spec.envFrom`, and that the image has the fsspec driver."
    )
    return _failed(ConditionReason.STATE_UNREACHABLE, error, advice)


def _of_the_controller(error: BaseException, chain: list[BaseException], *, seen_before: bool) -> Judgement:
    if any(isinstance(cause, ClusterUnreachableError) or _is_of_ray(cause) for cause in chain):
        return _again(ConditionReason.HEAD_LOST, error, "The next controller joins the cluster anew.")
    if isinstance(error, RlhfError) and (error.__cause__ is None or isinstance(error, DeadlockError)):
        return _failed(ConditionReason.CONTROLLER_FAILED, error, "The controller's log has the whole story.")
    if seen_before:
        advice = "The last controller met the same at the same step: correct the control flow, or report a bug."
        return _failed(ConditionReason.REPEATED_EXCEPTION, error, advice)
    return _again(ConditionReason.CONTROLLER_LOST, error, "The next controller goes on after the last step.")


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def signature(error: BaseException) -> str:
    """What makes an error of this pod and one of the last the same: kind and place, not the numbers in the text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} at {where}"


def _is_full(error: BaseException) -> bool:
    if isinstance(error, RemoteError):
        return error.kind == StateStoreFullError.__name__
    return isinstance(error, StateStoreFullError) or getattr(error, "errno", None) in _FULL


def _is_unwritable(error: BaseException) -> bool:
    return isinstance(error, RunFolderError) and isinstance(error.__cause__, OSError)


def _is_of_ray(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "ray" or isinstance(error, ConnectionError)


def _again(reason: ConditionReason, error: BaseException, advice: str) -> Judgement:
    return Judgement(outcome=EndingOutcome.INTERRUPTED, reason=reason, message=_message(error, advice))


def _failed(reason: ConditionReason, error: BaseException, advice: str, remote: RemoteError | None = None) -> Judgement:
    return Judgement(outcome=EndingOutcome.FAILED, reason=reason, message=_message(error, advice, remote))


def _message(error: BaseException, advice: str, remote: RemoteError | None = None) -> str:
    text = str(error)
    kind = "" if isinstance(error, RlhfError) or not text else f"{type(error).__name__}: "
    headline = f"{kind}{text.splitlines()[0] if text else type(error).__name__}"[:_LONGEST_HEADLINE]
    lines = [headline]
    if remote is not None:
        last = remote.traceback.rstrip().splitlines()[-_TRACEBACK_LINES:]
        lines += ["The end of the worker's traceback:", *last]
    elif not isinstance(error, RlhfError) and error.__traceback__ is not None:
        shown = "".join(traceback.format_tb(error.__traceback__)).rstrip().splitlines()[-_TRACEBACK_LINES // 2 :]
        lines += shown
    return "\n".join([*lines, advice])
