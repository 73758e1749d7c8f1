"""Cutting batches in parts.

A batch is a dict of tensors with the same rows. ``prompt_ids`` and ``prompt_mask`` are (B, P), padded on the
left. ``responses``, ``response_mask``, ``log_probs``, ``ref_log_probs``, ``values``, ``advantages`` and
``returns`` are (B, T), padded on the right. ``scores`` is (B,).
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from torch import Tensor

Batch: TypeAlias = dict[str, Tensor]


def select(batch: Batch, keys: Sequence[str]) -> Batch:
    """The named tensors.

    Raises:
        KeyError: the batch lacks one.
    """
    missing = [key for key in keys if key not in batch]
    if missing:
        raise KeyError(f"the batch lacks {', '.join(missing)}")
    return {key: batch[key] for key in keys}


def split_rows(batch: Batch, rows: int | None) -> Iterator[Batch]:
    """Consecutive parts of at most ``rows`` rows; the whole batch where ``rows`` is None."""
    total = len(next(iter(batch.values())))
    size = rows or max(1, total)
    for start in range(0, total, size):
        yield {name: value[start : start + size] for name, value in batch.items()}


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
