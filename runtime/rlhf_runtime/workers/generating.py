"""Prompts in, samples out: what the actor and a rollout role share, whatever engine draws the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.rollout import RolloutEngine, SamplingConfig, VLLMSettings
from rlhf_runtime.tasks.base import exact_match
from rlhf_runtime.worker import Side, WorkerContext
from rlhf_runtime.workers.prompts import encode_prompts

PADDED_LEFT: Mapping[str, Side] = {"prompt_ids": "left", "prompt_mask": "left"}


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


class Generator:
    """Draws responses to texts.

    Args:
        tokenizer: Pads on the left.
        model: Its config says how many positions the policy takes.
        engine: Draws the tokens.
        settings: How.
        context: Of the worker that it belongs to.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        model: nn.Module,
        engine: RolloutEngine,
        settings: GenerationSettings,
        context: WorkerContext,
    ) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._engine = engine
        self._settings = settings
        self._context = context

    def sample(self, prompts: list[str], *, version: int) -> dict[str, Any]:
        """Responses for training.

        Args:
            prompts: B texts.
            version: Of the weights.

        Returns:
            With n samples per prompt, N = B * n rows, the samples of one prompt next to each other: `prompt_ids` and
            `prompt_mask` (N, P), `responses`, `response_mask` and `log_probs` (N, T), `texts` (N strings), and
            `policy_version` (N,): which version of the weights made each sample.

        Raises:
            ValueError: A prompt is empty, or longer than the model takes.
        """
        n = self._settings.samples_per_prompt
        first = self._context.call.row_offset * n
        ids = torch.arange(first, first + len(prompts) * n)
        samples = self._draw(prompts, n=n, sample_ids=ids, greedy=False)
        return samples | {"policy_version": torch.full((len(ids),), version)}

    def greedy_texts(self, prompts: list[str]) -> list[str]:
        """The most likely responses."""
        texts: list[str] = self._draw(prompts, n=1, sample_ids=None, greedy=True)["texts"]
        return texts

    def accuracy(self, prompts: list[str], answers: list[str]) -> list[float]:
        """Of each prompt, 1 if the greedy response is the answer, letter by letter, else 0."""
        texts = self.greedy_texts(prompts)
        return [float(exact_match(text, answer)) for text, answer in zip(texts, answers, strict=True)]

    def _draw(self, prompts: list[str], *, n: int, sample_ids: Tensor | None, greedy: bool) -> dict[str, Any]:
        settings = self._settings
        ids, mask = encode_prompts(self._tokenizer, prompts, model=self._model, room_for=settings.max_new_tokens)
        result = self._engine.generate(
            ids.to(self._engine.device),
            prompt_mask=mask.to(self._engine.device),
            sampling=SamplingConfig(
                max_new_tokens=settings.max_new_tokens,
                eos_token_id=self._tokenizer.eos_token_id,
                pad_token_id=self._tokenizer.pad_token_id,
                samples_per_prompt=n,
                temperature=settings.temperature,
                greedy=greedy,
            ),
            seed=StepSeed(job=self._context.seed, step=self._context.call.iteration),
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
        }
