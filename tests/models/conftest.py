import pytest

from rlhf_runtime.models.builtin import BuiltinModelConfig, WarmupConfig
from rlhf_runtime.tasks.base import Task

WORDS = [first + second + third for first in "abcdef" for second in "aeiou" for third in "rstn"]


@pytest.fixture
def task() -> Task:
    """120 words of three letters, of which the last 20 are held out."""
    prompts = tuple(f"{word}=" for word in WORDS)
    answers = tuple(word[::-1] for word in WORDS)
    return Task(
        name="words",
        train_prompts=prompts[:100],
        train_answers=answers[:100],
        heldout_prompts=prompts[100:],
        heldout_answers=answers[100:],
    )


@pytest.fixture
def small() -> dict[str, object]:
    """Settings of a built-in model that is made in a moment."""
    return {
        "model": BuiltinModelConfig(hidden_size=32, intermediate_size=32, layers=1, heads=2, head_dim=16),
        "warmup": WarmupConfig(examples=50, steps=6, batch_size=16, warmup_steps=2),
    }


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
