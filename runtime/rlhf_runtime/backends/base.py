"""Where role processes live: the small interface that the engine needs of a backend.

A backend starts blank hosts, carries requests to them, and holds the buffers that they answer with. All its news
arrive as callbacks made inside `pump`, so the engine above needs no thread of its own to be correct.

| backend      | a host is              | time    | for |
|---|---|---|---|
| `ray`        | a process (Ray actor)  | real    | training |
| `in-process` | an object              | real    | `breakpoint()`, tests, all roles in one process |
| `simulated`  | an object              | virtual | fault matrices and schedules in milliseconds |
"""

from __future__ import annotations

import heapq
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlhf_runtime.resilience.state_store import StateStore, open_state_store

BufferRef = Any
"""Opaque: a buffer as the backend knows it; None for an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an operation on a host ended: a value and perhaps a buffer, or an error."""

    value: Any = None
    buffer: BufferRef = None
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True, order=True)
class Timer:
    """A callback at a time; `cancel` it when it is not wanted any more."""

    due: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """The callback will not be called."""
        self.cancelled = True


OnDone = Callable[[Outcome], None]


class Host(ABC):
    """A role process as its backend knows it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a host belongs.

    Attributes:
        role: In a pod of this role; a role that is colocated with it is in the same host.
        gpus: How many of the pod's GPUs it uses.
        per_pod: How many hosts of the role share a pod.
    """

    role: str
    gpus: int = 0
    per_pod: int = 1


class Backend(ABC):
    """Starts hosts and talks to them.

    Attributes:
        threaded: True when `pump` must be called by a thread of the engine's; False when whoever waits pumps.
        buffers_outlive_hosts: True when a buffer survives the death of the host that made it.
        pins_places: True when a host stays where it was started, so that one without a place is of use to nobody.
    """

    name: str
    threaded: bool
    buffers_outlive_hosts: bool
    pins_places: bool = False

    def __init__(self) -> None:
        self._timers: list[Timer] = []
        self._timer_ids = itertools.count()
        self._timers_lock = threading.Lock()  # the caller's thread sets timers while another pumps

    @abstractmethod
    def start_host(self, name: str, *, preload: Sequence[str] | None = None, place: Place | None = None) -> Host:
        """Begin to start a blank host; does not wait for it, nor for a place to be free.

        Args:
            name: For messages.
            preload: Of a spare, what it imports before it is needed, without slowing down anybody; None: needed now.
            place: Where it belongs; a backend that does not pin places starts it anywhere.
        """

    @abstractmethod
    def submit(
        self,
        host: Host,
        operation: str,
        arguments: Sequence[Any],
        buffers: Sequence[BufferRef],
        on_done: OnDone,
    ) -> None:
        """Call `WorkerHost.operation` on `host`; `on_done` is called once, inside `pump`.

        Operations on one host run one after the other. A host that dies answers with `HostDiedError`.
        """

    @abstractmethod
    def kill(self, host: Host) -> None:
        """End `host` at once; what it was doing answers with `HostDiedError` or not at all."""

    @abstractmethod
    def put(self, buffer: np.ndarray) -> BufferRef:
        """Give a buffer of the controller's to the hosts."""

    @abstractmethod
    def fetch(self, buffer: BufferRef) -> np.ndarray:
        """Bring a buffer to the controller.

        Raises:
            BufferLostError: Its only copy is gone.
        """

    @abstractmethod
    def now(self) -> float:
        """Wall-clock seconds, virtual where time is."""

    @abstractmethod
    def pump(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for news and deliver them; False when there were none."""

    @abstractmethod
    def close(self) -> None:
        """End every host."""

    def gpus(self) -> int | None:
        """How many GPUs the hosts have between them; None: as many as are asked for."""
        return None

    def pods_of(self, role: str) -> list[str] | None:
        """The pods where hosts of this role can be; None: anywhere. Never waits; may be a second old."""
        return None

    def open_store(self, location: str) -> StateStore:
        """The state store at `location`, as the hosts see it."""
        return open_state_store(location)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` inside a `pump` about `delay` seconds from now, unless cancelled."""
        timer = Timer(due=self.now() + delay, order=next(self._timer_ids), callback=callback)
        with self._timers_lock:
            heapq.heappush(self._timers, timer)
        return timer

    def _due_timer(self) -> Timer | None:
        with self._timers_lock:
            due = self._first_due()
            return heapq.heappop(self._timers) if due is not None and due <= self.now() else None

    def _next_timer(self) -> float | None:
        with self._timers_lock:
            return self._first_due()

    def _first_due(self) -> float | None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due if self._timers else None
