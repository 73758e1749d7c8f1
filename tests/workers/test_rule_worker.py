import math
from typing import Any

import pytest
import torch
from worker_builders import a_worker

from rlhf_runtime.errors import WorkerClassError
from rlhf_runtime.executor import to_proto
from rlhf_runtime.tasks.metadata import pack
from rlhf_runtime.tasks.verifier import ReasoningGymVerifier
from rlhf_runtime.worker import Effect, method_spec
from rlhf_runtime.workers.rule import RewardFunctionError, RuleWorker

DATA = to_proto({"texts": ["tac", "xyz"], "answers": ["tac", "god"], "prompt_ids": torch.ones(2, 3)})


def length_times(response: str, answer: str, factor: float = 1.0) -> float:
    return factor * len(response)


def of_level(response: str, answer: str, metadata: dict[str, Any]) -> float:
    return float(metadata.get("level", -1))


def broken(response: str, answer: str) -> float:
    raise KeyError("no such key")


def scores(function: Any, data: Any = DATA, **arguments: Any) -> list[float]:
    given = a_worker(RuleWorker, function, arguments).compute_scores(data)["scores"]
    assert given.dtype is torch.float32
    return [float(score) for score in given]


def test_a_function_scores_each_response() -> None:
    assert scores(lambda response, answer: response == answer) == [1.0, 0.0]


def test_a_function_by_name() -> None:
    assert scores("rlhf_runtime.tasks.procedural:spelling_credit") == [1.0, 0.0]


def test_arguments_reach_the_function() -> None:
    assert scores(length_times, factor=2.5) == [7.5, 7.5]


def test_an_empty_batch_gives_no_score() -> None:
    assert scores(length_times, to_proto({"texts": [], "answers": []})) == []


def test_metadata_reaches_a_function_that_asks_for_it() -> None:
    columns = {"texts": ["a", "b"], "answers": ["a", "b"], "metadata": [pack({"level": 1}), pack({"level": 3})]}
    assert scores(of_level, to_proto(columns)) == [1.0, 3.0]
    assert scores(length_times, to_proto(columns)) == [1.0, 1.0]
    assert scores(of_level, DATA) == [-1.0, -1.0]  # a task without metadata
    assert scores(of_level, to_proto(columns), metadata={"level": 9}) == [9.0, 9.0]  # the manifest's arguments count


def test_a_verifier_without_the_problem_says_what_is_missing() -> None:
    with pytest.raises(RewardFunctionError, match="must have the input `metadata`"):
        scores(ReasoningGymVerifier(dataset="countdown"))


@pytest.mark.parametrize(
    ("function", "want_message"),
    [
        pytest.param(broken, "\"broken\" raised KeyError: 'no such key'; response 'tac', answer 'tac'", id="raises"),
        pytest.param(lambda r, a: math.nan, "must give a finite number, got nan; response 'tac'", id="NaN"),
        pytest.param(lambda r, a: -math.inf, "must give a finite number, got -inf", id="infinite"),
        pytest.param(lambda r, a: None, "raised TypeError", id="nothing"),
        pytest.param(lambda r, a: "high", "raised ValueError", id="a word"),
        pytest.param(lambda r: 1.0, "raised TypeError", id="too few parameters"),
    ],
)
def test_a_function_that_gives_no_number_names_itself_and_the_response(function: Any, want_message: str) -> None:
    with pytest.raises(RewardFunctionError) as caught:
        scores(function)
    assert want_message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "want_message"),
    [
        ("no_such_module:f", 'reward function of role "tested" "no_such_module:f" cannot be imported'),
        ("math:no_such_function", "cannot be imported: AttributeError"),
        ("math.sqrt", 'must be written "package.module:Name"'),
    ],
)
def test_a_function_that_cannot_be_imported_is_named_with_its_role(path: str, want_message: str) -> None:
    with pytest.raises(WorkerClassError) as caught:
        a_worker(RuleWorker, path)
    assert want_message in str(caught.value)


def test_scoring_touches_no_state_so_that_nothing_waits_for_it() -> None:
    assert method_spec(RuleWorker, "compute_scores").effect is Effect.NONE
