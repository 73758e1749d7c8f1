import dataclasses

import pytest
import torch
from tiny_models import EOS, PAD

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.logprobs import compute_log_probs
from rlhf_runtime.engines.rollout import SamplingConfig, make_rollout_engine
from rlhf_runtime.engines.rollout.base import choose_tokens

SEED = StepSeed(job=5, step=2)
SAMPLING = SamplingConfig(max_new_tokens=6, eos_token_id=EOS, pad_token_id=PAD, samples_per_prompt=3)
GREEDY = dataclasses.replace(SAMPLING, greedy=True)
HOT = dataclasses.replace(SAMPLING, temperature=2.5)
ENGINES = ["cached", "transformers"]


def generate(model, prompts, *, engine="cached", sampling=SAMPLING, seed=SEED, sample_ids=None):
    return make_rollout_engine(engine, model).generate(
        prompts[0], prompt_mask=prompts[1], sampling=sampling, seed=seed, sample_ids=sample_ids
    )


@pytest.mark.parametrize("sampling", [SAMPLING, GREEDY, HOT], ids=["sampled", "greedy", "hot"])
def test_both_engines_give_the_same_tokens_and_log_probs(model, prompts, sampling):
    ours, theirs = (generate(model, prompts, engine=engine, sampling=sampling) for engine in ENGINES)
    assert torch.equal(ours.responses, theirs.responses)
    assert torch.equal(ours.response_mask, theirs.response_mask)
    torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sampling", [SAMPLING, HOT], ids=["temperature 1", "temperature 2.5"])
@pytest.mark.parametrize("engine", ENGINES)
def test_log_probs_are_those_that_training_computes_whatever_the_temperature(model, prompts, engine, sampling):
    result = generate(model, prompts, engine=engine, sampling=sampling)
    batch = {
        "prompt_ids": prompts[0].repeat_interleave(3, dim=0),
        "prompt_mask": prompts[1].repeat_interleave(3, dim=0),
        "responses": result.responses,
        "response_mask": result.response_mask,
    }
    torch.testing.assert_close(result.log_probs, compute_log_probs(model, batch), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_response_ends_with_its_end_token_and_keeps_the_full_width(model, prompts, engine):
    result = generate(model, prompts, engine=engine, sampling=dataclasses.replace(HOT, samples_per_prompt=40))
    assert result.responses.shape == result.response_mask.shape == result.log_probs.shape == (160, 6)
    ended = 0
    for response, mask, log_probs in zip(result.responses, result.response_mask, result.log_probs, strict=True):
        length = int(mask.sum())
        assert mask[:length].all()
        assert (response[length:] == PAD).all()
        assert (log_probs[length:] == 0).all()
        assert EOS not in response[: length - 1]
        assert length == 6 or response[length - 1] == EOS
        ended += length < 6
    assert 0 < ended < 160


def test_a_sample_depends_on_its_index_not_on_its_batch(model, prompts):
    whole = generate(model, prompts)
    shard = generate(model, (prompts[0][2:], prompts[1][2:]), sample_ids=torch.arange(6, 12))
    assert torch.equal(whole.responses[6:], shard.responses)
    torch.testing.assert_close(whole.log_probs[6:], shard.log_probs, atol=1e-4, rtol=1e-4)


def test_more_left_padding_changes_no_token(model, prompts):
    wider = tuple(torch.nn.functional.pad(part, (3, 0), value=PAD) for part in prompts)
    plain, padded = generate(model, prompts), generate(model, wider)
    assert torch.equal(plain.responses, padded.responses)
    torch.testing.assert_close(plain.log_probs, padded.log_probs, atol=1e-4, rtol=1e-4)


def test_the_same_seed_gives_the_same_samples_and_another_step_others(model, prompts):
    first = generate(model, prompts)
    assert torch.equal(first.responses, generate(model, prompts).responses)
    later = generate(model, prompts, seed=StepSeed(job=5, step=3))
    assert not torch.equal(first.responses, later.responses)


def test_the_samples_of_one_prompt_differ(model, prompts):
    result = generate(model, prompts, sampling=dataclasses.replace(SAMPLING, samples_per_prompt=8))
    for group in result.responses.view(4, 8, -1):
        assert len(torch.unique(group, dim=0)) > 1


@pytest.mark.parametrize("engine", ENGINES)
def test_generation_runs_in_eval_mode_and_gives_the_mode_back(model, prompts, engine):
    seen = []
    model.model.norm.register_forward_hook(lambda module, *_: seen.append(module.training))
    model.train()
    result = generate(model, prompts, engine=engine)
    assert seen
    assert not any(seen)
    assert model.training
    assert not result.log_probs.requires_grad


def test_tokens_are_drawn_with_their_probabilities():
    logits = torch.tensor([0.0, 1.0, 2.0, float("-inf"), 0.5])
    draws = 20_000
    uniform = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    tokens = choose_tokens(logits.repeat(draws, 1), uniform=uniform, sampling=SAMPLING)
    shares = torch.bincount(tokens, minlength=5) / draws
    torch.testing.assert_close(shares, logits.softmax(0), atol=2e-4, rtol=0)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_interval_never_draw_an_impossible_token(uniform):
    logits = torch.tensor([[float("-inf"), 3.0, 1.0, float("-inf")]])
    token = choose_tokens(logits, uniform=torch.tensor([uniform], dtype=torch.float64), sampling=SAMPLING)
    assert token.item() in (1, 2)


def test_a_wrong_number_of_sample_ids_is_refused(model, prompts):
    with pytest.raises(ValueError, match="`sample_ids` must have shape"):
        generate(model, prompts, sample_ids=torch.arange(4))


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"max_new_tokens": 0}, {"samples_per_prompt": 0}])
def test_impossible_sampling_is_refused(change):
    with pytest.raises(ValueError, match="must be"):
        dataclasses.replace(SAMPLING, **change)


def test_an_unknown_engine_is_refused(model):
    with pytest.raises(ValueError, match="cached"):
        make_rollout_engine("warp", model)
