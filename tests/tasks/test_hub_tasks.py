"""Against a stand-in for the package `datasets`: no hub can be reached from a unit test."""

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rlhf_api.types.model import HuggingFaceData
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.tasks.hub import load_hub_task

Splits = dict[str, list[Mapping[str, Any]]]
DATA = HuggingFaceData(id="openai/gsm8k", subset="main", revision="abc123", prompt_field="question")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Splits], list[tuple[Any, ...]]]:
    """Installs splits of rows; gives the list in which each call leaves its arguments."""

    def install(splits: Splits) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def load_dataset(path: str, name: str | None = None, *, split: str, revision: str) -> Any:
            calls.append((path, name, split, revision))
            if split not in splits:
                raise ValueError(f'Unknown split "{split}". Should be one of {list(splits)}.\nmore lines')
            return splits[split]

        module = types.ModuleType("datasets")
        module.__dict__["load_dataset"] = load_dataset
        monkeypatch.setitem(sys.modules, "datasets", module)
        return calls

    return install


def test_both_splits_become_a_task(stand_in: Callable[[Splits], list[tuple[Any, ...]]]) -> None:
    calls = stand_in({"train": [{"question": "1+1", "answer": "2"}], "test": [{"question": "2+2", "answer": "4"}]})
    task = load_hub_task(DATA)
    assert (task.train_prompts, task.train_answers) == (("1+1",), ("2",))
    assert (task.heldout_prompts, task.heldout_answers) == (("2+2",), ("4",))
    assert task.name == "openai/gsm8k"
    assert calls == [("openai/gsm8k", "main", "train", "abc123"), ("openai/gsm8k", "main", "test", "abc123")]


def test_a_missing_split_is_told_in_one_line(stand_in: Callable[[Splits], list[tuple[Any, ...]]]) -> None:
    stand_in({"train": [{"question": "1+1", "answer": "2"}]})
    with pytest.raises(RlhfError) as caught:
        load_hub_task(DATA)
    assert str(caught.value) == (
        '`spec.data.huggingFace`: "openai/gsm8k" has no usable `heldOutSplit` "test": '
        "Unknown split \"test\". Should be one of ['train']."
    )


def test_a_missing_field_names_split_and_row(stand_in: Callable[[Splits], list[tuple[Any, ...]]]) -> None:
    stand_in({"train": [{"question": "1+1", "label": "2"}], "test": []})
    with pytest.raises(RlhfError, match="openai/gsm8k, train: row 1: field `answer` is missing; there is label"):
        load_hub_task(DATA)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RlhfError, match=r"`spec\.data\.huggingFace` must have the package datasets installed"):
        load_hub_task(DATA)
