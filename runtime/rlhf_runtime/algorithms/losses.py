"""The losses of PPO and GRPO, each a pure function of (B, T) tensors that returns a scalar to minimise.

Every loss is a mean over response tokens. ``denominator`` replaces the number of tokens where a batch is cut
in micro-batches or shards: the parts' losses then add up to the loss of the whole.
"""

import torch
from torch import Tensor

from rlhf_runtime.algorithms.advantages import masked_mean


def token_mean(values: Tensor, mask: Tensor, *, denominator: Tensor | float | None = None) -> Tensor:
    """Sum of ``values`` (B, T) over ``mask`` (B, T), divided by the tokens of the mask or ``denominator``."""
    if denominator is None:
        return masked_mean(values, mask)
    return torch.where(mask.bool(), values, 0.0).sum() / denominator


def clipped_policy_loss(
    log_probs: Tensor,
    *,
    old_log_probs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip_range: float,
    denominator: Tensor | float | None = None,
) -> Tensor:
    """PPO's clipped surrogate, negated: -mean min(rho A, clip(rho, 1 - eps, 1 + eps) A).

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), equation 7.

    Args:
        log_probs: (B, T) of the policy in training, with gradient.
        old_log_probs: (B, T) of the policy that sampled.
        advantages: (B, T).
        response_mask: (B, T).
        clip_range: eps.
        denominator: see the module.

    Returns:
        scalar.
    """
    # Padding is set to ratio 1 before exp, or an inf there would make the gradient nan.
    log_ratio = torch.where(response_mask.bool(), log_probs - old_log_probs, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    return -token_mean(objective, response_mask, denominator=denominator)


def clipped_value_loss(
    values: Tensor,
    *,
    old_values: Tensor,
    returns: Tensor,
    response_mask: Tensor,
    clip_range: float,
    denominator: Tensor | float | None = None,
) -> Tensor:
    """Half the squared error to the returns, the worse of the new value and the value clipped around the old.

    0.5 mean max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2), the form of OpenAI baselines' ppo2;
    Huang et al., "The 37 Implementation Details of Proximal Policy Optimization" (2022), detail 9.

    Args:
        values: (B, T) of the critic in training, with gradient.
        old_values: (B, T) of the critic that made the returns.
        returns: (B, T).
        response_mask: (B, T).
        clip_range: eps.
        denominator: see the module.

    Returns:
        scalar.
    """
    # Padding is set to 0 before it is squared, or an inf there would make the gradient nan.
    values, old_values, returns = (
        torch.where(response_mask.bool(), part, 0.0) for part in (values, old_values, returns)
    )
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    error = torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    return 0.5 * token_mean(error, response_mask, denominator=denominator)


def k3_kl(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """Estimate of KL(pi || pi_ref) per token, never negative: exp(d) - d - 1, where d = ref - log pi.

    Unbiased in value for tokens drawn from pi.

    Schulman, "Approximating KL Divergence" (2020), k3; DeepSeekMath (2024), equation 4.

    Args:
        log_probs: (B, T), with gradient.
        ref_log_probs: (B, T).

    Returns:
        (B, T).
    """
    difference = ref_log_probs - log_probs
    return torch.expm1(difference) - difference


def entropy_bonus(entropy: Tensor, *, response_mask: Tensor, denominator: Tensor | float | None = None) -> Tensor:
    """Mean entropy of the token distributions, to be subtracted from the loss; PPO (2017), equation 9.

    Args:
        entropy: (B, T), with gradient.
        response_mask: (B, T).
        denominator: see the module.

    Returns:
        scalar.
    """
    return token_mean(entropy, response_mask, denominator=denominator)


def kl_penalty(
    log_probs: Tensor,
    *,
    ref_log_probs: Tensor,
    response_mask: Tensor,
    denominator: Tensor | float | None = None,
) -> Tensor:
    """Token mean of the k3 KL to the reference, to be weighted and added to the loss; DeepSeekMath (2024), equation 4.

    Args:
        log_probs: (B, T), with gradient.
        ref_log_probs: (B, T).
        response_mask: (B, T).
        denominator: see the module.

    Returns:
        scalar.
    """
    mask = response_mask.bool()
    kl = k3_kl(torch.where(mask, log_probs, 0.0), torch.where(mask, ref_log_probs, 0.0))
    return token_mean(kl, response_mask, denominator=denominator)


def grpo_loss(
    log_probs: Tensor,
    *,
    old_log_probs: Tensor,
    ref_log_probs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip_range: float,
    kl_coefficient: float,
    denominator: Tensor | float | None = None,
) -> Tensor:
    """The clipped surrogate plus beta times the k3 KL to the reference; DeepSeekMath (2024), equation 3.

    Averaged over all tokens of the batch, not first within each response (Yu et al., "DAPO", 2025, equation
    12).

    Args:
        log_probs: (B, T), with gradient.
        old_log_probs: (B, T).
        ref_log_probs: (B, T).
        advantages: (B, T).
        response_mask: (B, T).
        clip_range: eps.
        kl_coefficient: beta.
        denominator: see the module.

    Returns:
        scalar.
    """
    surrogate = clipped_policy_loss(
        log_probs,
        old_log_probs=old_log_probs,
        advantages=advantages,
        response_mask=response_mask,
        clip_range=clip_range,
        denominator=denominator,
    )
    kl = kl_penalty(log_probs, ref_log_probs=ref_log_probs, response_mask=response_mask, denominator=denominator)
    return surrogate + kl_coefficient * kl
