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
from rlhf_runtime.engines.adapters import LoRASettings, add_adapters, without_adapters
from rlhf_runtime.engines.logprobs import compute_log_probs, response_statistics
from rlhf_runtime.engines.ranks import ALONE, join_ranks, own_device
from rlhf_runtime.engines.rollout import SamplingConfig, VLLMSettings, make_rollout_engine
from rlhf_runtime.engines.trained import ShardingConfig, TrainedModel
from rlhf_runtime.engines.training import ActorUpdateConfig, OptimizerConfig, actor_update
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.models.exporting import export_to
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_causal_lm, load_tokenizer, no_progress_bars
from rlhf_runtime.tasks.base import exact_match
from rlhf_runtime.worker import Dispatch, Effect, Worker, register
from rlhf_runtime.workers.prompts import encode_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """How responses are drawn in training; evaluation is greedy.

    Attributes:
        max_new_tokens: T.
        temperature: Of sampling.
        samples_per_prompt: n.
        engine: "auto", "cached", "transformers" or "vllm"; see `make_rollout_engine`.
        vllm: What vLLM is told of its device.
        max_log_prob_difference: The largest mean difference per token between the engine's log-probs and those of
            training, where these are computed again.
    """

    max_new_tokens: int
    temperature: float = 1.0
    samples_per_prompt: int = 1
    engine: str = "cached"
    vllm: VLLMSettings = field(default_factory=VLLMSettings)
    max_log_prob_difference: float = 0.1


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

    With `lora` adapters are trained in place of the model's own weights.
    """

    generation: GenerationSettings
    optimizer: OptimizerConfig
    update: ActorUpdateConfig = field(default_factory=ActorUpdateConfig)
    advantages: AdvantageSettings = field(default_factory=AdvantageSettings)
    sharding: ShardingConfig | None = None
    lora: LoRASettings | None = None


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

    @register(effect=Effect.READ, durable=True, pad={"prompt_ids": "left", "prompt_mask": "left"})
    def generate(self, prompts: list[str]) -> dict[str, Any]:
        """Sample responses.

        Args:
            prompts: B texts.

        Returns:
            With n samples per prompt, N = B * n rows, the samples of one prompt next to each other: `prompt_ids` and
            `prompt_mask` (N, P), `responses`, `response_mask` and `log_probs` (N, T), `texts` (N strings), and
            `policy_version` (N,): which version of the weights made each sample.

        Raises:
            ValueError: A prompt is longer than the model takes.
        """
        n = self._settings.generation.samples_per_prompt
        first = self.context.call.row_offset * n
        return self._generate(prompts, n=n, sample_ids=torch.arange(first, first + len(prompts) * n), greedy=False)

    @register(effect=Effect.READ)
    def evaluate(self, prompts: list[str], answers: list[str]) -> dict[str, Any]:
        """Which greedy responses are the answer, letter by letter.

        Args:
            prompts: B held-out texts.
            answers: B texts.

        Returns:
            `accuracy`: B numbers, 1 for a right response and 0 for a wrong one.
        """
        texts = self._generate(prompts, n=1, sample_ids=None, greedy=True)["texts"]
        return {"accuracy": [float(exact_match(text, answer)) for text, answer in zip(texts, answers, strict=True)]}

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

    def _generate(self, prompts: list[str], *, n: int, sample_ids: Tensor | None, greedy: bool) -> dict[str, Any]:
        settings = self._settings.generation
        ids, mask = encode_prompts(self._tokenizer, prompts, model=self._whole, room_for=settings.max_new_tokens)
        device = next(self._whole.parameters()).device
        result = self._rollout.generate(
            ids.to(device),
            prompt_mask=mask.to(device),
            sampling=SamplingConfig(
                max_new_tokens=settings.max_new_tokens,
                eos_token_id=self._tokenizer.eos_token_id,
                pad_token_id=self._tokenizer.pad_token_id,
                samples_per_prompt=n,
                temperature=settings.temperature,
                greedy=greedy,
            ),
            seed=StepSeed(job=self.context.seed, step=self.context.call.iteration),
            sample_ids=sample_ids,
        ).to(torch.device("cpu"))
        texts = self._tokenizer.batch_decode(
            [row[kept.bool()] for row, kept in zip(result.responses, result.response_mask, strict=True)],
            skip_special_tokens=True,
        )
        return {
            "prompt_ids": ids.repeat_interleave(n, dim=0),
            "prompt_mask": mask.repeat_interleave(n, dim=0),
            "responses": result.responses,
            "response_mask": result.response_mask,
            "log_probs": result.log_probs,
            "texts": list(texts),
            "policy_version": torch.full((len(texts),), self.context.version),
        }
