"""Named channels: what `Controller.step` returns at once, before anything has run.

Passing a channel on to another step costs nothing; reading it (indexing, iterating, formatting, comparing its length)
waits for the step that fills it and brings the data to the controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from rlhf_runtime.errors import UnknownColumnError
from rlhf_runtime.references import Reference

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.control.graph import ColumnRef, Node

ALL_OUTPUTS = "*"
"""Stands among a step's inputs for every output of another, whose names need not be known yet."""


class DataChannel(Reference):
    """One named output of a step."""

    __slots__ = ("_engine", "_value", "name", "node")

    def __init__(self, engine: Engine, node: Node, name: str) -> None:
        self._engine = engine
        self.node = node
        self.name = name
        self._value: list[Any] = []

    def ref(self) -> ColumnRef:
        """Where the data lies; waits for the step, moves nothing.

        Raises:
            StepError: The step failed or was skipped.
        """
        return self._engine.column(self.node, self.name)

    def get(self) -> Any:
        """The value, brought to the controller; waits for the step.

        Raises:
            StepError: The step failed or was skipped.
        """
        if not self._value:
            self._value.append(self._engine.read(self.node, self.name))
        return self._value[0]

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        return self.get()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        rows = self.ref().rows
        return len(self.get()) if rows is None else rows

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        return f"<DataChannel {self.name!r} of {self.node} ({self.node.state.value})>"


class Channels(Mapping[str, DataChannel]):
    """The outputs of one step by name; `channels | more` merges the outputs of several for the next step's inputs."""

    def __init__(self, engine: Engine, node: Node) -> None:
        self.engine = engine
        self.node = node
        self._channels = {name: DataChannel(engine, node, name) for name in node.outputs or ()}

    def __getitem__(self, name: str) -> DataChannel:
        if name in self._channels:
            return self._channels[name]
        if self.node.outputs is not None:
            have = ", ".join(f'"{n}"' for n in self._channels) or "none"
            raise UnknownColumnError(f'{self.node} declares no output "{name}"; its outputs: {have}')
        return self._channels.setdefault(name, DataChannel(self.engine, self.node, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def wait(self) -> Channels:
        """Wait for the step, without reading anything.

        Raises:
            StepError: The step failed or was skipped.
        """
        self.engine.wait_for(self.node)
        return self

    def __repr__(self) -> str:
        return f"<Channels {sorted(self._channels)} of {self.node} ({self.node.state.value})>"
