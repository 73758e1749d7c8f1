"""What controller and role processes say to each other: small, plain, and without the data itself.

Tensors travel beside these messages as flat buffers (`wire`); a message only says where in which buffer they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_runtime.wire import ColumnSpec
from rlhf_runtime.worker import CallInfo, Effect

SNAPSHOT = "__snapshot__"
"""The one method that every worker has without its class defining it: write your state to the state store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClass:
    """Which class a role runs, and what its constructor is given.

    `cls` is the class itself or `package.module:Class`.
    """

    cls: type | str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The class as a message should name it."""
        return self.cls if isinstance(self.cls, str) else self.cls.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Makes a blank process one worker of a role."""

    role: str
    rank: int
    world_size: int
    attempt: int
    epoch: int
    job: str
    seed: int
    threads: int
    worker: WorkerClass
    state_location: str | None
    restore_version: int
    log_file: str | None = None
    process_group: bool = False
    meeting_place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A worker's answer to its assignment. `pod` is the machine's name where there are no pods, `node` then empty."""

    worker_name: str
    pod: str
    pid: int
    version: int
    replayed: int
    seconds: float
    node: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One input of a call, or some rows of it: a column in one of the buffers that travel with the call."""

    buffer: int
    spec: ColumnSpec
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One call of one worker.

    Attributes:
        role: The role called; a process may host several.
        method: The method's name.
        call: Where the call stands in the run.
        epoch: The controller's epoch; a worker refuses an older one than it has seen.
        effect: The method's declared effect.
        arguments: For each parameter the pieces it is joined from.
        expected_version: The state version that the call is made for; None: any.
        update_id: Names a write for ever: the same id is never applied twice to the same state.
        durable_key: Where in the state store the outputs go before the call is answered, if anywhere.
        world_size: How many workers the role has in this step.
    """

    role: str
    method: str
    call: CallInfo
    epoch: int
    effect: Effect
    arguments: Mapping[str, tuple[Piece, ...]]
    expected_version: int | None = None
    update_id: str | None = None
    durable_key: str | None = None
    world_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A worker's answer; its columns lie in the buffer that comes with it.

    Attributes:
        columns: The outputs by name.
        shape: What the method returned: "mapping", "proto" (a `DataProto`), "value" or "none".
        version: The state version after the call.
        started: Wall-clock time at which the method began.
        ended: Wall-clock time at which it returned.
        nbytes: Size of the buffer.
    """

    columns: Mapping[str, ColumnSpec]
    shape: str
    version: int
    started: float
    ended: float
    nbytes: int
