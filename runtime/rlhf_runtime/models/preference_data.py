"""Preference data for the spelling task: for each word the answer, and texts that a labeller likes less.

The wrong texts are near misses and the supervised model's own mistakes, all different, so that no pair is a tie.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.batches import Batch
from rlhf_runtime.engines.rollout.base import RolloutResult, SamplingConfig
from rlhf_runtime.engines.rollout.cached import CachedRollout
from rlhf_runtime.tasks.base import Task
from rlhf_runtime.tasks.corruptions import near_miss

SAMPLED_WORDS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelConfig:
    """The preference data and the training.

    Attributes:
        samples: of the supervised model for each word.
        candidates: for each word, all different.
        near_misses: corrupted answers for each word.
        temperature: of the samples.
        max_new_tokens: of the samples, and of all that is ever scored.
        heldout_words: training words kept for the pair accuracy.
        steps: optimizer steps.
        words_per_step: words whose candidates are compared in one step.
        learning_rate: at its height; linear rise and fall.
        warmup_steps: of the rise.
        seed: of samples, mistakes and order.
    """

    samples: int = 1
    candidates: int = 5
    near_misses: int = 2
    temperature: float = 1.0
    max_new_tokens: int = 7
    heldout_words: int = 400
    steps: int = 250
    words_per_step: int = 32
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Candidates of W words, K each.

    Attributes:
        prompt_ids: (W, P), padded on the left.
        prompt_mask: (W, P).
        responses: (W, K, T), padded on the right.
        response_mask: (W, K, T).
        quality: (W, K); of two candidates of a word the one with the higher number is preferred.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    responses: Tensor
    response_mask: Tensor
    quality: Tensor

    def rows(self, words: Tensor | slice) -> "Preferences":
        """Some of the words."""
        return Preferences(
            prompt_ids=self.prompt_ids[words],
            prompt_mask=self.prompt_mask[words],
            responses=self.responses[words],
            response_mask=self.response_mask[words],
            quality=self.quality[words],
        )

    def flat(self) -> Batch:
        """A batch with a row for each candidate, (W * K, ...)."""
        candidates = self.responses.shape[1]
        return {
            "prompt_ids": self.prompt_ids.repeat_interleave(candidates, dim=0),
            "prompt_mask": self.prompt_mask.repeat_interleave(candidates, dim=0),
            "responses": self.responses.flatten(0, 1),
            "response_mask": self.response_mask.flatten(0, 1),
        }


def make_preferences(
    task: Task, policy: nn.Module, tokenizer: Any, *, config: RewardModelConfig
) -> tuple[Preferences, Batch]:
    """Candidates and their quality for every training word, and the policy's samples alone.

    Args:
        task: prompts and answers.
        policy: the supervised model.
        tokenizer: of the model.
        config: how many of each kind.
    """
    encoded = tokenizer(list(task.train_prompts), return_tensors="pt", padding=True)
    prompt_ids, prompt_mask = encoded["input_ids"], encoded["attention_mask"]
    sampled = _sample(policy, tokenizer, prompt_ids, prompt_mask, config=config)
    words, width = len(task.train_prompts), config.max_new_tokens
    sampled_texts = tokenizer.batch_decode(sampled.responses, skip_special_tokens=True)
    rng = random.Random(config.seed)
    texts: list[str] = []
    quality: list[list[float]] = []
    for word, answer in enumerate(task.train_answers):
        own = sampled_texts[word * config.samples : (word + 1) * config.samples]
        candidates = choose_candidates(answer, own, count=config.candidates, near_misses=config.near_misses, rng=rng)
        texts += candidates
        quality.append([float(right) for right in task.is_correct(candidates, [answer] * len(candidates))])
    responses, mask = _encode_responses(tokenizer, texts, width=width)
    preferences = Preferences(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        responses=responses.view(words, -1, width),
        response_mask=mask.view(words, -1, width),
        quality=torch.tensor(quality),
    )
    samples = {
        "prompt_ids": prompt_ids.repeat_interleave(config.samples, dim=0),
        "prompt_mask": prompt_mask.repeat_interleave(config.samples, dim=0),
        "responses": sampled.responses,
        "response_mask": sampled.response_mask,
    }
    return preferences, samples


def choose_candidates(
    answer: str, samples: Sequence[str], *, count: int, near_misses: int, rng: random.Random
) -> list[str]:
    """The answer first, then different wrong texts: near misses, the policy's own mistakes, more near misses."""
    chosen = dict.fromkeys([answer])
    while len(chosen) < 1 + near_misses:
        chosen.setdefault(near_miss(answer, rng=rng))
    for text in samples:
        if len(chosen) < count:
            chosen.setdefault(text)
    while len(chosen) < count:
        chosen.setdefault(near_miss(answer, rng=rng))
    return list(chosen)


def _sample(
    policy: nn.Module, tokenizer: Any, prompt_ids: Tensor, prompt_mask: Tensor, *, config: RewardModelConfig
) -> RolloutResult:
    sampling = SamplingConfig(
        max_new_tokens=config.max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        samples_per_prompt=config.samples,
        temperature=config.temperature,
    )
    seed = StepSeed(job=config.seed, step=0)
    engine = CachedRollout(policy)
    ids = torch.arange(len(prompt_ids) * config.samples)
    parts = [
        engine.generate(chunk, prompt_mask=mask, sampling=sampling, seed=seed, sample_ids=chunk_ids)
        for chunk, mask, chunk_ids in zip(
            torch.split(prompt_ids, SAMPLED_WORDS),
            torch.split(prompt_mask, SAMPLED_WORDS),
            torch.split(ids, SAMPLED_WORDS * config.samples),
            strict=True,
        )
    ]
    return RolloutResult(
        responses=torch.cat([part.responses for part in parts]),
        response_mask=torch.cat([part.response_mask for part in parts]),
        log_probs=torch.cat([part.log_probs for part in parts]),
    )


def _encode_responses(tokenizer: Any, texts: Sequence[str], *, width: int) -> tuple[Tensor, Tensor]:
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    responses = torch.full((len(rows), width), tokenizer.pad_token_id)
    mask = torch.zeros_like(responses)
    for index, row in enumerate(rows):
        tokens = [*row, tokenizer.eos_token_id][:width]
        responses[index, : len(tokens)] = torch.tensor(tokens)
        mask[index, : len(tokens)] = 1
    return responses, mask
