"""reasoning-gym's generators, opened by name; a wrong name or argument is told in the manifest's terms."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from rlhf_runtime.tasks.base import TaskError
from rlhf_runtime.tasks.verifier import import_reasoning_gym

FIELD = "spec.data.procedural"
DEFAULT_SEED = 0
_OWN_SIZE = "size"


def open_dataset(name: str, parameters: Mapping[str, Any], *, size: int) -> Iterable[Mapping[str, Any]]:
    """The dataset's problems, `size` of them, each with `question`, `answer` and `metadata`.

    Raises:
        TaskError: reasoning-gym has no such dataset, or it refuses a parameter.
    """
    gym = import_reasoning_gym()
    datasets = gym.factory.DATASETS
    if name not in datasets:
        raise TaskError(f'`{FIELD}.dataset`: reasoning-gym has no dataset "{name}"; {_hint(name, datasets)}')
    _, config = datasets[name]
    known = {field.name for field in dataclasses.fields(config)} - {_OWN_SIZE}
    for parameter in parameters:
        if parameter == _OWN_SIZE:
            raise TaskError(f"`{FIELD}.parameters.size` must not be set: `trainSize` and `heldOutSize` say it")
        if parameter not in known:
            hint = _hint(parameter, known)
            raise TaskError(f'`{FIELD}.parameters.{parameter}`: "{name}" does not take it; {hint}')
    try:
        opened: Iterable[Mapping[str, Any]] = gym.create_dataset(
            name, **{"seed": DEFAULT_SEED, **parameters, _OWN_SIZE: size}
        )
    except Exception as error:  # each dataset checks its arguments in its own way, mostly by assert
        raise TaskError(f'`{FIELD}.parameters`: "{name}" refuses them: {error or type(error).__name__}') from error
    return opened


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=1):
        return f'did you mean "{near[0]}"?'
    return f"there are {', '.join(names)}"
