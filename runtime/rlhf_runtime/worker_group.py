"""Worker groups: verl's way to call a role, `actor_wg.generate_sequences(batch)`, over the engine of `Controller`.

A group is a role with a controller, and each call of one of its methods is a step: it returns a future at once, runs
when its inputs are there, and is ordered, repeated and repaired as any other step. Groups that are made without a
controller share one, which is made when first needed and finished when the interpreter exits. Its iterations are
found, not declared: one begins when a method is called again that the present one has already called, as loops do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlhf_runtime.control.channels import Channels
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.future import DataProtoFuture, RankFutures
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError
from rlhf_runtime.resource_pool import RayResourcePool
from rlhf_runtime.role import Role
from rlhf_runtime.worker import Dispatch, Effect, method_spec

_REMEMBERED_ITERATIONS = 100


class LoopController(Controller):
    """The controller of groups that were made without one; see the module about its iterations."""

    def __init__(self) -> None:
        super().__init__()
        self._called: set[tuple[str, str]] = set()

    def step(self, *, role: Role | str, method: str, **rest: Any) -> Channels:
        """Declare one step, in the next iteration if this one has it already."""
        call = (role if isinstance(role, str) else role.name, method)
        if call in self._called:
            self._called.clear()
            self.begin_iteration(self.iteration + 1)
            self.engine.retire(self.iteration - _REMEMBERED_ITERATIONS)
        self._called.add(call)
        return super().step(role=role, method=method, **rest)


_default: LoopController | None = None


def default_controller() -> Controller:
    """The controller of groups that were made without one; a new one when the last was closed."""
    global _default
    if _default is None or _default.engine.closed:
        _default = LoopController()
    return _default


class RayClassWithInitArgs:
    """A worker class and what its constructor gets in each process.

    Args:
        cls: The class, or `package.module:Class`; it needs no `ray.remote`.
        init_kwargs: The constructor's arguments; or give them as keywords here.
        kwargs: More of them.
    """

    def __init__(self, cls: type | str, *, init_kwargs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        if not isinstance(cls, type | str):
            raise TypeError(f"`cls` must be the worker class itself, without `ray.remote`; got {cls!r}")
        self.cls = cls
        self.kwargs = {**(init_kwargs or {}), **kwargs}

    @property
    def name(self) -> str:
        """The class's name as a role's: `ActorRolloutWorker` gives "actor-rollout"."""
        plain = self.cls if isinstance(self.cls, str) else self.cls.__name__
        plain = plain.rpartition(":")[2].removesuffix("Worker")
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|\d+", plain)
        return "-".join(words).lower().lstrip("0123456789-") or "group"


class WorkerGroup:
    """The workers of one role, called by their own methods' names.

    `group.method(batch)` takes a `DataProto` or a future of one, whose columns the method gets as its batch or by its
    parameters' names; or plain values and channels by position or name. It returns a future at once.

    Args:
        role: The role; it is registered here.
        controller: Which runs it; None: the one that all such groups share.
    """

    def __init__(self, role: Role, *, controller: Controller | None = None) -> None:
        self.controller = controller or default_controller()
        self.role = self.controller.register_role(role)
        self._cls = role.resolve()

    @property
    def name(self) -> str:
        """The role's name."""
        return self.role.name

    @property
    def world_size(self) -> int:
        """The number of ranks there should be."""
        return self.controller.engine.groups[self.name].replicas

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        method_spec(self._cls, method)  # raises the AttributeError that says which methods there are

        def call(*args: Any, **kwargs: Any) -> DataProtoFuture:
            return DataProtoFuture(self._step(method, args, kwargs))

        call.__name__ = method
        return call

    def execute_rank_zero(self, method: str, /, *args: Any, **kwargs: Any) -> DataProtoFuture:
        """Call rank 0 alone.

        Raises:
            ValueError: The method writes: one rank would be ahead of the others.
        """
        if self.world_size > 1 and method_spec(self._cls, method).effect is Effect.WRITE:
            raise ValueError(f'`{method}` of group "{self.name}" writes, so it must be called on all ranks')
        return DataProtoFuture(self._step(method, args, kwargs, Dispatch.RANK_ZERO))

    def execute_all(self, method: str, /, *args: Any, **kwargs: Any) -> RankFutures:
        """Call every rank with the same arguments; the future gives the list of their answers."""
        return RankFutures(self._step(method, args, kwargs, Dispatch.ALL_TO_ALL))

    def _step(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], dispatch: Dispatch | None = None
    ) -> Channels:
        inputs = self._inputs(method, args, kwargs)
        return self.controller.step(role=self.role, method=method, inputs=inputs, dispatch=dispatch)

    def _inputs(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Mapping[str, Any] | DataProto | DataProtoFuture:
        values = [*args, *kwargs.values()]
        batches = [value for value in values if isinstance(value, DataProto | DataProtoFuture)]
        if batches and len(values) == 1:
            return batches[0]
        if batches:
            raise DataError(
                f"{self.name}.{method}: a batch must be the only argument; put what else the method needs into its "
                "columns or its `meta_info`"
            )
        if not args:
            return kwargs
        signature = inspect.signature(getattr(self._cls, method))
        bound = signature.bind(None, *args, **kwargs).arguments
        return dict(list(bound.items())[1:])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.world_size} {self._cls.__name__}>"


class RayWorkerGroup(WorkerGroup):
    """A worker group on a resource pool.

    Args:
        resource_pool: Where its processes are, and whose they may share.
        ray_cls_with_init: The worker class and its constructor's arguments.
        name: Of the role; None: after the class, with a number where that is taken.
        controller: Which runs it; None: the one that all such groups share, on Ray or what `RLHF_BACKEND` says.

    Raises:
        ResourcePoolError: The pool is full, or asks for GPUs that are not there.
        ValueError: The name is taken.
        WorkerClassError: The class cannot be imported.
    """

    def __init__(
        self,
        resource_pool: RayResourcePool,
        ray_cls_with_init: RayClassWithInitArgs,
        *,
        name: str | None = None,
        controller: Controller | None = None,
    ) -> None:
        controller = controller or default_controller()
        name = name or _free_name(ray_cls_with_init.name, controller)
        role = Role(
            name=name,
            worker_class=ray_cls_with_init.cls,
            init_kwargs=ray_cls_with_init.kwargs,
            replicas=resource_pool.world_size,
        )
        role.resolve()
        if name in controller.engine.groups:
            raise ValueError(f'two groups cannot both be named "{name}"')
        shares_with = resource_pool.take(name, controller.engine)
        super().__init__(replace(role, colocate_with=shares_with), controller=controller)


def _free_name(wanted: str, controller: Controller) -> str:
    name, number = wanted, 1
    while name in controller.engine.groups:
        number += 1
        name = f"{wanted}-{number}"
    return name
