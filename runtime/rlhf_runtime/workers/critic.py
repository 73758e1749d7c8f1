"""The critic: values of the states before each response token, learned from the returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.adapters import LoRASettings, add_adapters
from rlhf_runtime.engines.ranks import ALONE, join_ranks, own_device
from rlhf_runtime.engines.scalar_outputs import compute_values
from rlhf_runtime.engines.trained import ShardingConfig, TrainedModel
from rlhf_runtime.engines.training import CriticUpdateConfig, OptimizerConfig, critic_update
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_scalar_model
from rlhf_runtime.worker import Dispatch, Effect, Worker, register


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """Everything that a `CriticWorker` is told; `sharding` where FSDP2 trains it, else plain torch on one rank.

    With `lora` adapters and the value head are trained, and nothing else.
    """

    optimizer: OptimizerConfig
    update: CriticUpdateConfig = field(default_factory=CriticUpdateConfig)
    sharding: ShardingConfig | None = None
    lora: LoRASettings | None = None


class CriticWorker(Worker):
    """A transformer body with a value head that starts at zero.

    Args:
        model: A folder or a Hugging Face id; a causal language model's body is taken.
        settings: Optimizer and update.
        model_field: The manifest's field that named the model, for messages.
    """

    imports = SLOW_IMPORTS

    def __init__(self, model: str, settings: CriticSettings, model_field: str = "spec.model") -> None:
        self._settings = settings
        loaded = load_scalar_model(model, field=model_field)
        if settings.lora:
            add_adapters(loaded.body, settings.lora, seed=self.context.seed)
        self._trained = TrainedModel(
            loaded.to(own_device(self.context)),
            optimizer=settings.optimizer,
            ranks=join_ranks(self.context) if settings.sharding else ALONE,
            sharding=settings.sharding,
            adapted=settings.lora is not None,
        )

    @register(effect=Effect.READ, durable=True, collective=True)
    def compute_values(self, data: DataProto) -> dict[str, Tensor]:
        """Values (N, T) of prompts (N, P) and responses (N, T)."""
        most, ranks = self._settings.update.max_tokens, self._trained.ranks
        return {"values": compute_values(self._trained.model, data.batch, max_tokens=most, ranks=ranks)}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, data: DataProto) -> dict[str, Any]:
        """One value update; `data` has prompts, responses, `values` and `returns`. Gives `metrics`."""
        seed = StepSeed(job=self.context.seed, step=self.context.call.iteration)
        metrics = self._trained.update(critic_update, data.batch, config=self._settings.update, seed=seed)
        return {"metrics": metrics}

    def state_dict(self) -> Mapping[str, Any]:
        """Weights and optimizer."""
        return self._trained.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._trained.load_state_dict(state)
