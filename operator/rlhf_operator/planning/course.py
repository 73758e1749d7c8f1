"""What a part of planning decided; the parts are put together in `reconcile`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from rlhf_api.ending import Ending
from rlhf_api.enums import ConditionType
from rlhf_api.reasons import ConditionReason
from rlhf_operator.planning.plan import Call, Delete, Event, Manifest
from rlhf_operator.planning.trouble import Trouble


class Stage(Enum):
    """Where in its life a job is."""

    FINISHED = auto()
    SUSPENDING = auto()
    SUSPENDED = auto()
    REFUSED = auto()
    """Nothing can be made for it as it is."""
    HELD = auto()
    """Freed at the start deadline; tried again later."""
    WORKING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a job ended for good.

    Attributes:
        type: Complete or Failed.
        reason: The condition's reason.
        message: The cause and, for a failure, what to do.
    """

    type: ConditionType
    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is to be done, and why.

    Attributes:
        stage: Where in its life the job is.
        calls: To the controller.
        deletes: Objects to delete.
        applies: Objects to apply.
        events: What is told beside what the conditions tell.
        wake_in: Seconds until something is due that no watch tells of.
        verdict: How the job ended, when that was found just now.
        ending: The last words of the controller's pod that ended last.
        refusal: Why nothing is made.
        retry_at: Until when a job is held.
        lost_head: Whether pods are being replaced because they had joined a head that is gone.
        delete_job: Whether the job itself is to go.
    """

    stage: Stage
    calls: Sequence[Call] = ()
    deletes: Sequence[Delete] = ()
    applies: Sequence[Manifest] = ()
    events: Sequence[Event] = ()
    wake_in: float | None = None
    verdict: Verdict | None = None
    ending: Ending | None = None
    refusal: Trouble | None = None
    retry_at: datetime | None = None
    lost_head: bool = False
    delete_job: bool = False
