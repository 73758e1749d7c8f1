"""A role: a name, what kind it is, and which worker class computes for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_runtime.executor import import_object
from rlhf_runtime.messages import WorkerClass

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Declares a role; nothing is loaded before a controller registers it.

    Attributes:
        name: Lower-case letters, digits and dashes; unique within a controller.
        role_type: For people: "actor", "critic", "reward_model", "reference_model", ...
        worker_class: The class that computes: itself, or `package.module:Class`.
        init_kwargs: What its constructor gets in the role's process.
        replicas: Number of workers; rows of data-parallel methods are split over them.
        threads: CPU threads of each worker.
        gpus: GPUs of each worker, where it has a pod of the role's; elsewhere it sees all that there are.
        per_pod: How many of its workers share one pod of the role's, where it has pods.
        colocate_with: Name of a role registered before, whose processes this one shares.
        process_group: Whether its workers compute as one: they meet in a torch process group
            (`context.meeting_place`), start and end together, and have one log of updates and one snapshot in parts.
        max_restarts: How many deaths of its workers the run survives.
        method_timeout: Seconds after which a call that has not been answered counts as a hang; None: no limit.
        start_timeout: Seconds that a worker may take to be ready.
    """

    name: str
    role_type: str = "custom"
    worker_class: type | str | None = None
    init_kwargs: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    threads: int = 1
    gpus: int = 0
    per_pod: int = 1
    colocate_with: str | None = None
    process_group: bool = False
    max_restarts: int = 10
    method_timeout: float | None = 1800.0
    start_timeout: float = 600.0

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(
                "`name` of a role must be lower-case letters, digits and dashes, starting with a letter; "
                f'got "{self.name}"'
            )
        if self.replicas < 1:
            raise ValueError(f"`replicas` of role {self.name!r} must be at least 1; got {self.replicas}")

    @property
    def worker(self) -> WorkerClass:
        """The class and its arguments, as a role process needs them.

        Raises:
            ValueError: The role has no worker class.
        """
        if self.worker_class is None:
            raise ValueError(f'role "{self.name}" must have a `worker_class` to be registered')
        return WorkerClass(cls=self.worker_class, kwargs=self.init_kwargs)

    def resolve(self) -> type:
        """The worker class itself.

        Raises:
            WorkerClassError: It cannot be imported.
        """
        cls = self.worker.cls
        if isinstance(cls, type):
            return cls
        resolved = import_object(cls, what=f'worker class of role "{self.name}"')
        if not isinstance(resolved, type):
            raise ValueError(
                f'`worker_class` of role "{self.name}" must be a class; "{cls}" is {type(resolved).__name__}'
            )
        return resolved
