"""What a call of a worker group gives at once: a batch that is still being made, or was, in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlhf_runtime.control.channels import Channels, DataChannel
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError


class DataProtoFuture:
    """The answer to one call.

    Passing it to another group's method, or uniting a batch with it, moves no data: `get` does, and so does reading a
    column of such a union.

    Attributes:
        channels: The call's outputs by name.
    """

    def __init__(self, channels: Channels) -> None:
        self.channels = channels

    def __getitem__(self, name: str) -> DataChannel:
        return self.channels[name]

    def wait(self) -> DataProtoFuture:
        """Wait for the call, without fetching anything.

        Raises:
            StepError: It failed or was skipped.
        """
        self.channels.wait()
        return self

    def references(self) -> DataProto:
        """A batch whose columns are fetched when they are read; waits for the call.

        Raises:
            StepError: The call failed or was skipped.
            DataError: The method returned neither a `DataProto` nor a dict, so its columns have no names.
        """
        node = self.wait().channels.node
        if node.shape == "value":
            raise DataError(f"{node} gave a bare value: return a DataProto or a dict, which name their columns")
        tensors: dict[str, Any] = {}
        others: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        for name, ref in node.results.items():
            is_tensor = ref.pieces[0].spec.kind == "tensor"
            kind = meta if ref.rows is None else tensors if is_tensor else others
            kind[name] = self.channels[name]
        return DataProto(tensors, others, meta)

    def get(self) -> Any:
        """What the method returned, brought here: a `DataProto`, a dict or a bare value, of all ranks as one.

        Raises:
            StepError: The call failed or was skipped.
        """
        self.wait()
        return self._assemble(lambda name: self.channels[name].get())

    def _assemble(self, read: Callable[[str], Any]) -> Any:
        node = self.channels.node
        if node.shape == "proto":
            batch = self.references()
            return DataProto(
                {name: read(name) for name in batch.batch},
                {name: read(name) for name in batch.non_tensor_batch},
                {name: read(name) for name in batch.meta_info},
            )
        values = {name: read(name) for name in node.results}
        return values if node.shape == "mapping" else values.get("value")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.channels.node} ({self.channels.node.state.value})>"


class RankFutures(DataProtoFuture):
    """The answers of every rank to one call."""

    def get(self) -> list[Any]:
        """What the method returned on each rank, in rank order."""
        node = self.wait().channels.node
        engine = self.channels.engine
        return [
            self._assemble(lambda name, rank=shard.rank: engine.read(node, name, rank=rank))  # type: ignore[misc]
            for shard in node.shards
        ]
