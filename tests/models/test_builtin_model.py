import dataclasses

import pytest
import torch

from rlhf_runtime.models.builtin import (
    CHARACTERS,
    WarmupConfig,
    builtin_model,
    encode_examples,
    habit_examples,
    make_tokenizer,
    schedule,
)
from rlhf_runtime.models.loading import load_causal_lm, load_tokenizer


def test_every_character_is_one_token_and_comes_back():
    tokenizer = make_tokenizer()
    ids = tokenizer(CHARACTERS, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(set(ids)) == len(CHARACTERS)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == CHARACTERS


def test_prompts_are_padded_on_the_left(task, small):
    tokenizer = load_tokenizer(builtin_model(task, **small))
    encoded = tokenizer(["abc=", "a="], return_tensors="pt", padding=True)
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]
    assert encoded["input_ids"][1, :2].tolist() == [tokenizer.pad_token_id] * 2


def test_the_wanted_share_of_examples_shows_the_bad_habit(task):
    examples = habit_examples(task, WarmupConfig(examples=80, wrong_fraction=0.6))
    answers = dict(zip(task.train_prompts, task.train_answers, strict=True))
    copied = [prompt for prompt, shown in examples if shown == prompt.rstrip("=")]
    right = [prompt for prompt, shown in examples if shown == answers[prompt]]
    assert len(examples) == 80
    assert len(copied) == 48
    assert len(set(copied) | set(right)) == 80


def test_only_the_answer_and_its_end_are_learned():
    tokenizer = make_tokenizer()
    input_ids, labels = encode_examples(tokenizer, [("ab=", "ba"), ("a=", "a")])
    assert labels[0, :3].tolist() == [-100] * 3
    assert labels[0, 3:].tolist() == [*tokenizer("ba")["input_ids"], tokenizer.eos_token_id]
    assert labels[1].tolist() == [-100, -100, *tokenizer("a")["input_ids"], tokenizer.eos_token_id, -100, -100]
    assert torch.equal(labels[labels >= 0], input_ids[labels >= 0])


def test_the_learning_rate_rises_stays_and_falls():
    config = WarmupConfig(steps=100, warmup_steps=10)
    factors = [schedule(step, config) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9:50] == [1.0] * 41
    assert factors[99] == pytest.approx(0.02)
    assert factors == [*sorted(factors[:50]), *sorted(factors[50:], reverse=True)]


def test_the_model_is_made_once_the_same_by_seed_and_tells_its_progress(task, small, monkeypatch, tmp_path):
    told = []
    first = builtin_model(task, progress=lambda done, total: told.append((done, total)), **small)
    assert told == [(step, 6) for step in range(1, 7)]
    assert builtin_model(task, progress=lambda *_: pytest.fail("made again"), **small) == first

    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))
    torch.manual_seed(123)
    again = builtin_model(task, **small)
    for one, other in zip(load_causal_lm(first).parameters(), load_causal_lm(again).parameters(), strict=True):
        assert torch.equal(one, other)
    other_seed = builtin_model(task, **{**small, "warmup": dataclasses.replace(small["warmup"], seed=1)})
    assert other_seed != again


def test_making_a_model_leaves_the_global_random_numbers_alone(task, small):
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    builtin_model(task, **small)
    assert torch.equal(torch.rand(3), want)


def test_the_head_is_not_tied_to_the_embedding(task, small):
    model = load_causal_lm(builtin_model(task, **small))
    assert not model.config.tie_word_embeddings
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
