"""From scores to advantages: KL-penalised token rewards, GAE, group normalization, whitening.

All results are zero where ``response_mask`` is zero, and padding never changes the rest.
"""

import torch
from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``values`` (any shape) where ``mask`` (same shape) is non-zero; 0 for an empty mask."""
    weights = mask.to(values.dtype)
    # where, not a product: padding may hold anything, and inf * 0 is nan.
    return torch.where(mask.bool(), values, 0.0).sum() / weights.sum().clamp(min=1.0)


def whiten(values: Tensor, mask: Tensor, *, epsilon: float = 1e-8) -> Tensor:
    """Shift and scale to mean 0 and population variance 1 over the masked entries.

    Args:
        values: (B, T).
        mask: (B, T).
        epsilon: added to the variance.

    Returns:
        (B, T), zero outside the mask.
    """
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return torch.where(mask.bool(), (values - mean) * torch.rsqrt(variance + epsilon), 0.0)


def kl_penalized_rewards(
    scores: Tensor, *, log_probs: Tensor, ref_log_probs: Tensor, response_mask: Tensor, kl_coefficient: float
) -> Tensor:
    """Token rewards of InstructGPT: the score on the last token, minus a KL penalty on every token.

    r_t = -beta (log pi(a_t) - log pi_ref(a_t)) + [t is last] score. Ziegler et al., "Fine-Tuning Language
    Models from Human Preferences" (2019), section 2.2; Ouyang et al. (2022), equation 2.

    Args:
        scores: (B,) one score per response.
        log_probs: (B, T) of the policy that sampled.
        ref_log_probs: (B, T) of the frozen reference.
        response_mask: (B, T).
        kl_coefficient: beta.

    Returns:
        (B, T) rewards. The score of a response without a token has no place and is dropped.
    """
    mask = response_mask.bool()
    rewards = torch.where(mask, -kl_coefficient * (log_probs - ref_log_probs), 0.0)
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, columns, -1).amax(dim=1)
    is_last = (columns[None, :] == last[:, None]) & mask
    return rewards + torch.where(is_last, scores.to(rewards.dtype)[:, None], 0.0)


def gae(rewards: Tensor, *, values: Tensor, response_mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation over the response tokens.

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}; Schulman et al.,
    "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (2016), equations 11 to 16.
    After the last token the value is 0. Masked tokens inside a response (a tool's output, say) are stepped
    over: the token before takes the value and advantage of the next token that the policy chose.

    Args:
        rewards: (B, T).
        values: (B, T) value of the state before each token.
        response_mask: (B, T).
        gamma: discount.
        lam: lambda.

    Returns:
        advantages and returns (advantages + values), both (B, T), zero outside the mask.
    """
    mask = response_mask.bool()
    next_value = torch.zeros_like(values[:, 0])
    next_advantage = torch.zeros_like(next_value)
    columns: list[Tensor] = []
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        next_advantage = torch.where(mask[:, t], advantage, next_advantage)
        columns.append(advantage)
    advantages = torch.stack(columns[::-1], dim=1)
    return torch.where(mask, advantages, 0.0), torch.where(mask, advantages + values, 0.0)


def group_normalized_advantages(
    scores: Tensor, *, response_mask: Tensor, group_size: int, epsilon: float = 1e-4
) -> Tensor:
    """GRPO's advantages: each score against the other samples of its prompt, the same for every token.

    A_i = (r_i - mean(r)) / (std(r) + epsilon), with the sample standard deviation. Shao et al.,
    "DeepSeekMath" (2024), section 4.1.2.

    Args:
        scores: (B,) with the ``group_size`` samples of one prompt next to each other.
        response_mask: (B, T).
        group_size: samples per prompt, at least 2.
        epsilon: added to the standard deviation.

    Returns:
        (B, T), zero outside the mask.

    Raises:
        ValueError: the rows are no whole number of groups, or a group has one sample.
    """
    if group_size < 2 or scores.shape[0] % group_size:
        raise ValueError(f"{scores.shape[0]} scores must be whole groups of at least 2, not of {group_size}")
    groups = scores.view(-1, group_size)
    centered = groups - groups.mean(dim=1, keepdim=True)
    normalized = (centered / (groups.std(dim=1, keepdim=True) + epsilon)).view(-1, 1)
    return torch.where(response_mask.bool(), normalized, 0.0)
