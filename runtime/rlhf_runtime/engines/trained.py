"""A model in training and its optimizer: on one rank, or in parts on several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlhf_runtime.engines.adapters import only, trained_names
from rlhf_runtime.engines.batches import Batch
from rlhf_runtime.engines.ranks import ALONE, Ranks
from rlhf_runtime.engines.training import OptimizerConfig, make_optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingConfig:
    """How FSDP2 computes; parameters and what the optimizer keeps of them are float32 whatever it says.

    Attributes:
        compute_dtype: Of forward and backward passes: "float32" or "bfloat16".
        checkpoint_activations: Whether a block's activations are computed again in the backward pass, not kept.
    """

    compute_dtype: str = "float32"
    checkpoint_activations: bool = False


class TrainedModel:
    """A model, its optimizer, and the ranks that hold them.

    Args:
        model: The whole model, the same on every rank; it is sharded in place where there are several.
        optimizer: AdamW's settings.
        ranks: Who holds it together.
        sharding: Where there are several, or FSDP2 is wanted on one.
        forward_methods: See `shard_model`.
        keep_whole: Whether `whole` is needed: a copy on each rank, for what computes without the others.
        adapted: Whether only a part of the parameters is trained (LoRA), so that only these are kept in snapshots.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: OptimizerConfig,
        ranks: Ranks = ALONE,
        sharding: ShardingConfig | None = None,
        forward_methods: Sequence[Callable[..., Any]] = (),
        keep_whole: bool = False,
        adapted: bool = False,
    ) -> None:
        self.model = model
        self._kept = trained_names(model) if adapted else None
        self.ranks = ranks
        self.whole: nn.Module | None = model
        if ranks.mesh is not None:
            from rlhf_runtime.engines.sharding import shard_model

            config = sharding or ShardingConfig()
            dtype: torch.dtype = getattr(torch, config.compute_dtype)
            self.whole = copy.deepcopy(model).requires_grad_(False).to(dtype) if keep_whole else None
            shard_model(
                model,
                ranks,
                compute_dtype=dtype,
                checkpoint_activations=config.checkpoint_activations,
                forward_methods=forward_methods,
            )
        self.optimizer = make_optimizer(model, optimizer)

    def update(self, how: Callable[..., dict[str, float]], batch: Batch, **settings: Any) -> dict[str, float]:
        """Train on one batch with `actor_update` or `critic_update`, and bring the new weights to `whole`."""
        metrics = how(self.model, self.optimizer, batch, ranks=self.ranks, **settings)
        self.refresh_whole()
        return metrics

    def refresh_whole(self) -> None:
        """The weights have changed: bring them to `whole`. All ranks must call it together."""
        if self.ranks.mesh is None or self.whole is None:
            return
        from rlhf_runtime.engines.sharding import full_tensors

        targets = self.whole.state_dict()
        with torch.no_grad():
            for name, value in full_tensors(self.model, self._kept):
                targets[name].copy_(value)

    def state_dict(self) -> Mapping[str, Any]:
        """Weights that are trained and optimizer, of which this rank's part."""
        weights: Mapping[str, Any] = self.model.state_dict()
        if self._kept is not None:
            weights = only(weights, self._kept)
        state = {"model": weights, "optimizer": self.optimizer.state_dict()}
        if self.ranks.mesh is None:
            return state
        from rlhf_runtime.engines.sharding import to_parts

        parts: Mapping[str, Any] = to_parts(state)
        return parts

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, on this number of ranks or joined from another."""
        if self.ranks.mesh is None:
            self.model.load_state_dict(self._with_frozen(state["model"]))
            self.optimizer.load_state_dict(dict(state["optimizer"]))
            return
        from rlhf_runtime.engines.sharding import load_parts

        load_parts(self.model, self.optimizer, {**state, "model": self._with_frozen(state["model"])})
        self.refresh_whole()

    def _with_frozen(self, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._kept is None:
            return weights
        return {**self.model.state_dict(), **only(weights, self._kept)}
