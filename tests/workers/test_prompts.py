from pathlib import Path
from typing import Any

import pytest
import torch
from worker_builders import NEW_TOKENS, an_actor

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.job import prompt_lengths
from rlhf_runtime.job.prompt_lengths import check_prompt_lengths
from rlhf_runtime.models.loading import load_causal_lm, load_tokenizer
from rlhf_runtime.tasks.base import Task
from rlhf_runtime.workers.prompts import encode_prompts

POSITIONS = 32


@pytest.fixture(scope="module")
def loaded(policy: Path) -> tuple[Any, Any]:
    return load_tokenizer(policy), load_causal_lm(policy)


def test_prompts_are_padded_on_the_left(loaded: tuple[Any, Any]) -> None:
    tokenizer, model = loaded
    ids, mask = encode_prompts(tokenizer, ["a=", "cat="], model=model, room_for=5)
    a, c, t, equals = tokenizer.convert_tokens_to_ids(["a", "c", "t", "="])
    assert ids.tolist() == [[0, 0, a, equals], [c, a, t, equals]]
    assert mask.tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert ids.dtype is mask.dtype is torch.int64


@pytest.mark.parametrize("room_for", [0, 5])
def test_a_prompt_may_be_just_as_long_as_fits(loaded: tuple[Any, Any], room_for: int) -> None:
    tokenizer, model = loaded
    longest = "a" * (POSITIONS - room_for)
    assert encode_prompts(tokenizer, [longest], model=model, room_for=room_for)[0].shape == (1, len(longest))
    with pytest.raises(ValueError, match=f"prompt 1 of the batch has {len(longest) + 1} tokens; with `maxNewTokens`"):
        encode_prompts(tokenizer, ["a", longest + "a"], model=model, room_for=room_for)


def test_an_empty_prompt_is_refused(loaded: tuple[Any, Any]) -> None:
    tokenizer, model = loaded
    with pytest.raises(ValueError, match="prompt 1 of the batch must not be empty"):
        encode_prompts(tokenizer, ["a", ""], model=model, room_for=5)


def test_the_actor_refuses_a_prompt_that_is_too_long(policy: Path) -> None:
    with pytest.raises(ValueError, match=f"prompt 0 of the batch has 30 tokens; .* at most {POSITIONS - NEW_TOKENS}"):
        an_actor(policy).generate(["a" * 30])


def task(*prompts: str, heldout: tuple[str, ...] = ()) -> Task:
    answers = {"train_answers": prompts, "heldout_answers": heldout}
    return Task(name="t", train_prompts=prompts, heldout_prompts=heldout, **answers)


@pytest.mark.parametrize(
    ("given", "want_message"),
    [
        (task("a", "b" * 28), "training prompt 1 has 28 tokens; with `maxNewTokens` 5 the model takes at most 27"),
        (task("a", heldout=("b", "c", "d" * 40)), "held-out prompt 2 has 40 tokens"),
    ],
    ids=["a training prompt", "a held-out prompt"],
)
def test_a_prompt_that_is_too_long_is_found_before_any_role_starts(
    policy: Path, given: Task, want_message: str
) -> None:
    with pytest.raises(RlhfError) as caught:
        check_prompt_lengths(given, str(policy), room_for=5)
    assert want_message in str(caught.value)


def test_tokens_count_and_not_bytes(policy: Path) -> None:
    check_prompt_lengths(task("中" * 27), str(policy), room_for=5)


def test_no_tokenizer_is_loaded_for_prompts_that_fit_anyway(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_lengths, "_token_counts", lambda *_: pytest.fail("a tokenizer was loaded"))
    check_prompt_lengths(task("a" * 27), str(policy), room_for=5)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "no/such/folder"])
def test_what_is_no_folder_is_left_to_the_actor(model: str) -> None:
    check_prompt_lengths(task("a" * 99), model, room_for=5)


def test_a_config_without_a_length_sets_no_limit(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_prompt_lengths(task("a" * 99), str(tmp_path), room_for=5)
