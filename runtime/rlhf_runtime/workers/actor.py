"""The actor: generates, judges advantages, learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.advantages import (
    gae,
    group_normalized_advantages,
    kl_penalized_rewards,
    masked_mean,
    whiten,
)
from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.adapters import LoRASettings, add_adapters, checkpoint_weights, without_adapters
from rlhf_runtime.engines.logprobs import compute_log_probs, response_statistics
from rlhf_runtime.engines.ranks import ALONE, join_ranks, own_device
from rlhf_runtime.engines.rollout import make_rollout_engine
from rlhf_runtime.engines.trained import ShardingConfig, TrainedModel
from rlhf_runtime.engines.training import ActorUpdateConfig, OptimizerConfig, actor_update
from rlhf_runtime.engines.weight_sync import WeightSync, make_weight_sync
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.models.exporting import export_to
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_causal_lm, load_tokenizer, no_progress_bars
from rlhf_runtime.worker import Dispatch, Effect, Worker, register
from rlhf_runtime.workers.generating import PADDED_LEFT, GenerationSettings, Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSettings:
    """How rewards become advantages.

    Attributes:
        group_size: Responses per prompt that are judged against each other (GRPO); 0: GAE with a critic (PPO).
        gamma: Discount of GAE.
        gae_lambda: Lambda of GAE.
        kl_coefficient: Of the per-token penalty in the rewards (PPO).
        whiten: Whether GAE's advantages get mean 0 and variance 1.
    """

    group_size: int = 0
    gamma: float = 1.0
    gae_lambda: float = 0.95
    kl_coefficient: float = 0.0
    whiten: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSettings:
    """Everything that an `ActorWorker` is told; `sharding` where FSDP2 trains it, else plain torch on one rank.

    With `lora` adapters are trained in place of the model's own weights. `weight_sync` says how weights reach a
    rollout role: see `make_weight_sync`.
    """

    generation: GenerationSettings
    optimizer: OptimizerConfig
    update: ActorUpdateConfig = field(default_factory=ActorUpdateConfig)
    advantages: AdvantageSettings = field(default_factory=AdvantageSettings)
    sharding: ShardingConfig | None = None
    lora: LoRASettings | None = None
    weight_sync: str = "objects"


class RolloutMismatchError(RlhfError):
    """What was sampled does not come from the policy that is trained."""


class ActorWorker(Worker):
    """A policy on a Hugging Face causal language model.

    Args:
        model: A folder or a Hugging Face id.
        settings: Generation, optimizer and update.
        model_field: The manifest's field that named the model, for messages.
    """

    imports = SLOW_IMPORTS

    def __init__(self, model: str, settings: ActorSettings, model_field: str = "spec.model") -> None:
        self._settings = settings
        self._tokenizer = load_tokenizer(model, field=model_field)
        loaded = load_causal_lm(model, field=model_field)
        if settings.lora:
            add_adapters(loaded, settings.lora, seed=self.context.seed)
        self._trained = TrainedModel(
            loaded.to(own_device(self.context)),
            optimizer=settings.optimizer,
            ranks=join_ranks(self.context) if settings.sharding else ALONE,
            sharding=settings.sharding,
            forward_methods=[response_statistics],
            keep_whole=True,
            adapted=settings.lora is not None,
        )
        assert self._trained.whole is not None
        self._whole: nn.Module = self._trained.whole
        self._rollout = make_rollout_engine(settings.generation.engine, self._whole, settings.generation.vllm)
        self.engines = {"rollout": self._rollout.name}
        self._weight_sync: WeightSync | None = None  # made when somebody asks for weights
        self._generator = Generator(
            self._tokenizer,
            model=self._whole,
            engine=self._rollout,
            settings=settings.generation,
            context=self.context,
        )

    @register(effect=Effect.READ, durable=True, pad=PADDED_LEFT)
    def generate(self, prompts: list[str]) -> dict[str, Any]:
        """Sample responses to B texts: see `Generator.sample`.

        Raises:
            ValueError: A prompt is empty, or longer than the model takes.
        """
        return self._generator.sample(prompts, version=self.context.version)

    @register(effect=Effect.READ)
    def evaluate(self, prompts: list[str], answers: list[str]) -> dict[str, Any]:
        """Which greedy responses to B held-out texts are the answer, letter by letter.

        Returns:
            `accuracy`: B numbers, 1 for a right response and 0 for a wrong one.
        """
        return {"accuracy": self._generator.accuracy(prompts, answers)}

    @register(effect=Effect.READ, dispatch=Dispatch.RANK_ZERO)
    def publish_weights(self) -> dict[str, Any]:
        """Make the present weights available to a rollout role; `weights` is what its methods take.

        Raises:
            WeightSyncError: They are to go through the state store, and there is none.
        """
        if self._weight_sync is None:
            self._weight_sync = make_weight_sync(self._settings.weight_sync, self.context.state)
        return {"weights": self._weight_sync.publish(checkpoint_weights(self._whole), self.context.version)}

    @register(effect=Effect.READ, collective=True)
    def compute_log_probs(self, data: DataProto) -> dict[str, Tensor]:
        """Log-probs (N, T) of given responses under the present weights."""
        most, ranks = self._settings.update.max_tokens, self._trained.ranks
        return {"log_probs": compute_log_probs(self._trained.model, data.batch, max_tokens=most, ranks=ranks)}

    @register(effect=Effect.NONE, dispatch=Dispatch.RANK_ZERO, durable=True)
    def compute_advantages(self, data: DataProto) -> dict[str, Any]:
        """Advantages of a whole batch; touches no weights.

        Args:
            data: `response_mask`, `log_probs`, and `scores` or several `scores/ROLE` that are added; `ref_log_probs`
                where a KL coefficient is set; `values` with a critic; `rollout_log_probs` where `log_probs` were
                computed again after generation.

        Returns:
            `advantages` (N, T), with a critic also `returns` (N, T), and `metrics`.

        Raises:
            RolloutMismatchError: The rollout engine computed with other weights, or wrongly.
        """
        batch, settings = data.batch, self._settings.advantages
        mask = batch["response_mask"]
        by_role = {name: batch[name].float() for name in sorted(batch) if name.startswith("scores")}
        scores = torch.stack(list(by_role.values())).sum(dim=0)
        metrics = {"reward": float(scores.mean()), "tokens": float(mask.sum())}
        if len(by_role) > 1:
            metrics |= {f"reward/{name.removeprefix('scores/')}": float(each.mean()) for name, each in by_role.items()}
        if "rollout_log_probs" in batch:
            metrics["rollout_log_prob_difference"] = self._rollout_difference(batch)
        if "ref_log_probs" in batch:
            metrics["kl"] = float(masked_mean(batch["log_probs"] - batch["ref_log_probs"], mask))
        if settings.group_size:
            advantages = group_normalized_advantages(scores, response_mask=mask, group_size=settings.group_size)
            return {"advantages": advantages, "metrics": metrics}
        rewards = kl_penalized_rewards(
            scores,
            log_probs=batch["log_probs"],
            ref_log_probs=batch.get("ref_log_probs", batch["log_probs"]),
            response_mask=mask,
            kl_coefficient=settings.kl_coefficient,
        )
        advantages, returns = gae(
            rewards, values=batch["values"], response_mask=mask, gamma=settings.gamma, lam=settings.gae_lambda
        )
        if settings.whiten:
            advantages = whiten(advantages, mask)
        return {"advantages": advantages, "returns": returns, "metrics": metrics}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, data: DataProto) -> dict[str, Any]:
        """One policy update: epochs of shuffled minibatches of the clipped surrogate.

        Args:
            data: What `generate` and `compute_advantages` gave; `ref_log_probs` where the loss has a KL term.

        Returns:
            `metrics`: means over the optimizer steps.
        """
        seed = StepSeed(job=self.context.seed, step=self.context.call.iteration)
        self._rollout.release()
        metrics = self._trained.update(actor_update, data.batch, config=self._settings.update, seed=seed)
        self._rollout.refresh()
        return {"metrics": metrics}

    @register(effect=Effect.READ, dispatch=Dispatch.RANK_ZERO)
    def export(self, folder: str) -> dict[str, Any]:
        """Write model and tokenizer, to a folder or URI, so that `transformers` loads them."""
        model: Any = without_adapters(self._whole)

        def write(place: str) -> None:
            with no_progress_bars():
                model.save_pretrained(place)
                self._tokenizer.save_pretrained(place)

        export_to(folder, write)
        return {"folder": folder}

    def state_dict(self) -> Mapping[str, Any]:
        """Weights and optimizer."""
        return self._trained.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._trained.load_state_dict(state)
        self._rollout.refresh()

    def _rollout_difference(self, batch: Mapping[str, Tensor]) -> float:
        off = (batch["rollout_log_probs"] - batch["log_probs"]).abs()
        difference = float(masked_mean(off, batch["response_mask"]))
        limit = self._settings.generation.max_log_prob_difference
        if not difference <= limit:  # NaN too
            raise RolloutMismatchError(
                f"the rollout engine's log-probs differ from those of the training engine by {difference:.3g} per "
                f"token, more than `generation.maxLogProbDifference` {limit:g} allows: it has other weights, or its "
                "precision is too low for this model; `engine.rollout` Cached uses the training engine's own"
            )
        return difference
