"""Log-probs and entropy of response tokens under a Hugging Face causal language model.

Prompts are padded on the left, responses on the right. Positions count real prompt tokens, so left padding
changes nothing; right padding comes after every real token, so causal attention hides it by itself and no
response mask is needed in the forward pass. All at temperature 1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.engines.batches import Batch, select, split_rows


def positions_of(attention_mask: Tensor) -> Tensor:
    """Position ids (B, L) that number the real tokens of each row from 0; padding on the left gets 0."""
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)


def sequence_inputs(prompt_ids: Tensor, *, prompt_mask: Tensor, responses: Tensor) -> dict[str, Tensor]:
    """Model inputs for prompt and response side by side.

    Args:
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, R), padded on the right.

    Returns:
        ``input_ids``, ``attention_mask`` and ``position_ids``, each (B, P + R).
    """
    attention_mask = torch.cat([prompt_mask.long(), torch.ones_like(responses)], dim=1)
    return {
        "input_ids": torch.cat([prompt_ids, responses], dim=1),
        "attention_mask": attention_mask,
        "position_ids": positions_of(attention_mask),
    }


def response_logits(model: nn.Module, *, prompt_ids: Tensor, prompt_mask: Tensor, responses: Tensor) -> Tensor:
    """Logits that predict each response token; the head runs on no other position.

    Args:
        model: a causal language model that takes ``logits_to_keep``.
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, T), padded on the right.

    Returns:
        (B, T, V) float32.
    """
    # The last response token predicts nothing that is asked for.
    inputs = sequence_inputs(prompt_ids, prompt_mask=prompt_mask, responses=responses[:, :-1])
    output: Any = model(**inputs, use_cache=False, logits_to_keep=responses.shape[1])
    logits: Tensor = output.logits
    return logits.float()


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probs (B, T) of ``tokens`` (B, T) under ``logits`` (B, T, V)."""
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)


def token_entropy(logits: Tensor) -> Tensor:
    """Entropy (B, T), in nats, of the distributions with ``logits`` (B, T, V)."""
    log_probs = logits.log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def response_log_probs(
    model: nn.Module, *, prompt_ids: Tensor, prompt_mask: Tensor, responses: Tensor, response_mask: Tensor
) -> Tensor:
    """Log-probs of the response tokens, with gradient where the caller has it on.

    Args:
        model: a causal language model.
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, T), padded on the right.
        response_mask: (B, T).

    Returns:
        (B, T) float32, zero outside the mask.
    """
    logits = response_logits(model, prompt_ids=prompt_ids, prompt_mask=prompt_mask, responses=responses)
    return torch.where(response_mask.bool(), token_log_probs(logits, responses), 0.0)


@torch.no_grad()
def compute_log_probs(model: nn.Module, batch: Batch, *, micro_batch_size: int | None = None) -> Tensor:
    """Log-probs (B, T) of a batch's responses in eval mode, without gradient: a reference's or an actor's.

    Args:
        model: a causal language model.
        batch: ``prompt_ids``, ``prompt_mask``, ``responses``, ``response_mask``.
        micro_batch_size: rows per forward pass; all at once by default.

    Returns:
        (B, T) float32, zero outside the mask.
    """
    keys = ("prompt_ids", "prompt_mask", "responses", "response_mask")
    with eval_mode(model):
        parts = split_rows(select(batch, keys), micro_batch_size)
        return torch.cat([response_log_probs(model, **part) for part in parts])


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a module in eval mode for a block and give it back its mode after."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
