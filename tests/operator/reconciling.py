"""All that looks at a job, put together over a fake API server and with a plan that a test gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fake_api_server import FakeApiServer

from rlhf_operator.config import Settings
from rlhf_operator.control.client import ControlClient
from rlhf_operator.kube.applied import Applied
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.events import Events
from rlhf_operator.kube.execute import Executor
from rlhf_operator.kube.gather import Gatherer
from rlhf_operator.kube.kinds import RLHF_JOB, Kind, watched
from rlhf_operator.kube.refusals import Refusals
from rlhf_operator.kube.store import JobKey, Store
from rlhf_operator.planning.plan import Plan
from rlhf_operator.planning.snapshot import Snapshot
from rlhf_operator.reconcile import Reconciler
from rlhf_operator.telemetry.metrics import Metrics

KEY = JobKey("team", "ppo")
SETTINGS = Settings(worker_image="worker:1")


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class NoCredentials:
    """For controllers that are not called."""

    control_token: str = "token"
    certificate_pem: bytes = b""
    server_name: str = "x"


@dataclass
class Looking:
    """A reconciler and what it is made of."""

    server: FakeApiServer
    store: Store
    reconciler: Reconciler
    executor: Executor
    gatherer: Gatherer
    clock: Clock
    metrics: Metrics
    snapshots: list[Snapshot] = field(default_factory=list)
    plan: Callable[[Snapshot], Plan] = lambda snapshot: Plan()

    def see(self, kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        """An object is in the cluster, and the watch has brought it."""
        thing = self.server.put(kind, manifest)
        self.store.put(kind, thing)
        return thing

    def see_all(self) -> None:
        """The watches have brought everything."""
        for (kind, _, _), thing in self.server.objects.items():
            self.store.put(kind, thing)

    async def look(self) -> float | None:
        return await self.reconciler.look(KEY)

    @property
    def status(self) -> dict[str, Any]:
        thing = self.server.get(RLHF_JOB, *KEY)
        assert thing is not None
        status: dict[str, Any] = thing.get("status", {})
        return status


@asynccontextmanager
async def looking(settings: Settings = SETTINGS) -> AsyncIterator[Looking]:
    async with FakeApiServer() as server:
        clock, store, metrics = Clock(), Store(), Metrics()
        client = KubeClient(server.configuration())
        control = ControlClient(lambda job: NoCredentials(), clock=clock)
        events = Events(client, identity="operator-0", now=_now)
        gatherer = Gatherer(
            client=client, store=store, control=control, now=_now, clock=clock, refusals=Refusals(clock)
        )
        executor = Executor(
            client=client,
            store=store,
            control=control,
            events=events,
            applied=Applied(clock, blind_seconds=settings.resync_seconds),
            gatherer=gatherer,
            watched=watched(settings),
        )
        made: list[Looking] = []

        def planner(snapshot: Snapshot, _: Settings) -> Plan:
            made[0].snapshots.append(snapshot)
            return made[0].plan(snapshot)

        reconciler = Reconciler(
            gatherer=gatherer,
            planner=planner,
            executor=executor,
            events=events,
            settings=settings,
            metrics=metrics,
            clock=clock,
        )
        made.append(Looking(server, store, reconciler, executor, gatherer, clock, metrics))
        try:
            yield made[0]
        finally:
            await control.close()
            await client.close()


def _now() -> datetime:
    return datetime(2026, 11, 30, 12, tzinfo=UTC)
