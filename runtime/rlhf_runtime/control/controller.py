"""The controller: the one place that says who asks whom for what.

    controller = Controller()
    controller.register_role(Role(name="actor", worker_class=ActorWorker))
    samples = controller.step(role=actor, method="generate", inputs={"prompt": prompts}, outputs=["responses"])

`step` only declares: it returns named channels at once, and the engine runs the step as soon as its inputs are there.
An algorithm is a subclass whose `_build_dag` declares one iteration; a plain script is one iteration by itself and is
finished when the interpreter exits, with an exit code of 1 if a step failed that nobody looked at.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlhf_runtime.backends import open_backend
from rlhf_runtime.backends.base import Backend
from rlhf_runtime.control.channels import ALL_OUTPUTS, Channels, DataChannel
from rlhf_runtime.control.engine import Engine
from rlhf_runtime.control.events import Observer
from rlhf_runtime.control.future import DataProtoFuture
from rlhf_runtime.control.graph import Node
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError
from rlhf_runtime.messages import SNAPSHOT
from rlhf_runtime.references import held
from rlhf_runtime.role import Role
from rlhf_runtime.worker import Dispatch

_ASIDE = 1_000_000  # no iteration has so many steps


class Controller:
    """Registers roles and declares steps.

    Args:
        backend: "ray" (default; or the environment's `RLHF_BACKEND`), "in-process", "simulated" or a backend.
        settings: Job name, seed, state location and the like.
        observer: Told of the DAG's events and of incidents.
    """

    def __init__(
        self,
        *,
        backend: Backend | str | None = None,
        settings: EngineSettings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._backend = backend
        self._settings = settings or EngineSettings()
        self._observer = observer
        self._engine: Engine | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._ordinals = itertools.count()
        self._ordinals_aside = itertools.count(_ASIDE)
        self.iteration = 0

    @property
    def engine(self) -> Engine:
        """What runs the steps; made when first needed."""
        if self._engine is None:
            backend = self._backend if isinstance(self._backend, Backend) else open_backend(self._backend)
            settings = self._settings
            if settings.state_location is None:
                self._scratch = tempfile.TemporaryDirectory(prefix="rlhf-state-")
                settings = replace(settings, state_location=self._scratch.name)
            self._engine = Engine(backend, settings, self._observer)
            atexit.register(self._finish_at_exit)
        return self._engine

    @property
    def started(self) -> bool:
        """Whether there is an engine yet."""
        return self._engine is not None

    def configure(self, *, task: Any, flow: Any, parameters: Mapping[str, Any]) -> None:
        """Called once by `rlhf run` before the first iteration, with what the manifest says; keeps it.

        Args:
            task: Prompts and answers, a `rlhf_runtime.tasks.base.Task`.
            flow: Batch sizes and role names, a `rlhf_runtime.algorithms.on_policy.FlowSettings`.
            parameters: The manifest's `algorithm.custom.parameters`.
        """
        self.task = task
        self.flow = flow
        self.parameters = parameters

    def register_role(self, role: Role) -> Role:
        """Begin to start the role's workers; steps that name it wait until they are ready.

        Raises:
            ValueError: The name is taken, or the role has no worker class.
            WorkerClassError: The worker class cannot be imported.
        """
        self.engine.add_role(role)
        return role

    def step(
        self,
        *,
        role: Role | str,
        method: str,
        inputs: Mapping[str, Any] | DataProto | DataProtoFuture | None = None,
        outputs: Sequence[str] | None = None,
        dispatch: Dispatch | None = None,
    ) -> Channels:
        """Declare one step.

        Args:
            role: A registered role or its name.
            method: A public method of its worker class.
            inputs: Channels of earlier steps and plain values, by the method's parameter names. A method that takes a
                `DataProto` gets all of them as its columns. Or a batch; its columns that are references stay that.
            outputs: Which of the method's results are wanted; None: any, named when read.
            dispatch: How the call reaches the ranks; None: as the method declares.

        Returns:
            The outputs as named channels, at once.

        Raises:
            ValueError: No such role is registered, or an output is named twice.
            UnknownMethodError: The role's class has no such method.
            UnsupportedValueError: A plain value cannot travel.
        """
        name = role if isinstance(role, str) else role.name
        spec = self.engine.method_spec(name, method)
        if dispatch is not None:
            spec = replace(spec, dispatch=dispatch)
        if outputs is not None and len(set(outputs)) < len(outputs):
            raise ValueError(f"`outputs` of {name}.{method} must be distinct; got {list(outputs)}")
        values, whole = _as_mapping(self.engine, inputs)
        channels = {key: value for key, value in values.items() if isinstance(value, DataChannel)}
        plain = self.engine.constants(
            {key: value for key, value in values.items() if key not in channels}, whole - channels.keys()
        )
        node = Node(
            iteration=self.iteration,
            ordinal=next(self._ordinals),
            role=name,
            method=method,
            spec=spec,
            inputs={**plain, **channels},
            outputs=None if outputs is None else tuple(outputs),
        )
        return Channels(self.engine, self.engine.submit(node))

    def _build_dag(self) -> Mapping[str, Any] | None:
        """Declare one iteration's steps; an algorithm overrides it.

        Returns:
            The iteration's metrics by name: channels that hold a number or a mapping of numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `_build_dag` to be run")

    def _build_evaluation(self) -> Mapping[str, Any] | None:
        """Declare the steps of an evaluation on held-out data; gives its metrics. Nothing by default."""
        return None

    def build_dag(self) -> Mapping[str, Any]:
        """What `_build_dag` gives."""
        return self._build_dag() or {}

    def build_evaluation(self) -> Mapping[str, Any]:
        """What `_build_evaluation` gives."""
        with self._aside():
            return self._build_evaluation() or {}

    def snapshot(self, *, keep: int, committed: Mapping[str, int]) -> None:
        """Declare a snapshot of every role that has been written to.

        Args:
            keep: How many are kept.
            committed: The version of each role that a resumed run would go on from; what it needs is kept too.
        """
        with self._aside():
            for name, group in self.engine.groups.items():
                if group.version > 0:
                    inputs = {"keep": keep, "committed_version": committed.get(name, 0)}
                    self.step(role=name, method=SNAPSHOT, inputs=inputs, outputs=[])

    def begin_iteration(self, iteration: int) -> None:
        """Steps declared from now on belong to `iteration`."""
        self.iteration = iteration
        self._ordinals = itertools.count()
        self._ordinals_aside = itertools.count(_ASIDE)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Number the steps in here apart: how often a run is saved or evaluated must not change its numbers."""
        usual, self._ordinals = self._ordinals, self._ordinals_aside
        try:
            yield
        finally:
            self._ordinals = usual

    def finish(self, iteration: int | None = None) -> None:
        """Wait for every step declared so far, or for those of one iteration.

        Raises:
            StepError: One of them failed, and its error has not been raised yet.
        """
        self.engine.wait_all(iteration)
        for node in self.engine.unseen_failures(iteration):
            node.error_seen = True
            assert node.error is not None
            raise node.error

    def close(self) -> None:
        """End the role processes; steps that have not run yet never will."""
        if self._engine is not None:
            atexit.unregister(self._finish_at_exit)
            self._engine.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def _finish_at_exit(self) -> None:
        """A script's last steps may have no reader: run them, and let the exit code tell of a failure."""
        crashed = getattr(sys, "last_value", None) is not None
        try:
            if not crashed:
                self.finish()
        except BaseException as error:  # also Ctrl-C: there is no caller left to take it
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            self.close()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # the only way left to set the exit code
        self.close()


def _as_mapping(
    engine: Engine, inputs: Mapping[str, Any] | DataProto | DataProtoFuture | None
) -> tuple[dict[str, Any], set[str]]:
    """A step's inputs by name, and which of them have no rows whatever their type."""
    if isinstance(inputs, DataProto):
        columns = held(inputs.batch) | held(inputs.non_tensor_batch)
        if twice := columns.keys() & inputs.meta_info.keys():
            raise DataError(f'"{min(twice)}" is both a column and in `meta_info`: rename one')
        return columns | held(inputs.meta_info), set(inputs.meta_info)
    if isinstance(inputs, DataProtoFuture):
        inputs = inputs.channels
    if isinstance(inputs, Channels) and inputs.node.outputs is None:
        return {ALL_OUTPUTS: DataChannel(engine, inputs.node, ALL_OUTPUTS)}, set()
    return dict(inputs or {}), set()
