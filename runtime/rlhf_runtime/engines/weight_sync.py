"""How the trainer's weights reach those who generate with them, each version by its number.

    publish(weights, version) ─► told: travels with every request ─► receive(told) in each replica

What is told is an input of the request, so that there is nobody to wait for: a replica that was dead or late, or is
new, is brought to the right version by the next request that it gets, and knows which version made its samples. A
rollout engine in the trainer's own process needs none of this: it reads the weights themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from rlhf_runtime import wire
from rlhf_runtime.errors import RlhfError, StateMissingError, WeightsLostError
from rlhf_runtime.resilience.frame import packed_chunks, read_packed
from rlhf_runtime.resilience.state_store import StateStore

Told = Mapping[str, Any]
_FOLDER = "weights/"
_KIND = "weights"
_KEPT = 2  # a replica may still be busy with the version before


class WeightSyncError(RlhfError):
    """The weights of a version cannot be had."""


class WeightSync(Protocol):
    """A way from the trainer to those who generate."""

    def publish(self, weights: Mapping[str, Tensor], version: int) -> Told:
        """Make the weights of a version available.

        Args:
            weights: By the names that a checkpoint has.
            version: Theirs.

        Returns:
            What a replica must be told to get them; `version_of` reads the version from it.
        """
        ...


class ThroughObjects:
    """The weights themselves travel, as one buffer that the replicas of a node share (Ray's object store)."""

    def publish(self, weights: Mapping[str, Tensor], version: int) -> Told:
        """See `WeightSync.publish`."""
        return {"version": version, "tensors": dict(weights)}


class ThroughState:
    """The weights are written to the run's state store, and each replica reads them there.

    Args:
        store: Where; the replicas must reach it, too.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def publish(self, weights: Mapping[str, Tensor], version: int) -> Told:
        """See `WeightSync.publish`; an earlier file of this version is replaced, much older versions are deleted."""
        key = f"{_FOLDER}v{version:012d}"
        self._store.write(key, packed_chunks(wire.encode({_KIND: dict(weights)}), kind=_KIND))
        for old in self._store.list(_FOLDER)[:-_KEPT]:
            if old < key:
                self._store.delete(old)
        return {"version": version, "key": key}


def version_of(told: Told) -> int:
    """Which version it is that was published."""
    return int(told["version"])


def make_weight_sync(name: str, store: StateStore | None) -> WeightSync:
    """The way of this name from a trainer.

    Args:
        name: "objects", "state" or "collective".
        store: The run's state store.

    Raises:
        WeightSyncError: The weights are to go through the state store, and there is none.
    """
    if name == "state":
        if store is None:
            raise WeightSyncError("the weights are to go through the state store, and this run has none")
        return ThroughState(store)
    if name == "collective":
        from rlhf_runtime.engines.weight_group import ThroughGroup

        return ThroughGroup()
    assert name == "objects", name
    return ThroughObjects()


def receive(told: Told, store: StateStore | None = None, device: torch.device | None = None) -> Mapping[str, Tensor]:
    """The weights that `publish` told of; they must not be written in place.

    Args:
        told: See `WeightSync.publish`.
        store: The run's state store, where the weights may lie.
        device: Where a collective group brings them; none: the CPU.

    Raises:
        WeightsLostError: They are not there any more; the trainer must publish them again.
        WeightSyncError: There is no store to read them from.
    """
    if "tensors" in told:
        weights: Mapping[str, Tensor] = told["tensors"]
        return weights
    if "meet" in told:
        from rlhf_runtime.engines.weight_group import receive_from_group

        return receive_from_group(told, device or torch.device("cpu"))
    version, key = version_of(told), told["key"]
    if store is None:
        raise WeightSyncError(f'weights of version {version} lie in a state store ("{key}"), and this role has none')
    try:
        _, packed = read_packed(store.read(key), where=f"{store.location}/{key}", kind=_KIND)
    except StateMissingError as error:
        raise WeightsLostError(f"weights of version {version} are gone: {error}") from error
    return cast("Mapping[str, Tensor]", wire.decode(packed.columns[_KIND], packed.buffer))
