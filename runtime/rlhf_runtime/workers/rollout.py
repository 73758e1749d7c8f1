"""A rollout role: replicas that generate with the actor's weights, and do nothing else."""

from __future__ import annotations

from typing import Any

import torch

from rlhf_runtime.engines.ranks import own_device
from rlhf_runtime.engines.rollout import make_rollout_engine
from rlhf_runtime.engines.weight_sync import Told, receive, version_of
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_causal_lm, load_tokenizer, skeleton_of
from rlhf_runtime.worker import Effect, Worker, register
from rlhf_runtime.workers.generating import PADDED_LEFT, GenerationSettings, Generator

_PARTS = 2


class RolloutWorker(Worker):
    """One replica. It has no state of its own: each request says which weights it is for.

    Args:
        model: A folder or a Hugging Face id: the policy as it was at first, of which vLLM takes the shape alone.
        settings: How to generate.
        model_field: The manifest's field that named the model, for messages.
        dtype: Of its weights and of what it computes: "float32" or "bfloat16".
    """

    imports = SLOW_IMPORTS

    def __init__(
        self, model: str, settings: GenerationSettings, model_field: str = "spec.model", dtype: str = "float32"
    ) -> None:
        kind: torch.dtype = getattr(torch, dtype)
        if settings.engine == "vllm":
            policy = skeleton_of(model, field=model_field, dtype=kind)
        else:
            policy = load_causal_lm(model, field=model_field, dtype=kind).to(own_device(self.context))
        self._engine = make_rollout_engine(settings.engine, policy, settings.vllm)
        self.engines = {"rollout": self._engine.name}
        self._loaded: int | None = None
        self._generator = Generator(
            load_tokenizer(model, field=model_field),
            model=policy,
            engine=self._engine,
            settings=settings,
            context=self.context,
        )

    @register(effect=Effect.READ, durable=True, pad=PADDED_LEFT, parts_per_worker=_PARTS)
    def generate(self, prompts: list[str], weights: Told) -> dict[str, Any]:
        """Sample responses: see `Generator.sample`.

        Args:
            prompts: B texts.
            weights: What the actor's `publish_weights` gave.

        Raises:
            WeightsLostError: The weights cannot be had; they must be published again.
            ValueError: A prompt is empty, or longer than the model takes.
        """
        return self._generator.sample(prompts, version=self._load(weights))

    @register(effect=Effect.READ, parts_per_worker=_PARTS)
    def evaluate(self, prompts: list[str], answers: list[str], weights: Told) -> dict[str, Any]:
        """Which greedy responses are the answer: `accuracy`, B numbers."""
        self._load(weights)
        return {"accuracy": self._generator.accuracy(prompts, answers)}

    def _load(self, told: Told) -> int:
        version = version_of(told)
        if version != self._loaded:
            self._loaded = None  # what follows may be broken off
            self._engine.refresh(receive(told, self.context.state, own_device(self.context)))
            self._loaded = version
        return version
