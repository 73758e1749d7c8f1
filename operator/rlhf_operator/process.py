"""The operator's process: what it is made of, and how it begins and ends.

start ─► API server, CRD, rights there? ─► stand by ─► leader ─► watch and work ─► SIGTERM or lost lease
                                                                   │    ▲                 │
                                                                   └────┘                 └─► release the lease
                                                           a kind came or went
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kubernetes.aio.client.configuration import Configuration

from rlhf_operator.config import ProcessSettings, Settings
from rlhf_operator.control.client import ControlClient
from rlhf_operator.handlers import KindGoneError, Watches
from rlhf_operator.health import Health
from rlhf_operator.kube import kinds
from rlhf_operator.kube.applied import Applied
from rlhf_operator.kube.audit import Audit
from rlhf_operator.kube.client import KubeClient, load_configuration
from rlhf_operator.kube.errors import ApiError, MissingRightError, Unreachable
from rlhf_operator.kube.events import Events
from rlhf_operator.kube.execute import Executor
from rlhf_operator.kube.gather import Gatherer
from rlhf_operator.kube.leader import Leader
from rlhf_operator.kube.refusals import Refusals
from rlhf_operator.kube.store import Store
from rlhf_operator.manifests.secret import credentials
from rlhf_operator.planning.reconcile import plan
from rlhf_operator.reconcile import Reconciler
from rlhf_operator.telemetry.http import health_app, metrics_app, serve
from rlhf_operator.telemetry.logging import log
from rlhf_operator.telemetry.metrics import Metrics, State, StateCollector
from rlhf_operator.worker import Pace, Workers

_KINDS_SECONDS = 30.0
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_BLIND_SECONDS = 60.0
"""A deleted Secret is missed by the next pod that starts, and the operator may not see that it is gone."""


class StartError(Exception):
    """The operator cannot begin; the message says what must be done."""


async def run(settings: Settings, process: ProcessSettings) -> None:
    """Run until a signal comes.

    Raises:
        StartError: Something that the operator needs is not there.
        LostLeaseError: Another replica works now.
        Exception: A watch or the process itself is broken.
    """
    operator = await Operator.make(settings, process)
    await operator.run()


class Operator:
    """One replica. `make` makes it, `run` runs it."""

    @classmethod
    async def make(cls, settings: Settings, process: ProcessSettings) -> Operator:
        """In a running event loop.

        Raises:
            StartError: No cluster is configured.
        """
        try:
            return cls(settings, process, await load_configuration(process.context))
        except Unreachable as error:
            raise StartError(str(error)) from error

    def __init__(self, settings: Settings, process: ProcessSettings, configuration: Configuration) -> None:
        self._settings = settings
        self._process = process
        self._configuration = configuration
        self._stopping = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched: tuple[kinds.Kind, ...] = ()
        self._started = False
        self.client = KubeClient(configuration, may_write=self._may_write)
        self.leader = Leader(
            KubeClient(configuration), namespace=settings.operator_namespace, settings=process, clock=_clock
        )
        self.store = Store()
        self.control = ControlClient(lambda job: credentials(job, settings), clock=_clock)
        self.metrics = Metrics()
        self.audit = Audit(client=self.client, store=self.store, namespaces=settings.namespaces, clock=_clock)
        events = Events(self.client, identity=process.identity, now=_now)
        gatherer = Gatherer(
            client=self.client,
            store=self.store,
            control=self.control,
            now=_now,
            clock=_clock,
            refusals=Refusals(_clock),
        )
        executor = Executor(
            client=self.client,
            store=self.store,
            control=self.control,
            events=events,
            applied=Applied(_clock, blind_seconds=min(settings.resync_seconds, _BLIND_SECONDS)),
            gatherer=gatherer,
            watched=kinds.watched(settings),
        )
        reconciler = Reconciler(
            gatherer=gatherer,
            planner=lambda snapshot, its: plan(snapshot, its),
            executor=executor,
            events=events,
            settings=settings,
            metrics=self.metrics,
            clock=_clock,
        )
        self.workers = Workers(
            reconciler.look,
            pace=Pace(at_once=process.workers),
            clock=_clock,
            revision=self.store.revision,
            failed=reconciler.failed,
            fatal=self._break,
        )
        self.store.changed = self.workers.wake
        self.health = Health(
            workers=self.workers,
            audit=self.audit,
            kinds=lambda: self._watched,
            started=lambda: self._started,
            leading=lambda: self._leads,
            stuck_seconds=process.stuck_seconds,
            deaf_seconds=max(3 * process.audit_seconds, 300.0),
        )
        self.metrics.registry.register(StateCollector(self._state, version=_version()))

    async def run(self) -> None:
        """Run until a signal comes; see `run` of this module."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.client.close)
            health = health_app(alive=self.health.not_alive, ready=self.health.not_ready)
            for app, port in (
                (health, self._process.health_port),
                (metrics_app(self.metrics.registry), self._process.metrics_port),
            ):
                try:
                    stack.push_async_callback((await serve(app, port=port)).cleanup)
                except OSError as error:
                    raise StartError(f"port {port} cannot be listened on: {error}") from error
            stack.push_async_callback(self.leader.close)
            await self._check_cluster()
            self._started = True
            stack.push_async_callback(self.control.close)
            await self._until_stopped()
        log("stopped")

    async def _until_stopped(self) -> None:
        work = asyncio.create_task(self._work(), name="work")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        leader = asyncio.create_task(self._lead(), name="leader")
        waited: list[asyncio.Future[Any]] = [work, stopping, leader, self._broken]
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        log("stopping")
        await self.workers.close()
        await _cancelled(leader)
        if self._process.leader_election:
            await self.leader.release()
        await _cancelled(work, stopping)
        for one in done:
            one.result()

    async def _lead(self) -> None:
        if self._process.leader_election:
            await self.leader.run()
        else:
            self.leader.leading.set()
            await self._stopping.wait()

    async def _work(self) -> None:
        await self.leader.leading.wait()
        auditing = asyncio.create_task(self.audit.run(lambda: self._watched, every=self._process.audit_seconds))
        try:
            while True:
                self._watched = await self._kinds()
                await self._watch()
        finally:
            auditing.cancel()

    async def _watch(self) -> None:
        """Watch until the cluster's kinds are others."""
        watches = Watches(
            self.store, kinds=self._watched, namespaces=self._settings.namespaces, connection=self._reconfigured
        )
        log("watching", kinds=",".join(kind.plural for kind in self._watched), namespaces=self._where())
        running = asyncio.create_task(watches.run(), name="watches")
        changed = asyncio.create_task(self._kinds_changed(), name="kinds")
        try:
            await asyncio.wait([running, changed], return_when=asyncio.FIRST_COMPLETED)
            if running.done() and await self._kinds() == self._watched:
                with contextlib.suppress(KindGoneError):
                    await running  # which raises
                await self._check_cluster()
        finally:
            watches.stop()
            await asyncio.wait([running], timeout=_STOP_SECONDS)
            await _cancelled(running, changed)
        log("the cluster's kinds have changed; watching anew")
        for key in self.store.jobs():
            self.workers.wake(key)

    async def _kinds_changed(self) -> None:
        while True:
            await asyncio.sleep(_KINDS_SECONDS)
            try:
                if await self._kinds() != self._watched:
                    return
            except ApiError as error:
                log("the cluster's kinds cannot be read", error=str(error), level="debug")

    async def _kinds(self) -> tuple[kinds.Kind, ...]:
        """What is to be watched and is there."""
        wanted = kinds.watched(self._settings)
        there = await asyncio.gather(*(self._is_there(kind) for kind in wanted))
        return tuple(kind for kind, is_there in zip(wanted, there, strict=True) if is_there)

    async def _is_there(self, kind: kinds.Kind) -> bool:
        return not kind.optional or await self.client.serves(kind)

    async def _check_cluster(self) -> None:
        """Say at once what is missing, rather than fail at the first job."""
        host = str(self._configuration.host)
        trouble = ""
        for attempt in range(1, 1 + int(_START_SECONDS / 5)):
            try:
                if await self.client.serves(kinds.RLHF_JOB):
                    await self._check_rights()
                    return
                # Served only a moment after the same `helm install` has made it.
                trouble = (
                    "the cluster has no RLHFJobs: install the definition with the chart (`helm install`, with"
                    " `crds.enabled`), or with `kubectl apply --server-side -f crds/`"
                )
                log(trouble, attempt=attempt, level="warning")
            except Unreachable as error:
                trouble = f"the API server at {host} does not answer; check the address, or that the cluster runs"
                log("the API server does not answer", attempt=attempt, error=str(error), level="warning")
            except ApiError as error:
                raise StartError(str(error)) from error
            try:
                async with asyncio.timeout(5):
                    await self._stopping.wait()
                raise StartError("stopped before it had begun")
            except TimeoutError:
                continue
        raise StartError(trouble)

    async def _check_rights(self) -> None:
        for kind in await self._kinds():
            for namespace in self._settings.namespaces or (None,):
                labels = "" if kind == kinds.RLHF_JOB else kinds.SELECTOR
                try:
                    await self.client.list(kind, namespace, labels=labels, limit=1, metadata_only=True)
                except ApiError as error:
                    if error.status in (401, 403):
                        raise MissingRightError(str(error)) from error
                    raise

    async def _reconfigured(self) -> Configuration:
        return await load_configuration(self._process.context)

    def _may_write(self) -> bool:
        return not self._process.leader_election or self.leader.sure()

    @property
    def _leads(self) -> bool:
        return self.leader.leading.is_set()

    def _break(self, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)

    def _where(self) -> str:
        return ",".join(self._settings.namespaces) or "all"

    def _state(self) -> State:
        now = _clock()
        return State(
            jobs=self.store.all(kinds.RLHF_JOB),
            waiting=self.workers.waiting,
            longest_wait=self.workers.longest_wait(),
            watch_ages={kind.plural: now - at for kind, at in self.audit.agreed.items() if kind in self._watched},
            watch_repairs=self.audit.repairs,
            leading=self._leads,
        )


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _clock() -> float:
    """Goes on while the machine sleeps, so that a lease is not believed to be held after that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _now() -> datetime:
    return datetime.now(UTC)


def _version() -> str:
    try:
        return version("rlhf-operator")
    except PackageNotFoundError:
        return "unknown"
