"""A reward model learned from preferences: the Bradley-Terry model on a transformer with a scalar head.

For each training word it sees the right answer, samples of the supervised model, near misses and the copied word, and
learns the preference of a labeller who takes the right answer over any other.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rlhf_runtime.algorithms.counter_rng import DATA_STREAM, StepSeed, permutation
from rlhf_runtime.engines.batches import Batch, trim_padding
from rlhf_runtime.engines.rollout.base import RolloutResult, SamplingConfig
from rlhf_runtime.engines.rollout.cached import CachedRollout
from rlhf_runtime.engines.scalar_outputs import compute_scores, response_scores
from rlhf_runtime.models.builtin import Progress
from rlhf_runtime.models.content_cache import cached_folder
from rlhf_runtime.models.heads import ScalarHeadModel
from rlhf_runtime.models.loading import load_causal_lm, load_scalar_model, load_tokenizer
from rlhf_runtime.tasks.base import Task
from rlhf_runtime.tasks.corruptions import near_miss

CODE_VERSION = 1
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

    samples: int = 2
    candidates: int = 5
    near_misses: int = 2
    temperature: float = 1.0
    max_new_tokens: int = 7
    heldout_words: int = 400
    steps: int = 250
    words_per_step: int = 40
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


def bradley_terry_loss(scores: Tensor, quality: Tensor) -> Tensor:
    """-mean log sigma(s_w - s_l) over all pairs of a row of which one is preferred.

    Bradley and Terry (1952); Ouyang et al., "Training language models to follow instructions" (2022), equation 1, with
    all pairs of a prompt in one batch.

    Args:
        scores: (W, K).
        quality: (W, K).

    Returns:
        scalar.
    """
    preferred = quality[:, :, None] > quality[:, None, :]
    margins = scores[:, :, None] - scores[:, None, :]
    return -logsigmoid(margins[preferred]).mean()


def pair_accuracy(scores: Tensor, quality: Tensor) -> float:
    """The share of pairs, of which one is preferred, that the scores (W, K) order as the quality (W, K) does."""
    preferred = quality[:, :, None] > quality[:, None, :]
    margins = scores[:, :, None] - scores[:, None, :]
    return float((margins[preferred] > 0).float().mean())


def spelling_reward_model(
    task: Task, policy: Path, *, config: RewardModelConfig | None = None, progress: Progress | None = None
) -> Path:
    """The folder of the reward model for the spelling task; trained first if the cache has none.

    Args:
        task: prompts ``word=`` and answers; only those for training are used.
        policy: the folder of the supervised model, whose body it starts from and whose samples it judges.
        config: data and training.
        progress: told (steps done, steps in all).

    Returns:
        a folder for ``load_reward_model``.
    """
    config = config or RewardModelConfig()
    # A cached policy's folder name is its content's hash.
    content = {"policy": policy.name, "config": asdict(config), "task": task.name, "code": CODE_VERSION}

    def build(folder: Path) -> None:
        tokenizer = load_tokenizer(policy)
        preferences, samples = make_preferences(task, load_causal_lm(policy), tokenizer, config=config)
        model = load_scalar_model(policy)
        train_reward_model(model, preferences.rows(slice(config.heldout_words, None)), config=config, progress=progress)
        normalize(model, samples)
        model.save(folder)

    return cached_folder("reward-spelling", content=content, build=build)


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
    for word, (prompt, answer) in enumerate(zip(task.train_prompts, task.train_answers, strict=True)):
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


def train_reward_model(
    model: ScalarHeadModel,
    preferences: Preferences,
    *,
    config: RewardModelConfig,
    progress: Progress | None = None,
) -> None:
    """Minimise the Bradley-Terry loss.

    Args:
        model: changed.
        preferences: the training words.
        config: the settings.
        progress: told (steps done, steps in all).
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    words = preferences.quality.shape[0]
    model.train()
    for step, rows in enumerate(_word_batches(words, config)):
        part = preferences.rows(rows)
        rise, fall = (step + 1) / config.warmup_steps, 1.5 * (config.steps - step) / config.steps
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * min(1.0, rise, fall)
        scores = response_scores(model, **trim_padding(part.flat())).view(part.quality.shape)
        loss = bradley_terry_loss(scores, part.quality)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress:
            progress(step + 1, config.steps)
    model.eval()


def normalize(model: ScalarHeadModel, samples: Batch) -> None:
    """Shift and scale the scores so that the policy's samples have mean 0 and standard deviation 1."""
    scores = compute_scores(model, samples, micro_batch_size=2048)
    model.shift.copy_(scores.mean())
    model.scale.copy_(scores.std())


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


def _word_batches(words: int, config: RewardModelConfig) -> list[Tensor]:
    epochs = -(-config.steps * config.words_per_step // words)
    orders = [
        torch.from_numpy(permutation(words, seed=StepSeed(job=config.seed, step=2), stream=DATA_STREAM, epoch=epoch))
        for epoch in range(epochs)
    ]
    return list(torch.split(torch.cat(orders), config.words_per_step)[: config.steps])
