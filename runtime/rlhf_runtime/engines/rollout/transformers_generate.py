"""Rollout engine ``transformers``: the library's own ``generate``, for any causal language model.

The reference that ``cached`` is tested against. The draw is ours, made inside a logits processor that leaves
one possible token per row, so that both engines give the same tokens for the same seed.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.logprobs import eval_mode, token_log_probs
from rlhf_runtime.engines.rollout.base import RolloutResult, SamplingConfig, SharesParameters, choose_tokens
from rlhf_runtime.engines.rollout.cached import sampling_noise


class TransformersRollout(SharesParameters):
    """Rollout engine ``transformers``."""

    name = "transformers"

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
        draw = _CounterDraw(noise, prompt_length=prompt_ids.shape[1], sampling=sampling)
        model: Any = self._model
        with eval_mode(model):
            sequences: Tensor = model.generate(
                input_ids=prompt_ids.repeat_interleave(sampling.samples_per_prompt, dim=0),
                attention_mask=prompt_mask.repeat_interleave(sampling.samples_per_prompt, dim=0),
                generation_config=GenerationConfig(
                    max_new_tokens=sampling.max_new_tokens,
                    do_sample=False,
                    eos_token_id=sampling.eos_token_id,
                    pad_token_id=sampling.pad_token_id,
                ),
                logits_processor=LogitsProcessorList([draw]),
            )
        return _to_result(sequences[:, prompt_ids.shape[1] :], draw.log_probs, sampling=sampling)


class _CounterDraw:
    """Logits processor that draws the token itself and forbids every other."""

    def __init__(self, noise: Tensor, *, prompt_length: int, sampling: SamplingConfig) -> None:
        self._noise = noise
        self._prompt_length = prompt_length
        self._sampling = sampling
        self.log_probs = torch.zeros(noise.shape, dtype=torch.float32, device=noise.device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        t = input_ids.shape[1] - self._prompt_length
        logits = scores.float()
        chosen = choose_tokens(logits, uniform=self._noise[:, t], sampling=self._sampling)
        self.log_probs[:, t] = token_log_probs(logits, chosen)
        return torch.full_like(scores, float("-inf")).scatter(1, chosen.unsqueeze(1), 0.0)


def _to_result(generated: Tensor, log_probs: Tensor, *, sampling: SamplingConfig) -> RolloutResult:
    responses = torch.full(log_probs.shape, sampling.pad_token_id, dtype=torch.int64, device=log_probs.device)
    responses[:, : generated.shape[1]] = generated
    is_end = (responses == sampling.eos_token_id).long()
    response_mask = (is_end.cumsum(dim=1) - is_end == 0).long()
    response_mask[:, generated.shape[1] :] = 0
    return RolloutResult(
        responses=torch.where(response_mask.bool(), responses, sampling.pad_token_id),
        response_mask=response_mask,
        log_probs=torch.where(response_mask.bool(), log_probs, 0.0),
    )
