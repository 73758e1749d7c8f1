"""Tasks from JSON lines: one object per line with a prompt and an answer."""

import json
from pathlib import Path

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.tasks.base import Scorer, Task, exact_match


class TaskFileError(RlhfError, ValueError):
    """A task file that cannot be read; the message names the file, the line and the field."""


def load_jsonl_task(
    train_path: str | Path,
    *,
    heldout_path: str | Path | None = None,
    heldout_count: int = 0,
    prompt_field: str = "prompt",
    answer_field: str = "answer",
    scorer: Scorer = exact_match,
) -> Task:
    """Load a task.

    Args:
        train_path: the training file.
        heldout_path: the held-out file; without one the last ``heldout_count`` lines of the training file are
            held out.
        heldout_count: see ``heldout_path``.
        prompt_field: the field with the prompt.
        answer_field: the field with the answer.
        scorer: the reward.

    Raises:
        TaskFileError: a file, line or field is wrong.
    """
    train = read_pairs(train_path, prompt_field=prompt_field, answer_field=answer_field)
    if heldout_path is not None:
        heldout = read_pairs(heldout_path, prompt_field=prompt_field, answer_field=answer_field)
    else:
        if heldout_count >= len(train):
            raise TaskFileError(f"{train_path}: {len(train)} lines cannot hold out {heldout_count} and leave one")
        cut = len(train) - heldout_count
        train, heldout = train[:cut], train[cut:]
    return Task(
        name=Path(train_path).stem,
        train_prompts=tuple(prompt for prompt, _ in train),
        train_answers=tuple(answer for _, answer in train),
        heldout_prompts=tuple(prompt for prompt, _ in heldout),
        heldout_answers=tuple(answer for _, answer in heldout),
        scorer=scorer,
    )


def read_pairs(path: str | Path, *, prompt_field: str, answer_field: str) -> list[tuple[str, str]]:
    """The (prompt, answer) pairs of a file; blank lines are passed over.

    Raises:
        TaskFileError: the file is missing, empty or no JSON lines, or a field is missing or no text.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskFileError(f"{path}: cannot be read: {error}") from error
    pairs = [
        _parse(line, where=f"{path}:{number}", prompt_field=prompt_field, answer_field=answer_field)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not pairs:
        raise TaskFileError(f"{path}: must have at least one line")
    return pairs


def _parse(line: str, *, where: str, prompt_field: str, answer_field: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TaskFileError(f"{where}: must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise TaskFileError(f"{where}: must be a JSON object, not {type(row).__name__}")
    return _text(row, prompt_field, where=where), _text(row, answer_field, where=where)


def _text(row: dict[str, object], field: str, *, where: str) -> str:
    if field not in row:
        raise TaskFileError(f"{where}: field `{field}` is missing; the line has {', '.join(sorted(row)) or 'no field'}")
    value = row[field]
    if not isinstance(value, str) or not value:
        raise TaskFileError(f"{where}: field `{field}` must be text and not empty")
    return value
