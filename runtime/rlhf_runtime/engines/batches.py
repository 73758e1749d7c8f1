"""Cutting batches in parts.

A batch is a dict of tensors with the same rows. ``prompt_ids`` and ``prompt_mask`` are (B, P), padded on the
left. ``responses``, ``response_mask``, ``log_probs``, ``ref_log_probs``, ``values``, ``advantages`` and
``returns`` are (B, T), padded on the right. ``scores`` is (B,).

One forward pass takes as many rows as its ``max_tokens`` allow, padding included. Rows of like length go together,
so that little of a pass is padding; over several ranks, neighbours in length go to different ranks, so that all have
as much to do.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

Batch: TypeAlias = dict[str, Tensor]

MAX_TOKENS = 16_384
SEQUENCE = ("prompt_ids", "prompt_mask", "responses", "response_mask")


def select(batch: Batch, keys: Sequence[str], *, model: nn.Module | None = None) -> Batch:
    """The named tensors; where the model is, if one is given.

    Raises:
        KeyError: the batch lacks one.
    """
    missing = [key for key in keys if key not in batch]
    if missing:
        raise KeyError(f"the batch lacks {', '.join(missing)}")
    if model is None:
        return {key: batch[key] for key in keys}
    device = next(model.parameters()).device
    return {key: batch[key].to(device) for key in keys}


def take_rows(batch: Batch, rows: Tensor) -> Batch:
    """These rows of a batch; views where they are all rows."""
    if torch.equal(rows, torch.arange(len(next(iter(batch.values()))))):
        return batch
    return {name: value[rows] for name, value in batch.items()}


def plan_passes(batch: Batch, *, max_tokens: int, ranks: int = 1) -> list[list[Tensor]]:
    """Which rows each rank takes in each pass.

    Args:
        batch: has ``prompt_mask`` and ``response_mask``.
        max_tokens: of one pass of one rank, padding included; a single row may have more.
        ranks: how many ranks share the batch.

    Returns:
        for each pass one tensor of row indices per rank. Every rank has the same number of passes, since over several
        ranks each is a collective operation; in the last one a rank may be left with no rows.
    """
    prompts: list[int] = batch["prompt_mask"].sum(dim=1).tolist()
    responses: list[int] = batch["response_mask"].sum(dim=1).tolist()
    count = len(prompts)
    if ranks == 1 and count * (max(prompts, default=0) + max(responses, default=0)) <= max_tokens:
        return [[torch.arange(count)]]
    order = sorted(range(count), key=lambda row: -prompts[row] - responses[row])
    passes: list[list[int]] = []
    height = prompt = response = 0
    for deal in (order[start : start + ranks] for start in range(0, count, ranks)):
        prompt = max(prompt, *(prompts[row] for row in deal))
        response = max(response, *(responses[row] for row in deal))
        height += 1
        if passes and height * (prompt + response) <= max_tokens:
            passes[-1].extend(deal)
            continue
        passes.append(deal)
        height, prompt, response = 1, max(prompts[row] for row in deal), max(responses[row] for row in deal)
    return [[torch.tensor(rows[rank::ranks], dtype=torch.long) for rank in range(ranks)] for rows in passes]


def compute_in_passes(
    batch: Batch,
    compute: Callable[[Batch], Tensor],
    *,
    max_tokens: int,
    agree: Callable[[int], int] = lambda passes: passes,
) -> Tensor:
    """What ``compute`` gives for a batch, in as many passes as it takes.

    Args:
        batch: has ``prompt_mask`` and ``response_mask``, (B, T).
        compute: gives (rows,) or (rows, width of the responses).
        max_tokens: of one pass, padding included.
        agree: given how many passes this rank needs, says how many all ranks make, where a pass takes them all.

    Returns:
        (B,) or (B, T), zero in the columns that are padding in every row of a pass.
    """
    passes = [rows for (rows,) in plan_passes(batch, max_tokens=max_tokens)]
    for _ in range(agree(len(passes)) - len(passes)):
        compute({name: value[:1] for name, value in batch.items()})  # for the others' sake
    if len(passes) == 1:
        return compute(take_rows(batch, passes[0]))
    whole: Tensor | None = None
    for rows in passes:
        part = compute(trim_padding(take_rows(batch, rows)))
        if whole is None:
            whole = part.new_zeros(batch["response_mask"].shape[: part.dim()])
        whole[(rows, slice(part.shape[1])) if part.dim() > 1 else rows] = part
    assert whole is not None
    return whole


def trim_padding(batch: Batch) -> Batch:
    """Drop the columns that are padding in every row: on the left of prompts, on the right of responses.

    Returns:
        views of the same tensors; at least one column of each is left.
    """
    prompt_used = batch["prompt_mask"].any(dim=0).nonzero()
    response_used = batch["response_mask"].any(dim=0).nonzero()
    first = int(prompt_used[0]) if len(prompt_used) else batch["prompt_mask"].shape[1] - 1
    end = int(response_used[-1]) + 1 if len(response_used) else 1

    def cut(name: str, value: Tensor) -> Tensor:
        if value.dim() == 1:
            return value
        return value[:, first:] if name.startswith("prompt_") else value[:, :end]

    return {name: cut(name, value) for name, value in batch.items()}
