import pytest
import torch
from tiny_models import make_tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Gemma2Config, Gemma2ForCausalLM

from rlhf_runtime.engines.batches import trim_padding
from rlhf_runtime.engines.logprobs import (
    compute_log_probs,
    response_log_probs,
    response_logits,
    response_statistics,
    token_entropy,
)
from rlhf_runtime.engines.scalar_outputs import compute_scores, compute_values
from rlhf_runtime.models.heads import with_scalar_head

SEQUENCE = ("prompt_ids", "prompt_mask", "responses", "response_mask")


@pytest.fixture
def scalar_model(model):
    made = with_scalar_head(model).eval()
    with torch.no_grad():
        made.head.weight.normal_(generator=torch.Generator().manual_seed(9))
    return made


def sequence(batch):
    return {key: batch[key] for key in SEQUENCE}


def row_alone(batch, row):
    """One row without any padding, as one plain sequence: prompt and response tokens."""
    prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
    response = batch["responses"][row][batch["response_mask"][row].bool()]
    return prompt, response


def test_log_probs_equal_those_of_each_row_alone(model, batch):
    got = compute_log_probs(model, batch)
    for row in range(4):
        prompt, response = row_alone(batch, row)
        logits = model(input_ids=torch.cat([prompt, response])[None]).logits[0]
        want = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(got[row, : len(response)], want, atol=1e-4, rtol=1e-4)
        assert (got[row, len(response) :] == 0).all()


def test_values_are_those_of_the_state_before_each_token(scalar_model, batch):
    got = compute_values(scalar_model, batch)
    for row in range(4):
        prompt, response = row_alone(batch, row)
        tokens = torch.cat([prompt, response])[None]
        positions = torch.arange(tokens.shape[1])[None]
        numbers = scalar_model(tokens, attention_mask=torch.ones_like(tokens), position_ids=positions)[0]
        torch.testing.assert_close(got[row, : len(response)], numbers[len(prompt) - 1 : -1], atol=1e-4, rtol=1e-4)
        assert (got[row, len(response) :] == 0).all()


def test_a_score_is_the_sum_over_the_responses_tokens(scalar_model, batch):
    got = compute_scores(scalar_model, batch)
    for row in range(4):
        prompt, response = row_alone(batch, row)
        tokens = torch.cat([prompt, response])[None]
        positions = torch.arange(tokens.shape[1])[None]
        numbers = scalar_model(tokens, attention_mask=torch.ones_like(tokens), position_ids=positions)[0]
        torch.testing.assert_close(got[row], numbers[len(prompt) :].sum(), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("left", [0, 3])
@pytest.mark.parametrize("right", [0, 2])
def test_padding_changes_nothing(model, scalar_model, batch, left, right):
    pad = torch.nn.functional.pad
    wider = {
        name: pad(value, (left, 0)) if name.startswith("prompt") else pad(value, (0, right))
        for name, value in sequence(batch).items()
    }
    near = {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(compute_log_probs(model, wider)[:, :5], compute_log_probs(model, batch), **near)
    torch.testing.assert_close(compute_values(scalar_model, wider)[:, :5], compute_values(scalar_model, batch), **near)
    torch.testing.assert_close(compute_scores(scalar_model, wider), compute_scores(scalar_model, batch), **near)


def test_gradients_do_not_depend_on_padding(model, batch):
    pad = torch.nn.functional.pad

    def gradient(left, right):
        model.zero_grad()
        wider = {
            name: pad(value, (left, 0)) if name.startswith("prompt") else pad(value, (0, right))
            for name, value in sequence(batch).items()
        }
        response_log_probs(model, **wider).sum().backward()
        return torch.cat([parameter.grad.flatten().clone() for parameter in model.parameters()])

    torch.testing.assert_close(gradient(0, 0), gradient(3, 2), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("max_tokens", [1, 12, 20, 1000])
def test_the_number_of_passes_changes_nothing(model, scalar_model, batch, max_tokens):
    near = {"atol": 1e-5, "rtol": 1e-4}
    for compute, network in [
        (compute_log_probs, model),
        (compute_values, scalar_model),
        (compute_scores, scalar_model),
    ]:
        torch.testing.assert_close(compute(network, batch, max_tokens=max_tokens), compute(network, batch), **near)


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest tensor has that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
        return result


def wide_batch(batch, rows):
    return {key: value.repeat(rows, 1) for key, value in sequence(batch).items()}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_the_logits_of_a_long_batch_are_never_all_in_memory(batch, tied):
    vocabulary, tokens_at_once = 5000, 8
    model = make_tiny_model(1, vocab_size=vocabulary, tie_word_embeddings=tied)
    long = wide_batch(batch, 16)

    def statistics(limit):
        model.zero_grad()
        largest = LargestTensor()
        with largest:
            log_probs, entropy = response_statistics(model, **long, with_entropy=True, max_logits_bytes=limit)
            (log_probs.sum() + 0.3 * (entropy**2).sum()).backward()
        gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        return log_probs.detach(), entropy.detach(), gradients, largest.elements

    *whole, elements = statistics(2**40)
    *chunked, fewer = statistics(4 * vocabulary * tokens_at_once)
    for got, want in zip(chunked, whole, strict=True):
        torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-4)
    weights = max(parameter.numel() for parameter in model.parameters())
    assert elements == long["responses"].numel() * vocabulary
    assert fewer == max(weights, tokens_at_once * vocabulary)


def test_a_model_that_changes_its_logits_after_the_head_is_computed_as_it_is(batch):
    config = Gemma2Config(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=1.0, query_pre_attn_scalar=8,
    )  # fmt: skip
    torch.manual_seed(0)
    capped = Gemma2ForCausalLM(config).eval()
    with torch.no_grad():
        capped.lm_head.weight.mul_(100)
    plain = response_statistics(capped, **sequence(batch))
    torch.testing.assert_close(response_statistics(capped, **sequence(batch), max_logits_bytes=1), plain)
    assert plain.log_probs.min() > -8  # a cap of 1 on 60 logits: no token is very unlikely


def test_a_response_without_its_end_gets_the_set_score(scalar_model, batch):
    batch["responses"][1, 1] = 1
    plain = compute_scores(scalar_model, batch)
    got = compute_scores(scalar_model, batch, eos_token_id=1, missing_eos_score=-2.0)
    assert got.tolist() == [-2.0, plain[1].item(), -2.0, -2.0]


def test_scores_are_normalized(scalar_model, batch):
    raw = compute_scores(scalar_model, batch)
    scalar_model.shift.fill_(0.5)
    scalar_model.scale.fill_(4.0)
    torch.testing.assert_close(compute_scores(scalar_model, batch), (raw - 0.5) / 4)


def test_entropy_is_that_of_the_distribution(model, batch):
    logits = response_logits(
        model, prompt_ids=batch["prompt_ids"], prompt_mask=batch["prompt_mask"], responses=batch["responses"]
    )
    want = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(token_entropy(logits), want, atol=1e-5, rtol=1e-4)


def test_trimming_drops_only_columns_that_are_padding_in_every_row(batch):
    pad = torch.nn.functional.pad
    wider = {
        name: pad(value, (2, 0)) if name.startswith("prompt") else pad(value, (0, 3)) for name, value in batch.items()
    }
    wider["scores"] = torch.arange(4)
    trimmed = trim_padding(wider)
    assert torch.equal(trimmed.pop("scores"), torch.arange(4))
    for name, value in batch.items():
        assert torch.equal(trimmed[name], value), name


def test_a_missing_column_is_named(model, batch):
    del batch["prompt_mask"]
    with pytest.raises(KeyError, match="prompt_mask"):
        compute_log_probs(model, batch)
