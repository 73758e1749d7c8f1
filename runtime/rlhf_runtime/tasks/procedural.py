"""Procedural tasks of reasoning-gym: ``spell_backward`` with words of 3 to 5 letters.

The prompt ``Spell this word backward (example: sun -> nus): word`` becomes ``word=``, the answer is the word
reversed. The words are drawn by reasoning-gym, once; they are kept as JSON lines in the cache, so that only
the first run pays for that import, which takes seconds.
"""

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

from rlhf_runtime.models.content_cache import cached_folder
from rlhf_runtime.tasks.base import Task

CODE_VERSION = 1
MIN_LETTERS, MAX_LETTERS = 3, 5
TRAIN_FILE, HELDOUT_FILE = "train.jsonl", "heldout.jsonl"


def spell_backward(*, train: int = 8000, heldout: int = 512, seed: int = 0) -> Task:
    """The spelling task. All words are different, so none that is held out is trained on.

    Args:
        train: training words.
        heldout: held-out words.
        seed: of the draw.

    Returns:
        the task, with ``spelling_credit`` for reward.
    """
    spec = {"task": "spell_backward", "train": train, "heldout": heldout, "seed": seed, "code": CODE_VERSION}

    def build(folder: Path) -> None:
        words = _draw_words(train + heldout, seed=seed)
        _write_words(folder / TRAIN_FILE, words[:train])
        _write_words(folder / HELDOUT_FILE, words[train:])

    folder = cached_folder("task-spell-backward", content=spec, build=build)
    train_rows, heldout_rows = _read_rows(folder / TRAIN_FILE), _read_rows(folder / HELDOUT_FILE)
    return Task(
        name="spell_backward",
        train_prompts=tuple(row["prompt"] for row in train_rows),
        train_answers=tuple(row["answer"] for row in train_rows),
        heldout_prompts=tuple(row["prompt"] for row in heldout_rows),
        heldout_answers=tuple(row["answer"] for row in heldout_rows),
        scorer=spelling_credit,
    )


def spelling_credit(response: str, answer: str) -> float:
    """The rule of reasoning-gym's own verifier, but for the case of letters, which counts here.

    1.0 for the answer; else the fraction of its letters that stand in their place in the response, and 0.8
    for a response that has all of them and goes on.
    """
    if response == answer:
        return 1.0
    in_place = sum(given == wanted for given, wanted in zip(response, answer, strict=False))
    return 0.8 if in_place == len(answer) else in_place / len(answer)


def _draw_words(count: int, *, seed: int) -> list[str]:
    dataset = _reasoning_gym_dataset(size=50 * count, seed=seed)
    words: dict[str, None] = {}
    for entry in dataset:
        words.setdefault(entry["metadata"]["word"])
        if len(words) == count:
            return list(words)
    raise ValueError(f"`spell_backward` has only {len(words)} words of the {count} that were asked for")


def _reasoning_gym_dataset(*, size: int, seed: int) -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import reasoning_gym
    return reasoning_gym.create_dataset(
        "spell_backward", size=size, seed=seed, min_word_len=MIN_LETTERS, max_word_len=MAX_LETTERS
    )


def _write_words(path: Path, words: list[str]) -> None:
    lines = [json.dumps({"prompt": f"{word}=", "answer": word[::-1]}) for word in words]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
