"""Procedural tasks: problems that a generator of reasoning-gym makes, with its verifier.

The problems are drawn once and kept as JSON lines in the cache, by all that determines them, so that only the first
run pays for the import of reasoning-gym, which takes seconds. No two prompts are equal, so none that is held out is
trained on.
"""

from __future__ import annotations

import importlib.metadata
import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_api.types.model import ProceduralData
from rlhf_runtime.models.content_cache import cached_folder
from rlhf_runtime.tasks.base import Scorer, Task, TaskError
from rlhf_runtime.tasks.generators import FIELD, open_dataset
from rlhf_runtime.tasks.metadata import pack
from rlhf_runtime.tasks.verifier import ReasoningGymVerifier

CODE_VERSION = 2
SPELLING = "spell_backward"
TRAIN_FILE, HELDOUT_FILE = "train.jsonl", "heldout.jsonl"
# Draws repeat: so many per wanted problem are made, and so many in a row without a new one mean that there is none.
DRAWS_PER_PROBLEM, DRAWS_IN_VAIN = 50, 10

Row = dict[str, str]


def load_procedural_task(data: ProceduralData) -> Task:
    """The task that `spec.data.procedural` describes.

    Where a dataset has problems without one right answer (a puzzle that only its verifier can judge), nothing is held
    out: the metric is equality with the answer.

    Raises:
        TaskError: The dataset or a parameter is unknown, the template has an unknown field, or there are too few
            problems; the message names the manifest's field.
    """
    fields = _template_fields(data.template)
    content = {
        "dataset": data.dataset,
        "parameters": data.parameters,
        "train": data.train_size,
        "heldout": data.held_out_size,
        "template": data.template,
        "reasoning-gym": _package_version(),
        "code": CODE_VERSION,
    }

    def build(folder: Path) -> None:
        rows = _draw(data, fields)
        _write_rows(folder / TRAIN_FILE, rows[: data.train_size])
        _write_rows(folder / HELDOUT_FILE, rows[data.train_size :])

    folder = cached_folder("task-procedural", content=content, build=build)
    train, heldout = _read_rows(folder / TRAIN_FILE), _read_rows(folder / HELDOUT_FILE)
    if not all(row["answer"] for row in heldout):
        heldout = []
    spelling = data.dataset == SPELLING
    return Task(
        name=data.dataset,
        train_prompts=tuple(row["prompt"] for row in train),
        train_answers=tuple(row["answer"] for row in train),
        heldout_prompts=tuple(row["prompt"] for row in heldout),
        heldout_answers=tuple(row["answer"] for row in heldout),
        train_metadata=() if spelling else tuple(row["metadata"] for row in train),
        scorer=spelling_credit if spelling else _verifier(data),
    )


def spell_backward(*, train: int = 8000, heldout: int = 512, seed: int = 0) -> Task:
    """The spelling task: the prompt is `word=` with a word of 3 to 5 letters, the answer the word reversed.

    Args:
        train: Training words.
        heldout: Held-out words.
        seed: Of the draw.

    Returns:
        The task, with `spelling_credit` for reward.
    """
    parameters: dict[str, bool | int | float | str] = {"min_word_len": 3, "max_word_len": 5}
    if seed:
        parameters["seed"] = seed
    return load_procedural_task(
        ProceduralData(
            dataset=SPELLING, parameters=parameters, train_size=train, held_out_size=heldout, template="{word}="
        )
    )


def spelling_credit(response: str, answer: str) -> float:
    """The rule of reasoning-gym's own verifier, but for the case of letters, which counts here.

    1.0 for the answer; else the fraction of its letters that stand in their place in the response, and 0.8 for a
    response that has all of them and goes on. (reasoning-gym adds up fractions, which for some lengths do not make 1,
    and then gives a too long response full credit.)
    """
    if response == answer:
        return 1.0
    in_place = sum(given == wanted for given, wanted in zip(response, answer, strict=False))
    return 0.8 if in_place == len(answer) else in_place / len(answer)


def _verifier(data: ProceduralData) -> Scorer:
    return ReasoningGymVerifier(dataset=data.dataset, parameters=json.dumps(data.parameters, sort_keys=True))


def _draw(data: ProceduralData, fields: frozenset[str]) -> list[Row]:
    wanted = data.train_size + data.held_out_size
    rows: dict[str, Row] = {}
    in_vain = 0
    for entry in open_dataset(data.dataset, data.parameters, size=DRAWS_PER_PROBLEM * wanted):
        values = {**entry["metadata"], "question": entry["question"]}
        prompt = _fill(data.template, fields, values)
        if prompt not in rows:
            in_vain = 0
            rows[prompt] = {"prompt": prompt, "answer": entry["answer"] or "", "metadata": pack(values)}
        else:
            in_vain += 1
        if len(rows) == wanted:
            return list(rows.values())
        if in_vain > DRAWS_IN_VAIN * wanted:
            break
    raise TaskError(
        f'`{FIELD}`: "{data.dataset}" with these parameters and this template gives only {len(rows)} different '
        f"prompts of the {wanted} asked for; `trainSize` and `heldOutSize` together must be at most that"
    )


def _template_fields(template: str) -> frozenset[str]:
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise TaskError(f"`{FIELD}.template` must have matching braces: {error}; a brace itself is doubled") from error
    names = set()
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise TaskError(f'`{FIELD}.template` must have plain field names in braces, such as {{question}}: "{name}"')
        names.add(name)
    if not names:
        raise TaskError(f"`{FIELD}.template` must have a field such as {{question}}, else all prompts are the same")
    return frozenset(names)


def _fill(template: str, fields: frozenset[str], values: Mapping[str, Any]) -> str:
    if unknown := sorted(fields - values.keys()):
        known = ", ".join(f"{{{name}}}" for name in sorted(values))
        raise TaskError(f"`{FIELD}.template`: the problem has no field {{{unknown[0]}}}; it has {known}")
    return template.format_map(values)


def _package_version() -> str:
    try:
        return importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError as error:
        raise TaskError(
            f"`{FIELD}` must have the package reasoning-gym installed: pip install reasoning-gym"
        ) from error


def _write_rows(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
