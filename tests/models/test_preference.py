import random

import pytest
import torch

from rlhf_runtime.engines.scalar_outputs import compute_scores
from rlhf_runtime.models.builtin import builtin_model
from rlhf_runtime.models.loading import load_causal_lm, load_reward_model, load_scalar_model, load_tokenizer
from rlhf_runtime.models.preference import (
    bradley_terry_loss,
    normalize,
    pair_accuracy,
    spelling_reward_model,
    train_reward_model,
)
from rlhf_runtime.models.preference_data import RewardModelConfig, choose_candidates, make_preferences
from rlhf_runtime.tasks.corruptions import near_miss

CONFIG = RewardModelConfig(samples=2, steps=3, words_per_step=8, heldout_words=20, warmup_steps=1)


def test_the_loss_is_the_mean_over_all_pairs_with_a_preference():
    scores = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    quality = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    margins = torch.tensor([1.5, 3.0, 1.0, 3.0])
    torch.testing.assert_close(bradley_terry_loss(scores, quality), torch.log1p((-margins).exp()).mean())
    assert pair_accuracy(scores, quality) == 1.0
    assert pair_accuracy(-scores, quality) == 0.0


@pytest.mark.parametrize("answer", ["olleh", "aaa", "ab", "Zz"])
def test_a_near_miss_is_never_the_answer_and_seldom_far(answer):
    rng = random.Random(0)
    misses = [near_miss(answer, rng=rng) for _ in range(300)]
    assert answer not in misses
    assert all(abs(len(miss) - len(answer)) <= 2 for miss in misses)
    assert len(set(misses)) > 10


def test_candidates_are_the_answer_and_different_wrong_texts():
    rng = random.Random(1)
    for samples in [[], ["cba"], ["abc", "abc"], ["cba", "abc", "xyz", "x"]]:
        candidates = choose_candidates("cba", samples, count=5, near_misses=2, rng=rng)
        assert candidates[0] == "cba"
        assert len(set(candidates)) == len(candidates) == 5
        assert "abc" in candidates or "abc" not in samples


def test_preferences_hold_the_texts_with_their_quality(task, small):
    folder = builtin_model(task, **small)
    tokenizer = load_tokenizer(folder)
    preferences, samples = make_preferences(task, load_causal_lm(folder), tokenizer, config=CONFIG)
    assert preferences.responses.shape == (100, 5, 7)
    assert samples["responses"].shape == (200, 7)
    texts = tokenizer.batch_decode(preferences.responses.flatten(0, 1), skip_special_tokens=True)
    for word, answer in enumerate(task.train_answers):
        assert texts[word * 5] == answer
        assert preferences.quality[word].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    flat = preferences.rows(torch.tensor([3, 7])).flat()
    assert torch.equal(flat["responses"], torch.cat([preferences.responses[3], preferences.responses[7]]))


def test_training_learns_the_preference_and_normalizes_the_scores(task, small):
    folder = builtin_model(task, **small)
    config = RewardModelConfig(steps=60, words_per_step=20, heldout_words=0, warmup_steps=5, learning_rate=5e-3)
    preferences, samples = make_preferences(task, load_causal_lm(folder), load_tokenizer(folder), config=config)
    model = load_scalar_model(folder)
    train_reward_model(model, preferences, config=config)
    normalize(model, samples)
    scores = compute_scores(model, preferences.flat()).view(preferences.quality.shape)
    assert pair_accuracy(scores, preferences.quality) > 0.85
    of_samples = compute_scores(model, samples)
    assert abs(of_samples.mean().item()) < 1e-3
    assert of_samples.std().item() == pytest.approx(1.0, abs=1e-3)


def test_the_reward_model_is_made_once_and_loads(task, small):
    folder = builtin_model(task, **small)
    told = []
    made = spelling_reward_model(task, folder, config=CONFIG, progress=lambda *counts: told.append(counts))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert spelling_reward_model(task, folder, config=CONFIG, progress=lambda *_: pytest.fail("made again")) == made
    assert load_reward_model(made).scale.item() > 0
    assert (made / "training.json").is_file()
