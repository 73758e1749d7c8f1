"""Fluent builders for runs of the control flow, in one place.

run = a_run().role("actor", Counter).lasting("actor.update", 2.0).start()
run.step("actor", "update")
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlhf_runtime.backends.base import Backend
from rlhf_runtime.backends.inprocess import InProcessBackend
from rlhf_runtime.backends.simulated import Fault, SimulatedBackend
from rlhf_runtime.control.channels import Channels
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.events import Event, Observer
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.resilience.incidents import Incident
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.role import Role

STATE = "memory:run"


class Recorder(Observer):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.incidents: list[Incident] = []
        self.recoveries: list[tuple[str, str, float]] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def incident(self, incident: Incident) -> None:
        self.incidents.append(incident)

    def recovered(self, role: str, worker: str, seconds: float) -> None:
        self.recoveries.append((role, worker, seconds))


@dataclass
class Run:
    """A controller, and what a test wants to see of it."""

    controller: Controller
    backend: Backend
    seen: Recorder

    def step(self, role: str, method: str, outputs: Sequence[str] | None = None, **inputs: Any) -> Channels:
        return self.controller.step(role=role, method=method, inputs=inputs, outputs=outputs)

    @property
    def simulated(self) -> SimulatedBackend:
        assert isinstance(self.backend, SimulatedBackend)
        return self.backend

    @property
    def timeline(self) -> dict[str, list[tuple[float, float]]]:
        """When each "role.method" ran, in virtual time."""
        spans: dict[str, list[tuple[float, float]]] = {}
        for label, started, ended in self.simulated.timeline:
            spans.setdefault(label, []).append((started, ended))
        return spans

    @property
    def restarts(self) -> dict[str, int]:
        return {name: group.restarts for name, group in self.controller.engine.groups.items() if group.restarts}

    @property
    def pids(self) -> dict[str, list[int]]:
        """The process of every worker, by role."""
        groups = self.controller.engine.groups
        return {name: [seat.joined.pid for seat in group.seats if seat.joined] for name, group in groups.items()}

    def close(self) -> None:
        self.controller.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class RunBuilder:
    roles: tuple[Role, ...] = ()
    durations: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    engine: EngineSettings = field(default_factory=lambda: EngineSettings(state_location=STATE))
    stores: dict[str, MemoryStateStore] = field(default_factory=dict)
    outlive: bool = True
    start_seconds: float = 0.0
    make_backend: Callable[[], Backend] | None = None
    controller_class: type[Controller] = Controller

    def role(self, name: str, worker_class: type | str, /, **fields: Any) -> RunBuilder:
        return replace(self, roles=(*self.roles, Role(name=name, worker_class=worker_class, **fields)))

    def lasting(self, label: str, seconds: float) -> RunBuilder:
        """`label` is "role.method"."""
        return replace(self, durations={**self.durations, label: seconds})

    def hit_by(self, *faults: Fault) -> RunBuilder:
        """With faults; they count calls, so every run gets its own."""
        return replace(self, faults=(*self.faults, *faults))

    def settings(self, **fields: Any) -> RunBuilder:
        return replace(self, engine=replace(self.engine, **fields))

    def keeping_state_in(self, stores: dict[str, MemoryStateStore]) -> RunBuilder:
        return replace(self, stores=stores)

    def losing_buffers(self) -> RunBuilder:
        """Buffers may be lost with the host that made them."""
        return replace(self, outlive=False)

    def starting_in(self, seconds: float) -> RunBuilder:
        return replace(self, start_seconds=seconds)

    def on(self, make_backend: Callable[[], Backend]) -> RunBuilder:
        return replace(self, make_backend=make_backend)

    def in_process(self) -> RunBuilder:
        """All in the test's own thread; each with its own state, since such a store lives as long as the process."""
        return self.on(InProcessBackend).settings(state_location=f"memory:{uuid.uuid4().hex}")

    def running(self, controller_class: type[Controller]) -> RunBuilder:
        return replace(self, controller_class=controller_class)

    def start(self) -> Run:
        seen = Recorder()
        backend = self.make_backend() if self.make_backend else self._simulated()
        controller = self.controller_class(backend=backend, settings=self.engine, observer=seen)
        _open.append(controller)
        for role in self.roles:
            controller.register_role(role)
        return Run(controller, backend, seen)

    def _simulated(self) -> SimulatedBackend:
        return SimulatedBackend(
            durations=self.durations,
            faults=[replace(fault) for fault in self.faults],
            start_seconds=self.start_seconds,
            buffers_outlive_hosts=self.outlive,
            stores=self.stores,
        )


_open: list[Controller] = []


def close_all() -> None:
    """Close what the last test started, or its unfinished steps would be finished when the interpreter exits."""
    while _open:
        _open.pop().close()


def a_run() -> RunBuilder:
    return RunBuilder(stores={})
