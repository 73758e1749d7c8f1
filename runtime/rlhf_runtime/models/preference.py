"""A reward model learned from preferences: the Bradley-Terry model on a transformer with a scalar head.

It starts from the supervised model's body and learns the preference of a labeller who takes the right answer over any
other, then is put on a scale where the supervised model's samples have mean 0 and deviation 1. Made once and cached.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rlhf_runtime.algorithms.counter_rng import DATA_STREAM, StepSeed, permutation
from rlhf_runtime.engines.batches import Batch, trim_padding
from rlhf_runtime.engines.scalar_outputs import compute_scores, response_scores
from rlhf_runtime.models.builtin import Progress
from rlhf_runtime.models.content_cache import cached_folder, content_hash
from rlhf_runtime.models.heads import ScalarHeadModel
from rlhf_runtime.models.loading import load_causal_lm, load_scalar_model, load_tokenizer
from rlhf_runtime.models.preference_data import Preferences, RewardModelConfig, make_preferences
from rlhf_runtime.tasks.base import Task

CODE_VERSION = 3
NORMALIZING_SAMPLES = 2048


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
    content = {
        "policy": policy.name,  # a cached folder's name is the hash of its content
        "config": asdict(config),
        "data": content_hash([task.train_prompts, task.train_answers]),
        "code": CODE_VERSION,
    }

    def build(folder: Path) -> None:
        preferences, samples = make_preferences(task, load_causal_lm(policy), load_tokenizer(policy), config=config)
        heldout = preferences.rows(slice(config.heldout_words))
        model = load_scalar_model(policy)
        train_reward_model(model, preferences.rows(slice(config.heldout_words, None)), config=config, progress=progress)
        normalize(model, {name: rows[:NORMALIZING_SAMPLES] for name, rows in samples.items()})
        scores = compute_scores(model, heldout.flat()).view(heldout.quality.shape)
        (folder / "training.json").write_text(json.dumps({"pair_accuracy": pair_accuracy(scores, heldout.quality)}))
        model.save(folder)

    return cached_folder("reward-spelling", content=content, build=build)


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
    scores = compute_scores(model, samples)
    model.shift.copy_(scores.mean())
    model.scale.copy_(scores.std())


def _word_batches(words: int, config: RewardModelConfig) -> list[Tensor]:
    epochs = -(-config.steps * config.words_per_step // words)
    orders = [
        torch.from_numpy(permutation(words, seed=StepSeed(job=config.seed, step=2), stream=DATA_STREAM, epoch=epoch))
        for epoch in range(epochs)
    ]
    return list(torch.split(torch.cat(orders), config.words_per_step)[: config.steps])
