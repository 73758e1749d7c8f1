import numpy as np
import numpy_reference as reference
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_runtime.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    entropy_bonus,
    grpo_loss,
    k3_kl,
    token_mean,
)

CLIP, BETA = 0.2, 0.05


def losses(tensors):
    """Each loss as (name, torch function, numpy function, the variable's value)."""
    old, ref, advantages, returns = (tensors.normal() for _ in range(4))
    mask = tensors.mask
    t_old, t_ref, t_advantages, t_returns, t_mask = map(torch.from_numpy, (old, ref, advantages, returns, mask))
    policy = {"old_log_probs": t_old, "advantages": t_advantages, "response_mask": t_mask, "clip_range": CLIP}
    value = {"old_values": t_old, "returns": t_returns, "response_mask": t_mask, "clip_range": CLIP}
    return {
        "policy": (
            lambda x: clipped_policy_loss(x, **policy),
            lambda x: reference.policy_loss(x, old, advantages, mask, CLIP),
        ),
        "value": (
            lambda x: clipped_value_loss(x, **value),
            lambda x: reference.value_loss(x, old, returns, mask, CLIP),
        ),
        "grpo": (
            lambda x: grpo_loss(x, ref_log_probs=t_ref, kl_coefficient=BETA, **policy),
            lambda x: reference.grpo_loss(x, old, ref, advantages, mask, CLIP, BETA),
        ),
        "kl": (
            lambda x: token_mean(k3_kl(x, t_ref), t_mask),
            lambda x: np.mean(reference.k3(x, ref)[mask.astype(bool)]),
        ),
        "entropy": (
            lambda x: entropy_bonus(x, response_mask=t_mask),
            lambda x: np.mean(x[mask.astype(bool)]),
        ),
    }, old


@pytest.mark.parametrize("name", ["policy", "value", "grpo", "kl", "entropy"])
def test_a_loss_equals_its_formula(tensors, name):
    pairs, old = losses(tensors)
    ours, formula = pairs[name]
    # Far enough from the old policy that some ratios are clipped, on both sides.
    point = old + tensors.normal(0.3)
    np.testing.assert_allclose(ours(torch.from_numpy(point)), formula(point), atol=1e-12)


@pytest.mark.parametrize("name", ["policy", "value", "grpo", "kl", "entropy"])
def test_a_gradient_equals_finite_differences(tensors, name):
    pairs, old = losses(tensors)
    ours, formula = pairs[name]
    point = old + tensors.normal(0.3)
    variable = torch.from_numpy(point.copy()).requires_grad_()
    ours(variable).backward()
    step = 1e-6
    for index in np.ndindex(point.shape):
        shift = np.zeros_like(point)
        shift[index] = step
        slope = (formula(point + shift) - formula(point - shift)) / (2 * step)
        assert variable.grad[index].item() == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "want_gradient"),
    [
        pytest.param(1.0, 0.5, False, id="a good token already much likelier is left alone"),
        pytest.param(1.0, -0.5, True, id="a good token that became unlikelier is pulled back"),
        pytest.param(-1.0, -0.5, False, id="a bad token already much unlikelier is left alone"),
        pytest.param(-1.0, 0.5, True, id="a bad token that became likelier is pushed down"),
    ],
)
def test_the_clip_is_one_sided(advantage, log_ratio, want_gradient):
    log_probs = torch.tensor([[log_ratio]], requires_grad=True)
    clipped_policy_loss(
        log_probs,
        old_log_probs=torch.zeros(1, 1),
        advantages=torch.tensor([[advantage]]),
        response_mask=torch.ones(1, 1),
        clip_range=CLIP,
    ).backward()
    assert (log_probs.grad.abs().sum() > 0) == want_gradient


@settings(deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    extra=st.integers(1, 3),
    filler=st.sampled_from([-55.0, float("inf"), float("nan")]),
    seed=st.integers(0, 1000),
)
def test_padding_never_changes_a_loss_or_its_gradient(rows, columns, extra, filler, seed):
    generator = torch.Generator().manual_seed(seed)
    x, old, ref, advantages = (torch.randn(rows, columns, generator=generator) for _ in range(4))

    def evaluate(pad):
        def widened(tensor):
            return torch.cat([tensor, torch.full((rows, pad), filler)], dim=1)

        mask = torch.cat([torch.ones(rows, columns), torch.zeros(rows, pad)], dim=1)
        variable = widened(x).requires_grad_()
        shared = {"response_mask": mask, "clip_range": CLIP}
        loss = grpo_loss(
            variable,
            old_log_probs=widened(old),
            ref_log_probs=widened(ref),
            advantages=widened(advantages),
            kl_coefficient=BETA,
            **shared,
        ) + clipped_value_loss(variable, old_values=widened(old), returns=widened(ref), **shared)
        loss.backward()
        return loss.detach(), variable.grad[:, :columns], variable.grad[:, columns:]

    plain_loss, plain_gradient, _ = evaluate(0)
    padded_loss, padded_gradient, on_padding = evaluate(extra)
    torch.testing.assert_close(plain_loss, padded_loss)
    torch.testing.assert_close(plain_gradient, padded_gradient)
    assert (on_padding == 0).all()


def test_losses_of_parts_add_up_with_a_common_denominator(tensors):
    x, old, advantages, mask = map(
        torch.from_numpy, (tensors.normal(), tensors.normal(), tensors.normal(), tensors.mask)
    )

    def loss(rows, denominator=None):
        return clipped_policy_loss(
            x[rows],
            old_log_probs=old[rows],
            advantages=advantages[rows],
            response_mask=mask[rows],
            clip_range=CLIP,
            denominator=denominator,
        )

    tokens = mask.sum()
    parts = loss(slice(0, 2), tokens) + loss(slice(2, None), tokens)
    torch.testing.assert_close(parts, loss(slice(None)))
