"""Tasks from files: JSON lines or Parquet, one problem per row with a prompt and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlhf_api.enums import FileFormat
from rlhf_api.types.model import FileData
from rlhf_runtime.tasks.base import Task, TaskError

FIELD = "spec.data.files"

Pair = tuple[str, str]


class TaskFileError(TaskError):
    """A task file that cannot be used; the message names the file, the line and the field."""


def load_task_files(data: FileData) -> Task:
    """The task that `spec.data.files` describes; its reward is 1.0 for the answer, else 0.0.

    A held-out problem whose prompt is also trained on would flatter the result, so it is an error.

    Raises:
        TaskFileError: A file is missing, empty or malformed, or a field is missing or no text.
    """
    read = read_parquet if data.format is FileFormat.PARQUET else read_jsonl

    def pairs(paths: Iterable[str]) -> list[Pair]:
        return [
            pair
            for path in paths
            for pair in read(Path(path).expanduser(), prompt_field=data.prompt_field, answer_field=data.answer_field)
        ]

    train, heldout = pairs(data.train), pairs(data.held_out)
    if shared := {prompt for prompt, _ in train} & {prompt for prompt, _ in heldout}:
        raise TaskFileError(
            f"`{FIELD}.heldOut` must have no prompt that is trained on; {len(shared)} are in both, "
            f'such as "{min(shared)[:60]}"'
        )
    return Task(
        name=Path(data.train[0]).stem,
        train_prompts=tuple(prompt for prompt, _ in train),
        train_answers=tuple(answer for _, answer in train),
        heldout_prompts=tuple(prompt for prompt, _ in heldout),
        heldout_answers=tuple(answer for _, answer in heldout),
    )


def read_jsonl(path: Path, *, prompt_field: str, answer_field: str) -> list[Pair]:
    """The (prompt, answer) pairs of a file of JSON objects, one a line; blank lines are passed over.

    Raises:
        TaskFileError: The file is missing, empty or no JSON lines, or a field is missing or no text.
    """
    try:
        # A line ends at "\n" alone: JSON text may hold other characters that `splitlines` takes for ends.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskFileError(f"{path}: cannot be read: {error}") from error
    rows = ((f"{path}:{number}", _parse(line, f"{path}:{number}")) for number, line in _numbered(lines))
    return to_pairs(rows, source=str(path), prompt_field=prompt_field, answer_field=answer_field)


def read_parquet(path: Path, *, prompt_field: str, answer_field: str) -> list[Pair]:
    """The (prompt, answer) pairs of a Parquet file.

    Raises:
        TaskFileError: The file is missing, empty or no Parquet, a field is missing or no text, or pyarrow is not
            installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise TaskFileError(
            f"`{FIELD}.format` Parquet must have the package pyarrow installed: pip install pyarrow"
        ) from error
    try:
        columns = set(parquet.read_schema(path).names)
        wanted = [field for field in (prompt_field, answer_field) if field in columns]
        table = parquet.read_table(path, columns=wanted or None)
    except (OSError, pyarrow.ArrowException) as error:
        raise TaskFileError(f"{path}: cannot be read as Parquet: {error}") from error
    rows = ((f"{path}: row {number}", row) for number, row in enumerate(table.to_pylist(), start=1))
    return to_pairs(rows, source=str(path), prompt_field=prompt_field, answer_field=answer_field)


def to_pairs(
    rows: Iterable[tuple[str, Mapping[str, Any]]], *, source: str, prompt_field: str, answer_field: str
) -> list[Pair]:
    """The (prompt, answer) pairs of (where, row) pairs.

    Raises:
        TaskFileError: There is no row, or a field is missing or no text.
    """
    pairs = [(_text(row, prompt_field, where), _text(row, answer_field, where)) for where, row in rows]
    if not pairs:
        raise TaskFileError(f"{source}: must have at least one problem")
    return pairs


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _parse(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TaskFileError(f"{where}: must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise TaskFileError(f"{where}: must be a JSON object, not {type(row).__name__}")
    return row


def _text(row: Mapping[str, Any], field: str, where: str) -> str:
    if field not in row:
        raise TaskFileError(f"{where}: field `{field}` is missing; there is {', '.join(sorted(row)) or 'no field'}")
    value = row[field]
    if not isinstance(value, str) or not value:
        raise TaskFileError(f"{where}: field `{field}` must be text and not empty; got {value!r}")
    return value
