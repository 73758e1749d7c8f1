"""The processes behind the roles: which worker lives where, and how a dead one is replaced.

    spare ──assign──► joining ──joined──► ready ──death──► (killed) ──► next spare, attempt + 1

A process hosts one worker, or one of each of several colocated roles. A blank spare (imports done, no role) is kept
ready, since imports are most of what a restart takes; not where each role has pods of its own, whose one place is the
worker's: there a successor is started when its place is free.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.base import Backend, Host, Outcome, Place, Timer
from rlhf_runtime.errors import HostDiedError
from rlhf_runtime.messages import Assignment, Joined
from rlhf_runtime.role import Role
from rlhf_runtime.worker import Worker

_LOOK_AGAIN_SECONDS = 1.0


@dataclass(eq=False, slots=True, kw_only=True)
class WorkerSeat:
    """One worker of a role, whatever process it lives in at the moment."""

    group: RoleGroup
    rank: int
    process: Process
    attempt: int = -1
    ready: bool = False
    joined: Joined | None = None
    since: float = 0.0  # when its present attempt began

    @property
    def name(self) -> str:
        """Such as `critic-worker-003`."""
        return f"{self.group.role.name}-worker-{self.rank:03d}"

    @property
    def pod(self) -> str:
        """Where it is, or was last; empty before it joined for the first time."""
        return self.joined.pod if self.joined else ""

    def forget(self) -> None:
        """No answer to what it was asked is taken any more."""
        self.attempt += 1
        self.ready = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLoss:
    """Deaths until then are meant: they do not count, and this is their reason."""

    until: float
    reason: FailureReason


@dataclass(eq=False, slots=True, kw_only=True)
class Process:
    """A host and the workers in it. `host` is None until the first start.

    `restart_when_free` says that it is to be restarted once the calls that may not be repeated are answered; it gets
    no other calls until then.
    """

    seats: list[WorkerSeat] = field(default_factory=list)
    host: Host | None = None
    down_since: float | None = None
    heard: float = 0.0  # when it last answered a call or became ready
    restart_when_free: Callable[[], None] | None = None

    @property
    def owner(self) -> RoleGroup:
        """The role whose process it is; roles that are colocated with it came later."""
        return self.seats[0].group

    @property
    def place(self) -> Place:
        """Where its host belongs."""
        role = self.owner.role
        return Place(role=role.name, gpus=role.gpus, per_pod=role.per_pod)


@dataclass(eq=False, slots=True, kw_only=True)
class RoleGroup:
    """The workers of one role, and the version of its state that the controller has seen complete.

    `restored` is the version that the run began with. `replicas` is how many workers there should be. Those in `seats`
    are asked; those in `joining` will be once they are ready; those in `leaving` answer what they were asked, and end.
    """

    role: Role
    cls: type
    replicas: int
    shares_parts: bool = False  # whether a method of its class is cut in parts for whoever is free
    seats: list[WorkerSeat] = field(default_factory=list)
    joining: list[WorkerSeat] = field(default_factory=list)
    leaving: list[WorkerSeat] = field(default_factory=list)
    last_attempts: dict[int, int] = field(default_factory=dict)  # of ranks that have left
    version: int = 0
    restored: int = 0
    written: dict[int, int] = field(default_factory=dict)  # the version that each iteration's last write made
    restarts: int = 0
    uncounted_restarts: int = 0
    last_recovery_ms: int | None = None
    expected_loss: ExpectedLoss | None = None
    failed: BaseException | None = None
    meeting_place: str = ""  # of the present attempt, where its ranks form a process group
    waiting_to_meet: list[Callable[[], None]] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether every worker can be called."""
        return all(seat.ready for seat in self.seats)

    @property
    def meets(self) -> bool:
        """Whether its ranks must come together before any of them is of use."""
        return self.role.process_group and len(self.seats) > 1

    def part(self) -> None:
        """Its ranks are about to be replaced: the next ones meet elsewhere."""
        self.meeting_place = ""
        self.waiting_to_meet = []

    @property
    def everyone(self) -> list[WorkerSeat]:
        """Also those who are on their way in or out."""
        return [*self.seats, *self.joining, *self.leaving]

    def find(self, rank: int) -> WorkerSeat | None:
        """Who answers calls as `rank`; None if that worker has left."""
        return next((seat for seat in (*self.seats, *self.leaving) if seat.rank == rank), None)

    def seat(self, rank: int) -> WorkerSeat:
        """Who answers calls as `rank`; a call was sent there, so it has not left."""
        seat = self.find(rank)
        assert seat is not None, f"{self.role.name} has no worker {rank}"
        return seat

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
        preload: Tells what a spare imports, which may become any role.
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
        preload: Callable[[], Sequence[str]],
        assign: Callable[[WorkerSeat], Assignment],
        on_joined: Callable[[WorkerSeat], None],
        on_failed: Callable[[WorkerSeat, BaseException], None],
        guard: Callable[[Callable[[Outcome], None]], Callable[[Outcome], None]],
    ) -> None:
        self._backend = backend
        self._wanted = spares
        self._preload = preload
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
        process.restart_when_free = None
        process.host = self._spares.pop(0) if self._spares else self._new_host(process.place)
        for seat in process.seats:
            self._seat(seat, process.host)

    def join(self, seat: WorkerSeat) -> None:
        """Seat one more worker in a process that has a host."""
        assert seat.process.host is not None
        self._seat(seat, seat.process.host)

    def end(self, process: Process) -> None:
        """End a process for good."""
        if process.host is not None:
            self._backend.kill(process.host)
            process.host = None

    def fill_spares(self) -> None:
        """Start blank processes until as many wait as should; call it when nothing is urgent."""
        while len(self._spares) < self._wanted and not self._backend.pins_places:
            host = self._new_host(None, preload=self._preload())
            self._spares.append(host)
            self._backend.submit(host, "ping", (), (), self._guard(functools.partial(self._spare_news, host)))

    def lacks_pod(self, process: Process) -> bool:
        """Whether fewer pods are there than the role's processes need, so that this one may not be placed yet."""
        place = process.place
        pods = self._backend.pods_of(place.role)
        return pods is not None and len(pods) * place.per_pod < len(process.owner.everyone)

    def _new_host(self, place: Place | None, *, preload: Sequence[str] | None = None) -> Host:
        self._started += 1
        return self._backend.start_host(f"role-process-{self._started}", preload=preload, place=place)

    def _spare_news(self, host: Host, outcome: Outcome) -> None:
        if isinstance(outcome.error, HostDiedError) and host in self._spares:
            self._spares.remove(host)

    def _seat(self, seat: WorkerSeat, host: Host) -> None:
        seat.attempt += 1
        seat.ready = False
        seat.since = self._backend.now()
        attempt = seat.attempt
        limit: list[Timer] = []

        def joined(outcome: Outcome) -> None:
            limit[-1].cancel()
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

        def set_limit(_: Outcome) -> None:
            """The time in which there is no pod for it does not count: that wait is the operator's to end."""
            if seat.attempt != attempt or seat.ready:
                return
            if self.lacks_pod(seat.process):
                timer = self._backend.call_later(_LOOK_AGAIN_SECONDS, lambda: self._guard(set_limit)(Outcome()))
            else:
                timer = self._backend.call_later(seconds, lambda: self._guard(joined)(Outcome(error=late)))
            limit.append(timer)

        def assign() -> None:
            if seat.attempt == attempt and not seat.ready:
                self._backend.submit(host, "assign", (self._assign(seat),), (), self._guard(joined))

        set_limit(Outcome())
        if not seat.group.meets:
            assign()
        elif seat.rank == 0:
            self._open_meeting(seat.group, host, assign, joined)
        elif seat.group.meeting_place:
            assign()
        else:
            seat.group.waiting_to_meet.append(assign)

    def _open_meeting(
        self, group: RoleGroup, host: Host, assign: Callable[[], None], failed: Callable[[Outcome], None]
    ) -> None:
        """Rank 0's process says where the ranks meet; then all are told."""
        waiting = group.waiting_to_meet  # of this attempt

        def opened(outcome: Outcome) -> None:
            if waiting is not group.waiting_to_meet:
                return
            if outcome.error is not None:
                failed(outcome)
                return
            group.meeting_place = outcome.value
            for each in (assign, *waiting):
                each()

        self._backend.submit(host, "open_meeting", (), (), self._guard(opened))


def slow_imports(groups: Mapping[str, RoleGroup]) -> Sequence[str]:
    """What a process that may become any of these roles should import beforehand.

    Of the modules of worker classes only ours: another's may do anything when it is imported.
    """
    classes = {group.cls for group in groups.values()}
    ours = {cls.__module__ for cls in classes if cls.__module__.startswith(f"{__package__.partition('.')[0]}.")}
    late = {name for cls in classes if issubclass(cls, Worker) for name in cls.imports}
    return sorted(late) + sorted(ours)


def processes_for(role: Role, groups: Mapping[str, RoleGroup]) -> Sequence[Process]:
    """A process for each of the role's workers: new ones, or those of the role that it shares with.

    Raises:
        ValueError: `colocate_with` names no role registered before, or one of another size.
    """
    if role.colocate_with is None:
        return [Process() for _ in range(role.replicas)]
    if role.colocate_with not in groups:
        raise ValueError(f'`colocate_with` of role "{role.name}" names no registered role: "{role.colocate_with}"')
    seats = groups[role.colocate_with].seats
    if len(seats) != role.replicas:
        raise ValueError(f'role "{role.name}" must have as many replicas as "{role.colocate_with}" ({len(seats)})')
    return [seat.process for seat in seats]
