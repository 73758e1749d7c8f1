"""The formulas once more, row by row and token by token in float64, with nothing shared with the code under test."""

import numpy as np


def penalized_rewards(scores, log_probs, ref_log_probs, mask, beta):
    rewards = np.zeros_like(log_probs, dtype=np.float64)
    for b in range(mask.shape[0]):
        tokens = np.flatnonzero(mask[b])
        for t in tokens:
            rewards[b, t] = -beta * (log_probs[b, t] - ref_log_probs[b, t])
        if len(tokens):
            rewards[b, tokens[-1]] += scores[b]
    return rewards


def gae(rewards, values, mask, gamma, lam):
    advantages = np.zeros_like(rewards, dtype=np.float64)
    returns = np.zeros_like(advantages)
    for b in range(mask.shape[0]):
        tokens = list(np.flatnonzero(mask[b]))
        for k, t in enumerate(tokens):
            # The definition, a sum over the future, not the recursion.
            total = 0.0
            for distance, u in enumerate(tokens[k:]):
                following = tokens[k + distance + 1] if k + distance + 1 < len(tokens) else None
                next_value = values[b, following] if following is not None else 0.0
                total += (gamma * lam) ** distance * (rewards[b, u] + gamma * next_value - values[b, u])
            advantages[b, t] = total
            returns[b, t] = total + values[b, t]
    return advantages, returns


def whiten(values, mask):
    chosen = values[mask.astype(bool)].astype(np.float64)
    result = np.zeros_like(values, dtype=np.float64)
    if len(chosen):
        result[mask.astype(bool)] = (chosen - chosen.mean()) / np.sqrt(chosen.var() + 1e-8)
    return result


def group_advantages(scores, mask, group):
    result = np.zeros(mask.shape)
    for start in range(0, len(scores), group):
        part = scores[start : start + group].astype(np.float64)
        for b, score in enumerate(part, start=start):
            result[b, mask[b].astype(bool)] = (score - part.mean()) / (part.std(ddof=1) + 1e-4)
    return result


def policy_loss(log_probs, old, advantages, mask, clip):
    terms = []
    for b, t in zip(*np.nonzero(mask), strict=True):
        ratio = np.exp(log_probs[b, t] - old[b, t])
        clipped = min(max(ratio, 1 - clip), 1 + clip)
        terms.append(min(ratio * advantages[b, t], clipped * advantages[b, t]))
    return -np.mean(terms)


def value_loss(values, old, returns, mask, clip):
    terms = []
    for b, t in zip(*np.nonzero(mask), strict=True):
        clipped = old[b, t] + min(max(values[b, t] - old[b, t], -clip), clip)
        terms.append(max((values[b, t] - returns[b, t]) ** 2, (clipped - returns[b, t]) ** 2))
    return 0.5 * np.mean(terms)


def k3(log_probs, ref):
    return np.exp(ref - log_probs) - (ref - log_probs) - 1


def grpo_loss(log_probs, old, ref, advantages, mask, clip, beta):
    return policy_loss(log_probs, old, advantages, mask, clip) + beta * np.mean(k3(log_probs, ref)[mask.astype(bool)])
