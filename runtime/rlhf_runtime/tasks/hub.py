"""Tasks from data sets of the Hugging Face hub, through the package `datasets`, which is imported only here.

The package is no dependency of ours: who names a data set of the hub installs it. `HF_HOME`, `HF_TOKEN` and
`HF_HUB_OFFLINE` work as the package says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlhf_api.types.model import HuggingFaceData
from rlhf_runtime.tasks.base import Task, TaskError
from rlhf_runtime.tasks.files import Pair, to_pairs

FIELD = "spec.data.huggingFace"


def load_hub_task(data: HuggingFaceData) -> Task:
    """The task that `spec.data.huggingFace` describes; its reward is 1.0 for the answer, else 0.0.

    Raises:
        TaskError: The package `datasets` is not installed, the hub has no such data set, subset or split, or a field
            is missing or no text.
    """
    train = _load_split(data, data.train_split, field="trainSplit")
    heldout = _load_split(data, data.held_out_split, field="heldOutSplit")
    return Task(
        name=data.id,
        train_prompts=tuple(prompt for prompt, _ in train),
        train_answers=tuple(answer for _, answer in train),
        heldout_prompts=tuple(prompt for prompt, _ in heldout),
        heldout_answers=tuple(answer for _, answer in heldout),
    )


def _load_split(data: HuggingFaceData, split: str, *, field: str) -> list[Pair]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise TaskError(f"`{FIELD}` must have the package datasets installed: pip install datasets") from error
    try:
        rows = datasets.load_dataset(data.id, data.subset, split=split, revision=data.revision)
    except Exception as error:  # errors of the hub, of HTTP, of files and of the package share no base
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TaskError(f'`{FIELD}`: "{data.id}" has no usable `{field}` "{split}": {first_line}') from error
    where = f"{data.id}, {split}"
    return to_pairs(
        _numbered(rows, where), source=where, prompt_field=data.prompt_field, answer_field=data.answer_field
    )


def _numbered(rows: Iterable[Mapping[str, Any]], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((f"{where}: row {number}", row) for number, row in enumerate(rows, start=1))
