"""Our own generation loop: the prompt is read once and its cache repeated for the samples of the group.

Works with any causal language model of transformers that takes a ``DynamicCache``.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed, uniforms
from rlhf_runtime.engines.logprobs import eval_mode, positions_of, token_log_probs
from rlhf_runtime.engines.rollout.base import (
    RolloutResult,
    SamplingConfig,
    SharesParameters,
    choose_tokens,
    global_sample_ids,
)


class CachedRollout(SharesParameters):
    """Rollout engine ``cached``."""

    name = "cached"

    @torch.no_grad()
    def generate(
        self,
        prompt_ids: Tensor,
        *,
        prompt_mask: Tensor,
        sampling: SamplingConfig,
        seed: StepSeed,
        sample_ids: Tensor | None = None,
    ) -> RolloutResult:
        """See ``RolloutEngine.generate``."""
        noise = sampling_noise(prompt_ids, sampling=sampling, seed=seed, sample_ids=sample_ids)
        with eval_mode(self._model):
            decoder = _Decoder(self._model, prompt_ids, prompt_mask, copies=sampling.samples_per_prompt)
            return decode(decoder, noise=noise, sampling=sampling)


class Decoder(Protocol):
    """One autoregressive pass over a batch: the logits after the prompt, then after each chosen token."""

    def prompt_logits(self) -> Tensor:
        """Logits (N, V) of the first response token."""
        ...

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Logits (N, V) after ``tokens`` (N,) were appended."""
        ...


def sampling_noise(
    prompt_ids: Tensor, *, sampling: SamplingConfig, seed: StepSeed, sample_ids: Tensor | None
) -> Tensor:
    """The uniform numbers (N, T) of every sample and position, float64 on the prompts' device."""
    count = prompt_ids.shape[0] * sampling.samples_per_prompt
    ids = global_sample_ids(count, sample_ids)
    numbers = uniforms(seed, sample_ids=ids.cpu().numpy(), length=sampling.max_new_tokens)
    return torch.from_numpy(numbers).to(prompt_ids.device)


def decode(decoder: Decoder, *, noise: Tensor, sampling: SamplingConfig) -> RolloutResult:
    """Draw tokens until every row has ended or ``max_new_tokens`` is reached.

    Args:
        decoder: gives the logits.
        noise: (N, T) uniform numbers.
        sampling: how to draw.

    Returns:
        responses of the full width T, whenever the rows ended.
    """
    responses = torch.full(noise.shape, sampling.pad_token_id, dtype=torch.int64, device=noise.device)
    response_mask = torch.zeros_like(responses)
    log_probs = torch.zeros(noise.shape, dtype=torch.float32, device=noise.device)
    running = torch.ones(noise.shape[0], dtype=torch.bool, device=noise.device)
    logits = decoder.prompt_logits()
    for t in range(sampling.max_new_tokens):
        chosen = choose_tokens(logits, uniform=noise[:, t], sampling=sampling)
        responses[:, t] = torch.where(running, chosen, sampling.pad_token_id)
        response_mask[:, t] = running
        log_probs[:, t] = torch.where(running, token_log_probs(logits, chosen), 0.0)
        running &= chosen != sampling.eos_token_id
        if t + 1 == sampling.max_new_tokens or not running.any():
            break
        logits = decoder.next_logits(responses[:, t])
    return RolloutResult(responses=responses, response_mask=response_mask, log_probs=log_probs)


class _Decoder:
    """A transformers model with a growing cache."""

    def __init__(self, model: nn.Module, prompt_ids: Tensor, prompt_mask: Tensor, *, copies: int) -> None:
        self._model = model
        self._prompt_ids = prompt_ids
        self._copies = copies
        self._mask = prompt_mask.long()
        from transformers import DynamicCache  # seconds, which only a process that generates should pay

        self._cache = DynamicCache(config=model.config)

    def prompt_logits(self) -> Tensor:
        logits = self._forward(self._prompt_ids, positions_of(self._mask))
        if self._copies > 1:
            self._cache.batch_repeat_interleave(self._copies)
            self._mask = self._mask.repeat_interleave(self._copies, dim=0)
            logits = logits.repeat_interleave(self._copies, dim=0)
        self._position = self._mask.sum(dim=1, keepdim=True)
        return logits

    def next_logits(self, tokens: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, torch.ones_like(self._position)], dim=1)
        logits = self._forward(tokens.unsqueeze(1), self._position)
        self._position = self._position + 1
        return logits

    def _forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        output: Any = self._model(
            input_ids=input_ids,
            attention_mask=self._mask,
            position_ids=position_ids,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits
