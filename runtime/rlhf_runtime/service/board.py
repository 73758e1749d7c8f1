"""What is known of the run at this moment: one place that the run's threads write and JobControl reads.

Deaths are counted over all sessions of the run, from what earlier ones left in its folder; an incident has the same id
for ever, so that nobody counts it twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rlhf_api.ending import Ending, EndingOutcome, RoleEnding
from rlhf_api.formats import decimal, format_time
from rlhf_api.job_control import messages
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import RLHFJob
from rlhf_api.types.status import Progress

INCIDENTS_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleState:
    """A role's workers as they are now."""

    name: str
    desired: int = 0
    ready: int = 0
    class_name: str = ""
    training_engine: str = ""
    rollout_engine: str = ""
    last_recovery_milliseconds: int | None = None


class Board:
    """See the module; every method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._news = threading.Condition(threading.RLock())
        self._changes = 0
        self._phase: messages.Phase = messages.PREPARING
        self._message = "The controller starts."
        self._epoch = 0
        self._roles: dict[str, RoleState] = {}
        self._counted: Counter[str] = Counter()
        self._uncounted: Counter[str] = Counter()
        self._incidents: deque[messages.Incident] = deque(maxlen=INCIDENTS_KEPT)
        self._known: set[str] = set()
        self._step = self._total = 0
        self._reward: float | None = None
        self._evaluation: float | None = None
        self._snapshot_step: int | None = None
        self._started: float | None = None
        self._useful_seconds = 0.0
        self._changed_at = clock()

    # ---- what the run tells

    def begin(self, job: RLHFJob) -> None:
        """The job is known."""
        with self._news:
            self._total = job.spec.algorithm.total_steps
            self._roles = {role.name: RoleState(name=role.name, desired=role.replicas) for role in job.spec.roles}
            self._change()

    def tell(self, phase: messages.Phase, message: str) -> None:
        """What the run does, and for people what it waits for; while it stops nothing else is news."""
        with self._news:
            if (phase, message) != (self._phase, self._message) and self._phase != messages.STOPPING:
                self._phase, self._message = phase, message
                self._change()

    def taken_over(
        self, epoch: int, lines: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]
    ) -> None:
        """The run's epoch, and what earlier sessions left."""
        with self._news:
            self._epoch = epoch
            for line in lines:
                self._take_line(line)
            for incident in incidents:
                self._take_incident(incident, step=int(incident.get("iteration", 0)) + 1)
            self._change()

    def step(
        self, step: int, *, metrics: Mapping[str, float], evaluation: Mapping[str, float], ended: float, seconds: float
    ) -> None:
        """A step is committed, or an evaluation done."""
        line = {"step": step, "time": ended, **metrics, **evaluation}
        with self._news:
            self._take_line(line if evaluation else {**line, "seconds": seconds})
            self._change()

    def snapshot(self, step: int) -> None:
        """A snapshot after `step` is whole."""
        with self._news:
            self._snapshot_step = step
            self._change()

    def incident(self, incident: Mapping[str, Any]) -> None:
        """A worker died; `incident` has the fields of `rlhf_runtime.resilience.incidents.Incident`."""
        with self._news:
            self._take_incident(incident, step=self._step + 1)
            self._change()

    def role(self, state: RoleState) -> None:
        """How a role is now."""
        with self._news:
            if self._roles.get(state.name) != state:
                self._roles[state.name] = state
                self._change()

    # ---- what others read

    @property
    def phase(self) -> messages.Phase:
        """What the run does."""
        return self._phase

    @property
    def last_step(self) -> int:
        """How many steps are committed."""
        return self._step

    @property
    def restarts(self) -> dict[str, int]:
        """The counted deaths of each role that had some."""
        with self._news:
            return {name: self._counted[name] for name in self._roles if self._counted[name]}

    @property
    def idle_seconds(self) -> float:
        """How long nothing has changed."""
        return self._clock() - self._changed_at

    def report(self) -> messages.Report:
        """All of it, for the operator."""
        with self._news:
            return messages.Report(
                epoch=self._epoch,
                phase=self._phase,
                message=self._message,
                progress=messages.Progress(
                    step=self._step,
                    total_steps=self._total,
                    reward=self._reward,
                    evaluation=self._evaluation,
                    snapshot_step=self._snapshot_step,
                    started=self._started,
                    effective_training_time_ratio=self._ratio(),
                ),
                roles=[
                    messages.RoleReport(
                        name=role.name,
                        desired=role.desired,
                        ready=role.ready,
                        restarts=self._counted[role.name],
                        uncounted_restarts=self._uncounted[role.name],
                        class_name=role.class_name,
                        training_engine=role.training_engine,
                        rollout_engine=role.rollout_engine,
                        last_recovery_milliseconds=role.last_recovery_milliseconds,
                    )
                    for role in self._roles.values()
                ],
                incidents=list(self._incidents),
                time=self._clock(),
            )

    def ending(self, outcome: EndingOutcome, reason: ConditionReason, message: str) -> Ending:
        """How this process ended, with the last numbers."""
        with self._news:
            progress = Progress(
                step=self._step,
                total_steps=self._total,
                reward=decimal(self._reward),
                evaluation=decimal(self._evaluation),
                snapshot_step=self._snapshot_step,
                effective_training_time_ratio=decimal(self._ratio()),
                time=format_time(datetime.fromtimestamp(self._clock(), UTC)),
            )
            roles = tuple(
                RoleEnding(name=name, restarts=self._counted[name], uncounted_restarts=self._uncounted[name])
                for name in self._roles
            )
            return Ending(
                outcome=outcome,
                reason=reason,
                message=message,
                epoch=self._epoch,
                progress=progress if self._total else None,
                roles=roles,
            )

    def wait(self, seen: int, *, timeout: float) -> int:
        """Wait until there was a change after number `seen`, or for `timeout` seconds; gives the newest number."""
        with self._news:
            self._news.wait_for(lambda: self._changes != seen, timeout)
            return self._changes

    # ---- within the lock

    def _change(self) -> None:
        self._changes += 1
        self._changed_at = self._clock()
        self._news.notify_all()

    def _take_line(self, line: Mapping[str, Any]) -> None:
        self._reward = line.get("reward", self._reward)
        self._evaluation = line.get("heldout_accuracy", self._evaluation)
        if "seconds" not in line:
            return
        self._step = int(line["step"])
        if line["seconds"] is not None:
            self._useful_seconds += line["seconds"]
            if self._started is None:
                self._started = line["time"] - line["seconds"]

    def _take_incident(self, incident: Mapping[str, Any], *, step: int) -> None:
        identity = f"{incident['worker']}/{incident['attempt']}/{incident.get('epoch', 0)}"
        if identity in self._known:
            return
        self._known.add(identity)
        role, counted = str(incident["role"]), bool(incident.get("counted", True))
        (self._counted if counted else self._uncounted)[role] += 1
        self._incidents.append(
            messages.Incident(
                id=identity,
                role=role,
                worker=incident["worker"],
                rank=int(incident.get("rank", 0)),
                reason=str(incident["reason"]),
                exit_code=incident.get("exit_code"),
                pod=incident.get("pod", ""),
                node=incident.get("node", ""),
                time=float(incident["time"]),
                message=str(incident["message"]),
                step=step,
                counted=counted,
            )
        )

    def _ratio(self) -> float | None:
        if self._started is None:
            return None
        return min(1.0, self._useful_seconds / max(self._clock() - self._started, 1e-9))
