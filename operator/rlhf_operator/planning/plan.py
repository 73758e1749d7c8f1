"""What is to be done about one job: the outcome of planning, carried out by `rlhf_operator.kube.execute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_api.types import RLHFJobStatus

Manifest = dict[str, Any]
"""A Kubernetes object to apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """An object to delete, if it is still the one that was seen; what it owns goes in the background.

    The API server orphans the pods of a batch/v1 Job unless it is asked for `propagationPolicy: Background`.

    Attributes:
        api_version: Such as `v1`.
        kind: Its kind.
        name: Its name, in the job's namespace.
        uid: Precondition: another object of this name is left alone.
        grace_seconds: In place of the object's own grace period; 0 forces a pod's deletion.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Kubernetes event about the job.

    Attributes:
        type: Normal or Warning.
        reason: One CamelCase word.
        message: For people.
        key: Two events of one key are one; the executor tells of each key once for each job object.
    """

    type: str
    reason: str
    message: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRole:
    """Tell the controller how many replicas a role has."""

    role: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectLoss:
    """Tell the controller that pods of a role are about to be replaced on purpose."""

    role: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRole:
    """Tell the controller to restart a role's processes."""

    role: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Tell the controller to snapshot and leave."""


Call = ScaleRole | ExpectLoss | RestartRole | Suspend


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, in this order: calls, deletes, applies, status, events.

    Attributes:
        calls: To the controller. When one fails, the rest of the plan is done and the job is looked at again soon.
        deletes: Objects to delete.
        applies: Objects to apply, server-side, in this order, with our field manager and force. Each carries what
            identifies it, an owner reference to the job, and all that we say about it.
        status: The whole status; None leaves it as it is. Written only when it differs.
        events: To tell of.
        wake_in: Seconds until the job is looked at again when nothing else happens.
        whole: Whether the job works as it should, so that what cannot be watched is most likely there.
        delete_job: Whether the job itself is to be deleted (its time after the end is over).
    """

    calls: Sequence[Call] = ()
    deletes: Sequence[Delete] = ()
    applies: Sequence[Manifest] = ()
    status: RLHFJobStatus | None = None
    events: Sequence[Event] = ()
    wake_in: float | None = None
    whole: bool = True
    delete_job: bool = False
