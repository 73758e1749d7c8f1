import numpy as np
import numpy_reference as reference
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_runtime.algorithms.advantages import (
    gae,
    group_normalized_advantages,
    kl_penalized_rewards,
    masked_mean,
    whiten,
)


def torched(*arrays):
    return [torch.from_numpy(array) for array in arrays]


def test_rewards_carry_the_kl_penalty_on_each_token_and_the_score_on_the_last(tensors):
    scores, log_probs, ref = tensors.scores(), tensors.normal(), tensors.normal()
    got_scores, got_log_probs, got_ref, mask = torched(scores, log_probs, ref, tensors.mask)
    got = kl_penalized_rewards(
        got_scores, log_probs=got_log_probs, ref_log_probs=got_ref, response_mask=mask, kl_coefficient=0.3
    )
    np.testing.assert_allclose(got, reference.penalized_rewards(scores, log_probs, ref, tensors.mask, 0.3), atol=1e-12)


def test_an_empty_response_gets_no_reward():
    zeros = torch.zeros(1, 3)
    got = kl_penalized_rewards(
        torch.ones(1), log_probs=zeros, ref_log_probs=zeros, response_mask=zeros, kl_coefficient=0.1
    )
    assert got.abs().sum() == 0


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (0.99, 0.0), (1.0, 1.0)])
def test_gae_equals_the_sum_over_the_future(tensors, gamma, lam):
    rewards, values = tensors.normal() * tensors.mask, tensors.normal()
    got = gae(
        *torched(rewards),
        values=torch.from_numpy(values),
        response_mask=torch.from_numpy(tensors.mask),
        gamma=gamma,
        lam=lam,
    )
    want = reference.gae(rewards, values, tensors.mask, gamma, lam)
    np.testing.assert_allclose(got[0], want[0], atol=1e-12)
    np.testing.assert_allclose(got[1], want[1], atol=1e-12)


def test_whitened_values_have_mean_0_and_variance_1(tensors):
    values, mask = torched(tensors.normal(3.0) + 7, tensors.mask)
    got = whiten(values, mask)
    np.testing.assert_allclose(got, reference.whiten(values.numpy(), tensors.mask), atol=1e-10)
    assert masked_mean(got, mask).abs() < 1e-9
    assert abs(masked_mean(got**2, mask) - 1) < 1e-6


def test_group_advantages_compare_the_samples_of_one_prompt(tensors):
    scores = tensors.scores()
    got = group_normalized_advantages(
        torch.from_numpy(scores), response_mask=torch.from_numpy(tensors.mask), group_size=3
    )
    np.testing.assert_allclose(got, reference.group_advantages(scores, tensors.mask, 3), atol=1e-12)


def test_a_group_of_equal_scores_teaches_nothing():
    got = group_normalized_advantages(torch.full((4,), 0.7), response_mask=torch.ones(4, 2), group_size=4)
    assert got.abs().max() == 0


@pytest.mark.parametrize("group_size", [1, 4, 7])
def test_rows_must_be_whole_groups_of_two_or_more(group_size):
    with pytest.raises(ValueError, match="whole groups"):
        group_normalized_advantages(torch.zeros(6), response_mask=torch.ones(6, 2), group_size=group_size)


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=6).filter(lambda lengths: len(lengths) % 2 == 0),
    extra=st.integers(1, 3),
    filler=st.sampled_from([0.0, -123.0, float("inf"), float("nan")]),
    seed=st.integers(0, 1000),
)
def test_padding_never_changes_an_advantage(lengths, extra, filler, seed):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = len(lengths), max(lengths)
    mask = (torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]).long()
    values, log_probs, ref = (torch.randn(rows, columns, generator=generator) for _ in range(3))
    scores = torch.randn(rows, generator=generator)

    def results(pad):
        def widened(tensor, fill):
            return torch.cat([tensor.masked_fill(mask == 0, fill), torch.full((rows, pad), fill)], dim=1)

        wide_mask = torch.cat([mask, torch.zeros(rows, pad, dtype=torch.long)], dim=1)
        fill = filler if pad else 0.0
        rewards = kl_penalized_rewards(
            scores,
            log_probs=widened(log_probs, fill),
            ref_log_probs=widened(ref, fill),
            response_mask=wide_mask,
            kl_coefficient=0.1,
        )
        advantages, returns = gae(rewards, values=widened(values, fill), response_mask=wide_mask, gamma=0.99, lam=0.9)
        grouped = group_normalized_advantages(scores, response_mask=wide_mask, group_size=2)
        return [part[:, :columns] for part in (rewards, advantages, returns, whiten(advantages, wide_mask), grouped)]

    for plain, padded in zip(results(0), results(extra), strict=True):
        torch.testing.assert_close(plain, padded)
