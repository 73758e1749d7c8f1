"""Each error ends the controller with the right outcome, reason and advice."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass

import pytest
import ray.exceptions

from rlhf_api.ending import MAX_BYTES, Ending, EndingOutcome
from rlhf_api.reasons import ConditionReason
from rlhf_runtime.errors import (
    DeadlockError,
    EpochFencedError,
    HostDiedError,
    RemoteError,
    RlhfError,
    RoleExhaustedError,
    StateCorruptError,
    StateStoreError,
    StateStoreFullError,
    StepError,
    WorkerClassError,
)
from rlhf_runtime.executor import import_object
from rlhf_runtime.job.prepare import UnsupportedError
from rlhf_runtime.job.run_folder import RunFolderError
from rlhf_runtime.models.loading import ModelNotFoundError
from rlhf_runtime.service.board import Board
from rlhf_runtime.service.cluster import ClusterUnreachableError
from rlhf_runtime.service.endings import judge_error
from rlhf_runtime.tasks.files import TaskFileError

COMPLETE, FAILED, INTERRUPTED = EndingOutcome.COMPLETE, EndingOutcome.FAILED, EndingOutcome.INTERRUPTED
R = ConditionReason


def caused(error: BaseException, *causes: BaseException) -> BaseException:
    """`error from cause from cause ...`"""
    last = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


def remote(kind: str, text: str, *, poisoned: bool = False) -> RemoteError:
    trace = f'Traceback (most recent call last):\n  File "judge.py", line 3, in reward\n{kind}: {text}'
    return RemoteError(kind=kind, text=text, traceback=trace, poisoned=poisoned)


def import_error() -> WorkerClassError:
    with pytest.raises(WorkerClassError) as raised:
        import_object("no_such_package.workers:Judge", what='worker class of role "reward"')
    return raised.value


@dataclass
class Case:
    id: str
    error: BaseException
    want: tuple[EndingOutcome, ConditionReason]
    says: str
    training: bool = True
    seen_before: bool = False


CASES = [
    Case(
        "a role's restarts are used up",
        caused(
            StepError("step 4.1 critic.compute_values failed"),
            RoleExhaustedError('role "critic" has used up its `maxRestarts` (2); the last cause: ended by SIGKILL'),
        ),
        (FAILED, R.RESTARTS_EXHAUSTED),
        "maxRestarts",
    ),
    Case(
        "a worker class cannot be imported",
        import_error(),
        (FAILED, R.WORKER_IMPORT_FAILED),
        "ModuleNotFoundError: No module named 'no_such_package'",
        training=False,
    ),
    Case(
        "a worker's constructor imports what the image does not have",
        caused(
            StepError('role "reward" could not be started'),
            RlhfError("reward-worker-000"),
            remote("ModuleNotFoundError", "No module named 'xgboost'"),
        ),
        (FAILED, R.WORKER_IMPORT_FAILED),
        "ModuleNotFoundError: No module named 'xgboost'",
        training=False,
    ),
    Case(
        "the same exception came twice in a write",
        caused(StepError("step 4.4 actor.update failed"), remote("ValueError", "bad shape", poisoned=True)),
        (FAILED, R.REPEATED_EXCEPTION),
        "The same exception came twice at the same step.",
    ),
    Case(
        "CUDA out of memory twice in a read",
        caused(StepError("step 4.2 actor.generate failed"), remote("OutOfMemoryError", "CUDA out of memory")),
        (FAILED, R.REPEATED_EXCEPTION),
        "OutOfMemoryError: CUDA out of memory",
    ),
    Case(
        "a reward function raises, which is not tried again",
        caused(StepError("step 4.2 reward.compute_scores failed"), remote("RewardFunctionError", "the judge is out")),
        (FAILED, R.WORKER_EXCEPTION),
        "RewardFunctionError: the judge is out",
    ),
    Case(
        "a model that is not there",
        ModelNotFoundError('`spec.model.path`: there is no folder "nowhere"'),
        (FAILED, R.INVALID_SPEC),
        '`spec.model.path`: there is no folder "nowhere"',
        training=False,
    ),
    Case("a data file that is not there", TaskFileError("train.jsonl"), (FAILED, R.INVALID_SPEC), "train.jsonl", False),
    Case("what is not supported", UnsupportedError("`spec.x` must be y"), (FAILED, R.INVALID_SPEC), "must be y", False),
    Case(
        "the run of another manifest",
        RunFolderError('"/rlhf/state/tiny" holds a run of another manifest'),
        (FAILED, R.INVALID_SPEC),
        "another manifest",
        training=False,
    ),
    Case(
        "a run folder that cannot be written",
        caused(RunFolderError('"/rlhf/state/tiny" cannot be written'), PermissionError(errno.EACCES, "denied")),
        (FAILED, R.STATE_UNREACHABLE),
        "`spec.state.location` must be reachable",
        training=False,
    ),
    Case(
        "state that cannot be opened",
        StateStoreError('the state store at "s3://nowhere" failed'),
        (FAILED, R.STATE_UNREACHABLE),
        "`spec.state.location` must be reachable",
        training=False,
    ),
    Case(
        "state that stops answering while training",
        StateStoreError('the state store at "s3://bucket" failed'),
        (INTERRUPTED, R.STATE_UNREACHABLE),
        "The next controller tries again.",
    ),
    Case("full state", StateStoreFullError("no space is left"), (FAILED, R.STATE_UNREACHABLE), "Make room"),
    Case(
        "full state met by a worker",
        caused(StepError("step 3.9 actor"), remote("StateStoreFullError", "no space is left")),
        (FAILED, R.STATE_UNREACHABLE),
        "Make room",
    ),
    Case("a full disk", OSError(errno.ENOSPC, "No space left"), (FAILED, R.STATE_UNREACHABLE), "Make room"),
    Case("damaged state", StateCorruptError("it is torn"), (FAILED, R.STATE_UNREACHABLE), "Restore"),
    Case(
        "a newer controller",
        EpochFencedError("a controller of epoch 3 has taken over"),
        (INTERRUPTED, R.CONTROLLER_LOST),
        "A newer controller has taken over",
    ),
    Case(
        "Ray's head cannot be reached",
        ClusterUnreachableError("could not be joined within 600 s"),
        (INTERRUPTED, R.HEAD_LOST),
        "joins the cluster anew",
        training=False,
    ),
    Case(
        "Ray's head is lost on the way",
        caused(RlhfError("the engine stopped"), ray.exceptions.RaySystemError("GCS is gone")),
        (INTERRUPTED, R.HEAD_LOST),
        "joins the cluster anew",
    ),
    Case("a deadlock", DeadlockError("nothing can start"), (FAILED, R.CONTROLLER_FAILED), "whole story"),
    Case("a bug", KeyError("reward"), (INTERRUPTED, R.CONTROLLER_LOST), "KeyError: 'reward'"),
    Case(
        "the same bug in the next pod",
        KeyError("reward"),
        (FAILED, R.REPEATED_EXCEPTION),
        "KeyError: 'reward'",
        seen_before=True,
    ),
    Case("the controller's own memory", MemoryError(), (INTERRUPTED, R.CONTROLLER_LOST), "MemoryError"),
    Case(
        "a lost process that the engine could not replace",
        caused(StepError("step 1.1"), RoleExhaustedError('role "actor" has used up'), HostDiedError("gone")),
        (FAILED, R.RESTARTS_EXHAUSTED),
        "step 1.1",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_outcome_the_reason_and_the_cause(case: Case) -> None:
    judgement = judge_error(case.error, training=case.training, seen_before=case.seen_before)
    assert (judgement.outcome, judgement.reason) == case.want
    assert case.says in judgement.message
    assert judgement.exit_code == {COMPLETE: 0, FAILED: 3, INTERRUPTED: 1}[judgement.outcome]
    advice = judgement.message.splitlines()[-1]
    assert len(judgement.message.splitlines()) >= 2 and advice.endswith(".") and advice not in str(case.error)


def test_a_long_traceback_leaves_room_for_the_role_the_last_line_and_the_advice() -> None:
    error = remote("ValueError", "the end of it")
    error.traceback = "\n".join(f'  File "deep.py", line {line}, in f' + "x" * 100 for line in range(500))
    error.traceback += "\nValueError: the end of it"
    judgement = judge_error(caused(StepError("step 4.2 reward.compute_scores failed"), error), training=True)
    ending = Board().ending(judgement.outcome, judgement.reason, judgement.message)
    assert len(ending.encode().encode()) <= MAX_BYTES
    read = Ending.decode(ending.encode())
    assert read is not None
    assert "ValueError: the end of it" in read.message
    assert read.message.endswith(judgement.message.splitlines()[-1])
    assert json.loads(ending.encode())["reason"] == "WorkerException"
