"""What is passed on to transformers; its own download of a revision is not ours to test."""

from pathlib import Path
from typing import Any

import pytest

from rlhf_runtime.models.loading import ModelNotFoundError, load_causal_lm, load_tokenizer


class StandInLoader:
    """Stands for a class of transformers with `from_pretrained`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def from_pretrained(self, name: str, **options: Any) -> Any:
        self.calls.append((name, {key: value for key, value in options.items() if key != "dtype"}))
        raise OSError(f"{name} is not on this machine\nmore lines")


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> StandInLoader:
    import transformers

    stand_in = StandInLoader()
    monkeypatch.setattr(transformers, "AutoModelForCausalLM", stand_in)
    monkeypatch.setattr(transformers, "AutoTokenizer", stand_in)
    return stand_in


@pytest.mark.parametrize("load", [load_causal_lm, load_tokenizer])
@pytest.mark.parametrize(
    ("source", "want_name", "want_options"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", {}),
        ("Qwen/Qwen3-0.6B@c1899de", "Qwen/Qwen3-0.6B", {"revision": "c1899de"}),
        ("gpt2@v1.0", "gpt2", {"revision": "v1.0"}),
        ("Qwen/Qwen3-0.6B@refs/pr/7", "Qwen/Qwen3-0.6B", {"revision": "refs/pr/7"}),
    ],
    ids=["no revision", "a commit", "a tag", "a branch with slashes"],
)
def test_the_revision_reaches_the_hub(
    loader: StandInLoader, load: Any, source: str, want_name: str, want_options: dict[str, str]
) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        load(source, field="spec.roles[1].model")
    assert loader.calls == [(want_name, want_options)]
    assert str(caught.value).startswith("`spec.roles[1].model`: no model can be loaded from the Hugging Face id")
    assert source in str(caught.value)


def test_a_folder_may_have_an_at_sign(loader: StandInLoader, tmp_path: Path) -> None:
    folder = tmp_path / "model@home"
    folder.mkdir()
    with pytest.raises(ModelNotFoundError, match="from the folder"):
        load_causal_lm(folder)
    assert loader.calls == [(str(folder), {})]


def test_a_missing_folder_with_an_at_sign_is_no_id(loader: StandInLoader, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        load_causal_lm(tmp_path / "model@home")
    assert loader.calls == []
