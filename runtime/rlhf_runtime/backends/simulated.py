"""Virtual time and scripted faults: a whole fault matrix in milliseconds.

Hosts are objects that run the very code that a role process runs (`WorkerHost`); only time and death are simulated.
An operation takes as long as the script says, and happens at its end, so that one that dies half way has left exactly
the traces that a real one would have: a log entry, perhaps, but no answer.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.base import Backend, BufferRef, Host, OnDone, Outcome, Place
from rlhf_runtime.errors import BufferLostError, HostDiedError
from rlhf_runtime.host import WorkerHost
from rlhf_runtime.messages import Assignment, CallRequest, Reply
from rlhf_runtime.resilience.state_store import MemoryStateStore


@dataclass(slots=True, kw_only=True)
class Fault:
    """One scripted fault.

    Attributes:
        role: Whose process it hits.
        method: During which method.
        at: "received" (nothing done yet), "logged" (inputs durable, weights as before), "applied" (weights changed,
            not answered; these two only in a write) or "answered" (the answer is out).
        call: At which call of that method, from 1; the calls of a replacement count on.
        kind: "die" (what it answered before stays readable, as in the shared memory of its node), "hang" (never
            answers again) or "lose" (die, and every buffer that the host made is lost with its node).
    """

    role: str
    method: str
    at: str = "received"
    call: int = 1
    kind: str = "die"
    seen: int = 0


class _SimulatedDeath(BaseException):
    """Unwinds a host's stack as if the process were gone; no `except Exception` may catch it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(eq=False, kw_only=True)
class SimulatedHost(Host):
    """A host in virtual time. `pid` stands for the process."""

    name: str
    pid: int
    worker_host: WorkerHost = field(repr=False)
    roles: list[str] = field(default_factory=list)
    alive: bool = True
    hung: bool = False
    buffers_lost: bool = False
    free_at: float = 0.0
    waiting: list[OnDone] = field(default_factory=list, repr=False)


@dataclass(eq=False, frozen=True, slots=True)
class SimulatedBuffer:
    """A buffer and the host that holds it (None: the controller)."""

    host: SimulatedHost | None
    data: np.ndarray


class SimulatedBackend(Backend):
    """Runs hosts in virtual time.

    Args:
        durations: Seconds that a method takes, by "role.method", or "role-worker-001.method" for one worker that
            differs; a missing one takes no time.
        faults: What goes wrong.
        start_seconds: From a blank host's start until it can be assigned.
        buffers_outlive_hosts: What the engine is told; with "lose" faults it must be False.
        stores: State stores by location, shared by the hosts and the test.
    """

    name = "simulated"
    threaded = False

    def __init__(
        self,
        *,
        durations: Mapping[str, float] | None = None,
        faults: Sequence[Fault] = (),
        start_seconds: float = 0.0,
        buffers_outlive_hosts: bool = True,
        stores: dict[str, MemoryStateStore] | None = None,
    ) -> None:
        super().__init__()
        self.buffers_outlive_hosts = buffers_outlive_hosts
        if buffers_outlive_hosts and any(fault.kind == "lose" for fault in faults):
            raise ValueError('a fault of kind "lose" needs `buffers_outlive_hosts=False`')
        self.stores = {} if stores is None else stores
        self.timeline: list[tuple[str, float, float]] = []
        self.hosts: list[SimulatedHost] = []
        self._durations = durations or {}
        self._faults = list(faults)
        self._start_seconds = start_seconds
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def start_host(
        self, name: str, *, preload: Sequence[str] | None = None, place: Place | None = None
    ) -> SimulatedHost:
        """Begin to start a blank host."""
        host = SimulatedHost(
            name=name,
            pid=1000 + len(self.hosts),
            worker_host=WorkerHost(
                open_store=self.open_store,
                at_point=lambda point, request: self._at_point(host, point, request),
                clock=self.now,
            ),
        )
        host.free_at = self._now + self._start_seconds
        self.hosts.append(host)
        return host

    def submit(
        self,
        host: Host,
        operation: str,
        arguments: Sequence[Any],
        buffers: Sequence[BufferRef],
        on_done: OnDone,
    ) -> None:
        """Schedule the operation after those that the host already has."""
        assert isinstance(host, SimulatedHost)
        host.waiting.append(on_done)
        started = max(self._now, host.free_at)
        label, seconds = self._cost(host, operation, arguments)
        host.free_at = started + seconds

        def finish() -> None:
            if host.hung or on_done not in host.waiting:
                return
            if label and host.alive:
                self.timeline.append((label, started, self._now))
            try:
                outcome, afterwards = self._run(host, operation, arguments, buffers)
            except _SimulatedDeath as death:
                self._fall(host, death)
                return
            if isinstance(outcome.value, Reply):
                outcome = replace(outcome, value=replace(outcome.value, started=started, ended=self._now))
            if on_done in host.waiting:
                host.waiting.remove(on_done)
                on_done(outcome)
            if afterwards is not None:
                self._fall(host, afterwards)

        self._at(host.free_at, finish)

    def kill(self, host: Host) -> None:
        """End the host."""
        assert isinstance(host, SimulatedHost)
        host.alive = False
        host.waiting.clear()

    def put(self, buffer: np.ndarray) -> BufferRef:
        """A buffer that the controller holds."""
        return SimulatedBuffer(None, buffer)

    def fetch(self, buffer: BufferRef) -> np.ndarray:
        """The buffer's bytes, unless its host took them along."""
        assert isinstance(buffer, SimulatedBuffer)
        if buffer.host is not None and buffer.host.buffers_lost:
            raise BufferLostError(f"the only copy of a buffer was lost with {buffer.host.name}", buffer=buffer)
        return buffer.data

    def open_store(self, location: str) -> MemoryStateStore:
        """One store for each location, as long as this backend's `stores` live."""
        return self.stores.setdefault(location, MemoryStateStore(location))

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def pump(self, timeout: float) -> bool:
        """Jump to the next event."""
        due = self._next_timer()
        if self._events and (due is None or self._events[0][0] <= due):
            at, _, run = heapq.heappop(self._events)
            self._now = max(self._now, at)
            run()
            return True
        if due is None:
            return False
        self._now = max(self._now, due)
        timer = self._due_timer()
        assert timer is not None
        timer.callback()
        return True

    def close(self) -> None:
        """Drop what has not happened yet."""
        self._events.clear()

    def _at(self, when: float, run: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), run))

    def _cost(self, host: SimulatedHost, operation: str, arguments: Sequence[Any]) -> tuple[str, float]:
        if operation != "call":
            return "", 0.0
        role, method = arguments[0].role, arguments[0].method
        label = f"{role}.{method}"
        own = f"{host.worker_host.worker_name(role)}.{method}"
        return label, self._durations.get(own, self._durations.get(label, 0.0))

    def _run(
        self, host: SimulatedHost, operation: str, arguments: Sequence[Any], buffers: Sequence[BufferRef]
    ) -> tuple[Outcome, _SimulatedDeath | None]:
        """The operation's outcome, and what befalls the host once it is out."""
        if not host.alive:
            return Outcome(error=HostDiedError(f"{host.name} is gone", reason=FailureReason.KILLED)), None
        try:
            if operation == "assign":
                assignment: Assignment = arguments[0]
                host.roles.append(assignment.role)
                return Outcome(value=replace(host.worker_host.assign(assignment), pid=host.pid, pod=self.name)), None
            if operation == "open_meeting":
                return Outcome(value=f"{host.name}:1"), None
            if operation != "call":
                return Outcome(value=getattr(host.worker_host, operation)(*arguments)), None
            data = [None if buffer is None else self.fetch(buffer) for buffer in buffers]
            reply, buffer = host.worker_host.call(arguments[0], data)
            if buffer is not None:
                buffer.flags.writeable = False  # as it would arrive from another process
        except Exception as error:  # whatever a worker raises is the engine's to judge
            return Outcome(error=error), None
        outcome = Outcome(value=reply, buffer=None if buffer is None else SimulatedBuffer(host, buffer))
        try:
            self._at_point(host, "answered", arguments[0])
        except _SimulatedDeath as death:
            return outcome, death
        return outcome, None

    def _fall(self, host: SimulatedHost, death: _SimulatedDeath) -> None:
        if death.kind == "hang":
            host.hung = True
            return
        host.buffers_lost = death.kind == "lose"
        host.alive = False
        gone, host.waiting = host.waiting, []
        error = HostDiedError(f"{host.name} was killed by the script", reason=FailureReason.KILLED)
        for on_done in gone:
            self._at(self._now, functools.partial(on_done, Outcome(error=error)))

    def _at_point(self, host: SimulatedHost, point: str, request: CallRequest) -> None:
        here = [f for f in self._faults if (f.role, f.method, f.at) == (request.role, request.method, point)]
        for fault in here:
            fault.seen += 1
        for fault in here:
            if fault.seen == fault.call:
                raise _SimulatedDeath(fault.kind)
