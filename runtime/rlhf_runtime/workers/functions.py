"""What a reward function of the user's or of a task is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.tasks.metadata import unpack

METADATA = "metadata"


def takes_metadata(function: Callable[..., Any]) -> bool:
    """Whether `function` has a parameter `metadata`."""
    try:
        return METADATA in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False


def scored_rows(data: DataProto, *, with_metadata: bool) -> list[tuple[str, str, dict[str, Any]]]:
    """Response, answer and more keyword arguments, for each row.

    Args:
        data: `texts` and `answers`, and `metadata` (N strings, packed) where the task has it.
        with_metadata: Whether the function asks for the problem's metadata; a task without gives an empty one.
    """
    columns = data.non_tensor_batch
    texts, answers = columns["texts"], columns["answers"]
    if not with_metadata:
        return [(text, answer, {}) for text, answer in zip(texts, answers, strict=True)]
    packed = columns.get(METADATA, ["{}"] * len(texts))
    return [(text, answer, {METADATA: unpack(line)}) for text, answer, line in zip(texts, answers, packed, strict=True)]
