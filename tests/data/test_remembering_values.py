import pickle

import pytest
import torch

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError
from rlhf_runtime.values import Loss, TokenizedText


def text(*words: str) -> TokenizedText:
    ids = torch.tensor([[ord(word[0])] for word in words]).view(-1, 1)
    return TokenizedText(words, DataProto.from_dict({"ids": ids}))


def test_text_reads_like_a_list_of_strings():
    words = text("how", "does")
    assert words == ["how", "does"] and f"{words[0][:50]}..." == "how..." and list(words) == ["how", "does"]


def test_slices_and_sums_keep_text_and_tokens_together():
    words = text("a", "b", "c")[1:] + text("d")
    assert words == ["b", "c", "d"]
    assert words.tokens["ids"].flatten().tolist() == [ord(c) for c in "bcd"]
    assert TokenizedText.concat([words[:1], words[1:]]).tokens.equals(words.tokens)
    assert words[::-1].tokens["ids"].flatten().tolist() == [ord(c) for c in "dcb"]


def test_a_sum_with_a_plain_list_is_a_plain_list():
    assert type(text("a").__add__(["b"])) is list


@pytest.mark.parametrize("change", ["append", "extend", "insert", "pop", "sort", "reverse", "clear", "__setitem__"])
def test_text_cannot_be_parted_from_its_tokens(change):
    with pytest.raises(DataError, match="cannot be changed in place"):
        getattr(text("a", "b"), change)(0)
    with pytest.raises(DataError, match="2 texts cannot have 1 rows"):
        TokenizedText(["a", "b"], text("a").tokens)


def test_a_loss_is_a_float_with_a_recipe():
    loss = Loss(0.42781, {"version": 7, "ids": torch.ones(2)})
    assert f"{loss:.4f}" == "0.4278" and loss < 1 and loss.recipe["version"] == 7
    assert type(loss + loss) is float
    assert dict(Loss(1.0).recipe) == {}


@pytest.mark.parametrize("value", [Loss(1.0), text("a")], ids=["loss", "text"])
def test_neither_is_pickled_by_accident(value):
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(value)
