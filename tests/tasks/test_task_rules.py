from typing import Any

import pytest

from rlhf_runtime.tasks.base import Task, exact_match
from rlhf_runtime.tasks.metadata import pack, unpack


def task(**fields: Any) -> Task:
    columns = {
        "train_prompts": ("a", "b"),
        "train_answers": ("x", "y"),
        "heldout_prompts": ("c",),
        "heldout_answers": ("z",),
    }
    return Task(name="t", **{**columns, **fields})


@pytest.mark.parametrize(
    "fields",
    [{"train_answers": ("x",)}, {"heldout_answers": ()}, {"train_metadata": ("{}",)}],
    ids=["a missing answer", "no held-out answer", "metadata for one problem of two"],
)
def test_columns_of_a_task_are_equally_long(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="task 't' must have"):
        task(**fields)


def test_partial_credit_is_a_reward_and_never_the_metric() -> None:
    lenient = task(scorer=lambda response, answer: 0.5)
    assert lenient.score(["x", "q"], ["x", "y"]) == [0.5, 0.5]
    assert lenient.is_correct(["x", "q"], ["x", "y"]) == [True, False]
    assert exact_match("X", "x") == 0.0


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"word": "sun", "length": 3, "ratio": 0.5, "nothing": None, "yes": True},
        {"grid": ((1, 2), (3, 4)), "pairs": [(1, "a")], "nested": {"inner": ({"x": (1,)},)}, "empty": ()},
        {"text": 'quotes " and \n lines, 中文'},
    ],
    ids=["empty", "plain", "tuples", "text"],
)
def test_metadata_comes_back_as_it_was(metadata: dict[str, Any]) -> None:
    packed = pack(metadata)
    assert unpack(packed) == metadata
    assert "\n" not in packed


def test_what_json_does_not_know_becomes_text() -> None:
    assert unpack(pack({"z": 1j, 3: "three"})) == {"z": "1j", "3": "three"}
