"""What models with a scalar head compute: a critic's token values and a reward model's scores."""

import torch
from torch import Tensor, nn

from rlhf_runtime.engines.batches import MAX_TOKENS, SEQUENCE, Batch, compute_in_passes, select
from rlhf_runtime.engines.logprobs import eval_mode, sequence_inputs
from rlhf_runtime.engines.ranks import ALONE, Ranks
from rlhf_runtime.models.heads import ScalarHeadModel


def response_values(model: nn.Module, *, prompt_ids: Tensor, prompt_mask: Tensor, responses: Tensor) -> Tensor:
    """Value of the state before each response token, with gradient where the caller has it on.

    Args:
        model: returns one number per position, (B, L), as ``ScalarHeadModel`` does.
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, T), padded on the right.

    Returns:
        (B, T) float32; entries after the end of a response mean nothing.
    """
    inputs = sequence_inputs(prompt_ids, prompt_mask=prompt_mask, responses=responses[:, :-1])
    outputs: Tensor = model(**inputs)
    return outputs[:, -responses.shape[1] :].float()


@torch.no_grad()
def compute_values(model: nn.Module, batch: Batch, *, max_tokens: int = MAX_TOKENS, ranks: Ranks = ALONE) -> Tensor:
    """Values (B, T) of a batch in eval mode, without gradient, zero outside the response mask.

    Args:
        model: a ``ScalarHeadModel``.
        batch: ``prompt_ids``, ``prompt_mask``, ``responses``, ``response_mask``.
        max_tokens: of one forward pass, padding included.
        ranks: who holds the model; all call this together, each with a batch of its own.

    Returns:
        (B, T) float32.
    """
    asked = select(batch, SEQUENCE, model=model)

    def values_of(part: Batch) -> Tensor:
        return response_values(model, **{name: part[name] for name in SEQUENCE[:3]})

    with eval_mode(model):
        values = compute_in_passes(asked, values_of, max_tokens=max_tokens, agree=ranks.most)
    return torch.where(asked["response_mask"].bool(), values, 0.0)


def response_scores(
    model: nn.Module, *, prompt_ids: Tensor, prompt_mask: Tensor, responses: Tensor, response_mask: Tensor
) -> Tensor:
    """A reward model's score of each response: the sum of its numbers at the response's tokens.

    A mistake can be judged at the token where it is made, rather than at the end for all of them at once, which is
    easier to learn: on the spelling task 250 steps reach a pair accuracy of 0.97, and 0.93 with the last token alone.

    Args:
        model: returns one number per position, (B, L).
        prompt_ids: (B, P), padded on the left.
        prompt_mask: (B, P).
        responses: (B, T), padded on the right.
        response_mask: (B, T).

    Returns:
        (B,) float32, with gradient where the caller has it on; 0 for an empty response.
    """
    outputs: Tensor = model(**sequence_inputs(prompt_ids, prompt_mask=prompt_mask, responses=responses))
    of_tokens = outputs[:, -responses.shape[1] :].float()
    return torch.where(response_mask.bool(), of_tokens, 0.0).sum(dim=1)


@torch.no_grad()
def compute_scores(
    model: ScalarHeadModel,
    batch: Batch,
    *,
    eos_token_id: int | None = None,
    missing_eos_score: float | None = None,
    max_tokens: int = MAX_TOKENS,
) -> Tensor:
    """Scores (B,) of a batch's responses in eval mode, without gradient.

    Args:
        model: a ``ScalarHeadModel`` trained as a reward model; its normalization is applied.
        batch: ``prompt_ids``, ``prompt_mask``, ``responses``, ``response_mask``.
        eos_token_id: the token that ends a whole response.
        missing_eos_score: replaces the score of a response that was cut off, where given.
        max_tokens: of one forward pass, padding included.

    Returns:
        (B,) float32.
    """
    asked = select(batch, SEQUENCE, model=model)
    with eval_mode(model):
        raw = compute_in_passes(asked, lambda part: response_scores(model, **part), max_tokens=max_tokens)
        scores = model.normalize(raw)
    if missing_eos_score is None or eos_token_id is None:
        return scores
    ended = ((asked["responses"] == eos_token_id) & asked["response_mask"].bool()).any(dim=1)
    return torch.where(ended, scores, missing_eos_score)
