"""LoRA: what is trained, what is kept, and what the model computes with it."""

import copy
from pathlib import Path

import over_ranks
import pytest
import torch
from rank_processes import RankProcesses
from tiny_models import make_tiny_model

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.adapters import (
    AdapterError,
    LoRASettings,
    add_adapters,
    merged_weights,
    trained_names,
    without_adapters,
)
from rlhf_runtime.engines.logprobs import compute_log_probs
from rlhf_runtime.engines.ranks import ALONE
from rlhf_runtime.engines.trained import TrainedModel
from rlhf_runtime.engines.training import CriticUpdateConfig, OptimizerConfig, critic_update
from rlhf_runtime.models.heads import with_scalar_head

LORA = LoRASettings(rank=4, alpha=8)
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def trained_actor(batch, *, steps=2, **model):
    trained = over_ranks.actor_model(ALONE, None, lora=LORA, **model)
    for step in range(steps):
        over_ranks.update_actor(trained, batch, step)
    return trained


def test_fresh_adapters_change_nothing_and_are_all_that_is_trained(batch):
    model = add_adapters(make_tiny_model(0), LORA, seed=3)
    assert torch.equal(compute_log_probs(model, batch), compute_log_probs(make_tiny_model(0), batch))
    layers = {name.rpartition(".lora_")[0] for name in trained_names(model)}
    assert {name.rpartition(".")[2] for name in layers} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    assert len(layers) == 14
    assert all(".lora_" in name for name in trained_names(model))


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_merged_weights_are_those_of_a_plain_model_that_computes_the_same(batch, tied):
    trained = trained_actor(batch, tie_word_embeddings=tied)
    before, after = make_tiny_model(0, tie_word_embeddings=tied), make_tiny_model(1, tie_word_embeddings=tied)
    after.load_state_dict(merged_weights(trained.model))
    learned = compute_log_probs(trained.model, batch)
    torch.testing.assert_close(compute_log_probs(after, batch), learned, **CLOSE)
    torch.testing.assert_close(compute_log_probs(without_adapters(trained.model), batch), learned, **CLOSE)
    assert (learned - compute_log_probs(before, batch)).abs().max() > 0.1
    assert torch.equal(learned, compute_log_probs(trained.model, batch))  # nothing was merged in place
    assert without_adapters(before) is before
    assert merged_weights(before).keys() == before.state_dict().keys()


def test_the_models_own_weights_stay_as_they_were(batch):
    trained = trained_actor(batch)
    own = {name.replace(".base_layer", ""): value for name, value in trained.model.state_dict().items()}
    for name, value in make_tiny_model(0).state_dict().items():
        assert torch.equal(own[name], value), name


def test_a_state_holds_the_adapters_alone_and_gives_the_same_next_update(batch):
    trained = trained_actor(batch)
    state = trained.state_dict()
    assert state["model"].keys() == trained_names(trained.model)
    restored = over_ranks.actor_model(ALONE, None, lora=LORA)
    restored.load_state_dict(copy.deepcopy(state))
    for each in (trained, restored):
        over_ranks.update_actor(each, batch, 2)
    assert torch.equal(compute_log_probs(restored.model, batch), compute_log_probs(trained.model, batch))


def test_a_critic_learns_with_its_head(batch):
    model = with_scalar_head(make_tiny_model(0))
    add_adapters(model.body, LORA, seed=3)
    assert {name for name in trained_names(model) if ".lora_" not in name} == {"head.weight", "head.bias"}
    trained = TrainedModel(model, optimizer=OptimizerConfig(learning_rate=1e-2), adapted=True)
    config = CriticUpdateConfig(minibatches=1)
    losses = [
        trained.update(critic_update, batch, config=config, seed=StepSeed(job=1, step=step))["loss"]
        for step in range(20)
    ]
    assert losses[-1] < losses[0]


def test_the_seed_decides_the_first_weights():
    first, same, other = (add_adapters(make_tiny_model(0), LORA, seed=seed).state_dict() for seed in (3, 3, 4))
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    assert torch.equal(first[name], same[name])
    assert not torch.equal(first[name], other[name])


def test_layers_can_be_chosen_and_unknown_ones_are_refused():
    chosen = add_adapters(make_tiny_model(0), LoRASettings(rank=4, target_modules=("q_proj",)), seed=3)
    assert len(trained_names(chosen)) == 4
    with pytest.raises(AdapterError, match=r"\['query'\] must name linear layers of the model, which are: down_proj, "):
        add_adapters(make_tiny_model(0), LoRASettings(target_modules=("query",)), seed=3)


@pytest.mark.job
@pytest.mark.parametrize("readers", [2, 1])
def test_two_ranks_learn_as_one_and_their_snapshot_goes_on_with_any_number(
    rank_processes: RankProcesses, batch: dict[str, torch.Tensor], tmp_path: Path, readers: int
) -> None:
    alone = trained_actor(batch, steps=4)
    whole = rank_processes.run(2, over_ranks.train_and_save, batch, tmp_path, 2, LORA)
    resumed = rank_processes.run(readers, over_ranks.load_and_train, batch, tmp_path, 2, LORA)
    for weights in [*whole, *resumed]:
        torch.testing.assert_close(weights, dict(alone.model.state_dict()), **CLOSE)
