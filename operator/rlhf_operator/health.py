"""Whether this process does its work, as the probes are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlhf_operator.kube.audit import Audit
from rlhf_operator.kube.kinds import Kind
from rlhf_operator.worker import Workers


@dataclass(slots=True, kw_only=True)
class Health:
    """Answers the probes.

    An API server that does not answer is no reason to end: a new process would not reach it either.

    Attributes:
        workers: The workers.
        audit: Knows of deaf watches.
        kinds: What is watched now.
        started: Whether this process has found all it needs.
        leading: Whether this replica works.
        stuck_seconds: A look or a wait that is longer means that work has stopped.
        deaf_seconds: A watch that lacks something for longer is deaf.
    """

    workers: Workers
    audit: Audit
    kinds: Callable[[], Sequence[Kind]]
    started: Callable[[], bool]
    leading: Callable[[], bool]
    stuck_seconds: float
    deaf_seconds: float

    def not_alive(self) -> list[str]:
        """Why this process should be ended; nothing when it works or stands by."""
        wrong = []
        if (look := self.workers.longest_look()) > self.stuck_seconds:
            wrong.append(f"a look at a job has taken {look:.0f} s, more than {self.stuck_seconds:g} s")
        if (wait := self.workers.longest_wait()) > self.stuck_seconds:
            wrong.append(f"a job has waited {wait:.0f} s for its look, more than {self.stuck_seconds:g} s")
        for kind in self.audit.deaf(self.kinds(), since=self.deaf_seconds):
            wrong.append(f"the watch of {kind.plural} has not brought all changes for {self.deaf_seconds:g} s")
        return wrong

    def not_ready(self) -> list[str]:
        """What this replica waits for; nothing when it works or stands by."""
        if not self.started():
            return ["the API server does not answer yet"]
        if not self.leading():
            return []
        if not self.kinds():
            return ["the watches have not begun"]
        missing = [kind.plural for kind in self.kinds() if kind not in self.audit.agreed_once]
        return [f"not listed yet: {', '.join(missing)}"] if missing else []
