"""What the engine tells while it works: the DAG's events and the roles' incidents."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_runtime.control.graph import Node
from rlhf_runtime.messages import Reply
from rlhf_runtime.resilience.incidents import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One moment in the life of a node.

    Attributes:
        kind: "ready" (inputs are there), "end" (one worker answered), "failed" or "skipped".
        iteration: Of the node.
        ordinal: Of the node within its iteration.
        role: Called role.
        method: Called method.
        time: When the controller learned of it, wall-clock seconds.
        worker: Which worker answered, for "end".
        place: Its machine and process, for "end".
        started: When the worker's method began by its own clock, for "end".
        ended: When it returned, for "end".
        nbytes: Size of the answer, for "end".
        needs: Ids of the nodes whose outputs it reads.
        message: The error, for "failed" and "skipped".
    """

    kind: str
    iteration: int
    ordinal: int
    role: str
    method: str
    time: float
    worker: str = ""
    place: str = ""
    started: float = 0.0
    ended: float = 0.0
    nbytes: int = 0
    needs: tuple[tuple[int, int], ...] = ()
    message: str = ""


def event_of(
    kind: str,
    node: Node,
    *,
    now: float,
    worker: str = "",
    place: str = "",
    reply: Reply | None = None,
    message: str = "",
) -> Event:
    """The event of a node."""
    return Event(
        kind=kind,
        iteration=node.iteration,
        ordinal=node.ordinal,
        role=node.role,
        method=node.method,
        time=now,
        worker=worker,
        place=place,
        started=reply.started if reply else 0.0,
        ended=reply.ended if reply else 0.0,
        nbytes=reply.nbytes if reply else 0,
        needs=tuple(n.id for n in node.sources),
        message=message,
    )


class Observer:
    """Told of everything that happens; does nothing itself."""

    def event(self, event: Event) -> None:
        """A node became ready, was answered, failed or was skipped."""

    def incident(self, incident: Incident) -> None:
        """A worker died, hung or raised, and is being replaced."""

    def recovered(self, role: str, worker: str, seconds: float) -> None:
        """A replaced worker is ready again, `seconds` after its failure was noticed."""
