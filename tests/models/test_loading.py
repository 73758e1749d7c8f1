import pytest
import torch

from rlhf_runtime.models.builtin import builtin_model
from rlhf_runtime.models.loading import (
    ModelNotFoundError,
    load_causal_lm,
    load_reward_model,
    load_scalar_model,
    load_tokenizer,
)

TOKENS = torch.tensor([[5, 6, 7, 8]])
INPUTS = {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS), "position_ids": torch.arange(4)[None]}


@pytest.fixture
def folder(task, small):
    return builtin_model(task, **small)


@pytest.mark.parametrize("load", [load_causal_lm, load_tokenizer, load_scalar_model, load_reward_model])
@pytest.mark.parametrize("source", ["./nowhere", "/no/such/folder", "~/nowhere", "a/b/c"])
def test_a_folder_that_is_not_there_is_named_with_its_field(load, source):
    with pytest.raises(ModelNotFoundError, match=r"`spec.roles\[0\].model`.*there is no folder"):
        load(source, field="spec.roles[0].model")


@pytest.mark.parametrize("load", [load_causal_lm, load_tokenizer, load_scalar_model])
def test_a_folder_without_a_model_is_named_with_its_field(load, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"`spec.model`.*the folder"):
        load(tmp_path)


def test_a_new_critic_says_zero_everywhere(folder):
    critic = load_scalar_model(folder)
    assert critic(**INPUTS).abs().max() == 0
    body = load_causal_lm(folder).base_model
    for one, other in zip(critic.body.parameters(), body.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_saved_scalar_model_comes_back_whole(folder, tmp_path):
    model = load_scalar_model(folder)
    with torch.no_grad():
        model.head.weight.normal_()
        model.head.bias.fill_(0.3)
        model.shift.fill_(1.5)
        model.scale.fill_(2.5)
    model.save(tmp_path)
    for load in (load_scalar_model, load_reward_model):
        again = load(tmp_path)
        torch.testing.assert_close(again(**INPUTS), model(**INPUTS))
        assert (again.shift.item(), again.scale.item()) == (1.5, 2.5)


def test_a_model_without_a_trained_head_is_no_reward_model(folder):
    with pytest.raises(ModelNotFoundError, match="no trained scalar head"):
        load_reward_model(folder)


def test_models_are_loaded_in_eval_mode_and_in_the_wanted_precision(folder):
    model = load_causal_lm(folder, dtype=torch.bfloat16)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_loading_draws_no_progress_bar_and_warns_of_nothing(folder, capfd):
    load_causal_lm(folder)
    load_scalar_model(folder)
    load_tokenizer(folder)
    assert capfd.readouterr() == ("", "")
