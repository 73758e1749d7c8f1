"""The processes behind the roles: which worker lives where, and how a dead one is replaced.

    spare ──assign──► joining ──joined──► ready ──death──► (killed) ──► next spare, attempt + 1

A process hosts one worker, or one of each of several colocated roles. A blank spare (imports done, no role) is kept
ready, since imports are most of what a restart takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.base import Backend, Host, Outcome
from rlhf_runtime.errors import HostDiedError
from rlhf_runtime.messages import Assignment, Joined
from rlhf_runtime.role import Role


@dataclass(eq=False, slots=True, kw_only=True)
class WorkerSeat:
    """One worker of a role, whatever process it lives in at the moment."""

    group: RoleGroup
    rank: int
    process: Process
    attempt: int = -1
    ready: bool = False
    joined: Joined | None = None

    @property
    def name(self) -> str:
        """Such as `critic-worker-003`."""
        return f"{self.group.role.name}-worker-{self.rank:03d}"


@dataclass(eq=False, slots=True, kw_only=True)
class Process:
    """A host and the workers in it. `host` is None until the first start."""

    seats: list[WorkerSeat] = field(default_factory=list)
    host: Host | None = None
    down_since: float | None = None
    heard: float = 0.0  # when it last answered a call or became ready


@dataclass(eq=False, slots=True, kw_only=True)
class RoleGroup:
    """The workers of one role, and the version of its state that the controller has seen complete.

    `restored` is the version that the run began with.
    """

    role: Role
    cls: type
    seats: list[WorkerSeat] = field(default_factory=list)
    version: int = 0
    restored: int = 0
    written: dict[int, int] = field(default_factory=dict)  # the version that each iteration's last write made
    restarts: int = 0
    failed: BaseException | None = None

    @property
    def ready(self) -> bool:
        """Whether every worker can be called."""
        return all(seat.ready for seat in self.seats)

    def wrote(self, iteration: int) -> None:
        """A write of this iteration is complete."""
        self.version += 1
        self.written[iteration] = self.version

    def version_after(self, iteration: int) -> int:
        """The version that `iteration` ends with; later ones may have written already."""
        return max((v for i, v in self.written.items() if i <= iteration), default=self.restored)

    def forget_versions(self, *, before: int) -> None:
        """`before` is committed: nobody asks for the versions of earlier iterations any more."""
        self.restored = self.version_after(before)
        self.written = {i: v for i, v in self.written.items() if i >= before}


class ProcessPool:
    """Starts processes and assigns workers to them.

    Args:
        backend: Where the processes live.
        spares: How many blank processes are kept ready.
        assign: Makes the assignment of a seat's next attempt.
        on_joined: Called when a seat is ready.
        on_failed: Called when a seat's assignment failed.
        guard: Wraps the callbacks that the backend makes: lock, wake whoever waits.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        spares: int,
        assign: Callable[[WorkerSeat], Assignment],
        on_joined: Callable[[WorkerSeat], None],
        on_failed: Callable[[WorkerSeat, BaseException], None],
        guard: Callable[[Callable[[Outcome], None]], Callable[[Outcome], None]],
    ) -> None:
        self._backend = backend
        self._wanted = spares
        self._spares: list[Host] = []
        self._assign = assign
        self._on_joined = on_joined
        self._on_failed = on_failed
        self._guard = guard
        self._started = 0

    def start(self, process: Process) -> None:
        """Give `process` a new host and seat its workers there; a host that it had is ended."""
        if process.host is not None:
            self._backend.kill(process.host)
        process.host = self._spares.pop(0) if self._spares else self._new_host()
        for seat in process.seats:
            self._seat(seat, process.host)

    def join(self, seat: WorkerSeat) -> None:
        """Seat one more worker in a process that has a host."""
        assert seat.process.host is not None
        self._seat(seat, seat.process.host)

    def fill_spares(self) -> None:
        """Start blank processes until as many wait as should; call it when nothing is urgent."""
        while len(self._spares) < self._wanted:
            host = self._new_host(in_background=True)
            self._spares.append(host)
            self._backend.submit(host, "ping", (), (), self._guard(functools.partial(self._spare_news, host)))

    def _new_host(self, *, in_background: bool = False) -> Host:
        self._started += 1
        return self._backend.start_host(f"role-process-{self._started}", in_background=in_background)

    def _spare_news(self, host: Host, outcome: Outcome) -> None:
        if isinstance(outcome.error, HostDiedError) and host in self._spares:
            self._spares.remove(host)

    def _seat(self, seat: WorkerSeat, host: Host) -> None:
        seat.attempt += 1
        seat.ready = False
        attempt = seat.attempt

        def joined(outcome: Outcome) -> None:
            limit.cancel()
            if seat.attempt != attempt or seat.ready:
                return
            if outcome.error is not None:
                self._on_failed(seat, outcome.error)
                return
            seat.joined = outcome.value
            seat.ready = True
            self._on_joined(seat)

        seconds = seat.group.role.start_timeout
        late = HostDiedError(
            f"{seat.name} was not ready within `startTimeoutSeconds` ({seconds:g} s)",
            reason=FailureReason.START_TIMEOUT,
        )
        limit = self._backend.call_later(seconds, lambda: self._guard(joined)(Outcome(error=late)))
        self._backend.submit(host, "assign", (self._assign(seat),), (), self._guard(joined))
