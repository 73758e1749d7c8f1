"""Log-probs and entropy of response tokens under a Hugging Face causal language model.

Prompts are padded on the left, responses on the right. Positions count real prompt tokens, so left padding
changes nothing; right padding comes after every real token, so causal attention hides it by itself and no
response mask is needed in the forward pass. All at temperature 1.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlhf_runtime.engines.batches import MAX_TOKENS, SEQUENCE, Batch, compute_in_passes, select
from rlhf_runtime.engines.ranks import ALONE, Ranks

MAX_LOGITS_BYTES = 256 * 1024**2
"""Of a pass's logits in float32; where there would be more, only a part of them is in memory at a time."""

# Configuration of models that do something to the logits behind their output embedding.
_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier")


class TokenStatistics(NamedTuple):
    """Of response tokens (B, T), zero outside the mask; the entropy only where it was asked for."""

    log_probs: Tensor
    entropy: Tensor | None


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


def response_statistics(
    model: nn.Module,
    *,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    responses: Tensor,
    response_mask: Tensor,
    with_entropy: bool = False,
    max_logits_bytes: int = MAX_LOGITS_BYTES,
) -> TokenStatistics:
    """Log-probs and entropy of the response tokens, with gradient where the caller has it on.

    Where the logits would take more than ``max_logits_bytes``, the output embedding is applied to some tokens at a
    time, and again in the backward pass, so that they are never all in memory.

    Args:
        model: a causal language model.
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, T), padded on the right.
        response_mask: (B, T).
        with_entropy: whether the entropy is wanted.
        max_logits_bytes: see above.

    Returns:
        (B, T) float32 each.
    """
    network: Any = model
    mask = response_mask.bool()
    chunk = max(1, max_logits_bytes // (4 * network.config.get_text_config().vocab_size))
    if mask.numel() <= chunk or not _has_plain_head(network):
        logits = response_logits(model, prompt_ids=prompt_ids, prompt_mask=prompt_mask, responses=responses)
        log_probs = torch.where(mask, token_log_probs(logits, responses), 0.0)
        entropy = torch.where(mask, token_entropy(logits), 0.0) if with_entropy else None
        return TokenStatistics(log_probs, entropy)
    inputs = sequence_inputs(prompt_ids, prompt_mask=prompt_mask, responses=responses[:, :-1])
    hidden = network.base_model(**inputs, use_cache=False).last_hidden_state[:, -responses.shape[1] :][mask]
    parts = [
        _checkpointed(_head_statistics, network.get_output_embeddings(), states, tokens, with_entropy)
        for states, tokens in zip(torch.split(hidden, chunk), torch.split(responses[mask], chunk), strict=True)
    ]
    nothing = hidden.new_zeros(mask.shape, dtype=torch.float32)
    chosen, entropies = zip(*parts, strict=True)
    log_probs = nothing.masked_scatter(mask, torch.cat(chosen))
    entropy = nothing.masked_scatter(mask, torch.cat(entropies)) if with_entropy else None
    return TokenStatistics(log_probs, entropy)


def statistics_of(model: nn.Module, **inputs: Any) -> TokenStatistics:
    """`response_statistics`, as a forward pass of the model where it is sharded."""
    of_sharded: Any = getattr(model, response_statistics.__name__, None)
    statistics: TokenStatistics = of_sharded(**inputs) if of_sharded else response_statistics(model, **inputs)
    return statistics


def _has_plain_head(model: Any) -> bool:
    """Whether the logits are the output embedding of the body's last hidden states and nothing else."""
    config = model.config.get_text_config()
    scaled = any(getattr(config, name, None) not in (None, 1.0) for name in _SCALES)
    capped = getattr(config, "final_logit_softcapping", None) is not None
    return not scaled and not capped and model.get_output_embeddings() is not None and model.base_model is not model


def _head_statistics(head: nn.Module, hidden: Tensor, tokens: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    entropy = token_entropy(logits) if with_entropy else logits.new_zeros(0)
    return token_log_probs(logits, tokens), entropy


def _checkpointed(function: Callable[..., tuple[Tensor, Tensor]], *arguments: Any) -> tuple[Tensor, Tensor]:
    if not torch.is_grad_enabled():
        return function(*arguments)
    result: tuple[Tensor, Tensor] = checkpoint(function, *arguments, use_reentrant=False)
    return result


def response_log_probs(
    model: nn.Module, *, prompt_ids: Tensor, prompt_mask: Tensor, responses: Tensor, response_mask: Tensor
) -> Tensor:
    """``response_statistics`` without the entropy: log-probs (B, T)."""
    return statistics_of(
        model, prompt_ids=prompt_ids, prompt_mask=prompt_mask, responses=responses, response_mask=response_mask
    ).log_probs


@torch.no_grad()
def compute_log_probs(model: nn.Module, batch: Batch, *, max_tokens: int = MAX_TOKENS, ranks: Ranks = ALONE) -> Tensor:
    """Log-probs (B, T) of a batch's responses in eval mode, without gradient: a reference's or an actor's.

    Args:
        model: a causal language model.
        batch: ``prompt_ids``, ``prompt_mask``, ``responses``, ``response_mask``.
        max_tokens: of one forward pass, padding included.
        ranks: who holds the model; all call this together, each with a batch of its own.

    Returns:
        (B, T) float32, zero outside the mask.
    """
    with eval_mode(model):
        return compute_in_passes(
            select(batch, SEQUENCE, model=model),
            lambda part: response_log_probs(model, **part),
            max_tokens=max_tokens,
            agree=ranks.most,
        )


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a module in eval mode for a block and give it back its mode after."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
