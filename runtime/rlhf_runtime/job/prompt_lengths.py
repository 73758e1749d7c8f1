"""Prompts longer than the model takes, found before any role starts instead of in the step that draws them.

Only for a model in a folder, and only where it costs nothing: a text has hardly more tokens than bytes, so a tokenizer
is loaded for those prompts alone that have more bytes than the model has room. What slips through, the actor refuses.
"""

from __future__ import annotations

import json
from pathlib import Path

from rlhf_runtime.tasks.base import Task, TaskError


def check_prompt_lengths(task: Task, model: str, *, room_for: int) -> None:
    """Refuse a task with a prompt that does not fit.

    Args:
        task: Its prompts.
        model: A folder or a Hugging Face id.
        room_for: New tokens that must fit behind a prompt.

    Raises:
        TaskError: A prompt is too long; the message says which, how long, and what the model takes.
    """
    limit = _positions(Path(model))
    if limit is None:
        return
    for kind, prompts in (("training", task.train_prompts), ("held-out", task.heldout_prompts)):
        suspects = [number for number, prompt in enumerate(prompts) if len(prompt.encode()) + room_for > limit]
        lengths = _token_counts([prompts[number] for number in suspects], Path(model)) if suspects else []
        for number, length in zip(suspects, lengths, strict=False):
            if length + room_for > limit:
                raise TaskError(
                    f"`spec.data`: {kind} prompt {number} has {length} tokens; with `maxNewTokens` {room_for} the "
                    f'model takes at most {limit - room_for}: "{prompts[number][:40]}..."'
                )


def _positions(folder: Path) -> int | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # an id of the hub, or a folder that loading will judge
    limit = config.get("max_position_embeddings") if isinstance(config, dict) else None
    return limit if isinstance(limit, int) else None


def _token_counts(prompts: list[str], folder: Path) -> list[int]:
    file = folder / "tokenizer.json"
    if not file.is_file():
        return []
    from tokenizers import Tokenizer

    encodings = Tokenizer.from_file(str(file)).encode_batch(prompts, add_special_tokens=False)
    return [len(encoding.ids) for encoding in encodings]
