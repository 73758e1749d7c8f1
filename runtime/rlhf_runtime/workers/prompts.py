"""Texts to padded prompts, with the checks that a user's data needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def encode_prompts(tokenizer: Any, prompts: list[str], *, model: nn.Module, room_for: int) -> tuple[Tensor, Tensor]:
    """Token ids and mask (B, P), padded on the left.

    Args:
        tokenizer: Pads on the left.
        prompts: B texts.
        model: Its config says how many positions it takes.
        room_for: New tokens that must fit behind the prompt.

    Raises:
        ValueError: A prompt is empty, or longer than the model takes; the message says which and how long.
    """
    rows = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    config: Any = model.config
    limit = getattr(config, "max_position_embeddings", None)
    for index, row in enumerate(rows):
        if not row:
            raise ValueError(f"prompt {index} of the batch must not be empty: {prompts[index]!r}")
        if limit is not None and len(row) + room_for > limit:
            raise ValueError(
                f"prompt {index} of the batch has {len(row)} tokens; with `maxNewTokens` {room_for} the model takes "
                f'at most {limit - room_for}: "{prompts[index][:40]}..."'
            )
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.tensor(row)
        mask[index, width - len(row) :] = 1
    return ids, mask
