"""One look at a job: observe, plan, apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlhf_api.formats import format_time
from rlhf_api.reasons import ConditionReason
from rlhf_operator.config import Settings
from rlhf_operator.control.client import ControlError
from rlhf_operator.kube.errors import ApiError
from rlhf_operator.kube.events import Events
from rlhf_operator.kube.execute import Executor, IncompleteError
from rlhf_operator.kube.gather import Gatherer, UnreadableJobError
from rlhf_operator.kube.store import JobKey
from rlhf_operator.planning.plan import Event, Plan
from rlhf_operator.planning.snapshot import Snapshot
from rlhf_operator.telemetry.logging import log
from rlhf_operator.telemetry.metrics import Metrics

Planner = Callable[[Snapshot, Settings], Plan]


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Looks at jobs.

    Attributes:
        gatherer: Observes.
        planner: Plans.
        executor: Applies.
        events: Tells of a job that cannot be read.
        settings: The operator's.
        metrics: Gets the time that a look took, and errors.
        clock: Of this process, seconds.
    """

    gatherer: Gatherer
    planner: Planner
    executor: Executor
    events: Events
    settings: Settings
    metrics: Metrics
    clock: Callable[[], float]

    async def look(self, key: JobKey) -> float | None:
        """Look at a job once.

        Returns:
            The seconds until it is to be looked at again; None: it does not exist any more.
        """
        started = self.clock()
        try:
            snapshot = await self.gatherer.gather(key)
        except UnreadableJobError as error:
            await self._refuse(key, error)
            return self.settings.resync_seconds
        if snapshot is None:
            await self.executor.forget(key)
            return None
        plan = self.planner(snapshot, self.settings)
        refused = await self.executor.execute(plan, snapshot)
        self.metrics.reconciled(self.clock() - started)
        if refused:
            self.failed(key, IncompleteError(refused))
            return 0.0  # to say so on the job
        due = (self.settings.resync_seconds, plan.wake_in, self.gatherer.refusals.due_in(key))
        return max(min(seconds for seconds in due if seconds is not None), 0.0)

    def failed(self, key: JobKey, error: Exception) -> None:
        """Say in one line what went wrong with a job; a traceback only for what nobody foresaw."""
        foreseen = isinstance(error, ApiError | ControlError | IncompleteError)
        found = getattr(error, "kinds", None) or (getattr(error, "kind", None) or type(error).__name__,)
        for kind in found:
            self.metrics.error(kind)
        log(str(error), job=key, level="error", exception=None if foreseen else error)

    async def _refuse(self, key: JobKey, error: UnreadableJobError) -> None:
        """Say on the object that its manifest is not understood.

        A job that another version of the operator has begun is left as it is: that version may come back.
        """
        message = f"This version of the operator does not understand the manifest: {error}"
        await self.events.tell(
            error.living,
            Event(type="Warning", reason=ConditionReason.INVALID_SPEC, message=message, key=f"invalid/{error}"),
        )
        known = (error.living.get("status") or {}).get("conditions") or []
        ours = [condition for condition in known if condition.get("reason") == ConditionReason.INVALID_SPEC]
        if known and not ours:
            return
        await self.executor.write_status(key, _refused(error.living, message, since=_since(ours) or self._now()))

    def _now(self) -> str:
        return format_time(self.gatherer.now())


def _since(conditions: list[Any]) -> str:
    return str(conditions[0].get("lastTransitionTime", "")) if conditions else ""


def _refused(living: Mapping[str, Any], message: str, *, since: str) -> dict[str, Any]:
    generation = living["metadata"].get("generation")
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": str(ConditionReason.INVALID_SPEC),
        "message": message[:32768],
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
    return {"conditions": [condition], "summary": "Failed", "observedGeneration": generation}
