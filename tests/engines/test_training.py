import copy

import pytest
import torch

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.algorithms.losses import clipped_policy_loss, clipped_value_loss, k3_kl, token_mean
from rlhf_runtime.engines.logprobs import compute_log_probs, response_log_probs, response_logits, token_entropy
from rlhf_runtime.engines.scalar_outputs import compute_values, response_values
from rlhf_runtime.engines.training import (
    ActorUpdateConfig,
    CriticUpdateConfig,
    OptimizerConfig,
    actor_update,
    critic_update,
    make_optimizer,
)
from rlhf_runtime.models.heads import with_scalar_head

SEED = StepSeed(job=1, step=4)
ONE_STEP = {"epochs": 1, "minibatches": 1, "max_grad_norm": 1e9}


def plain_sgd(model):
    """An optimizer whose step is the gradient itself."""
    return torch.optim.SGD(model.parameters(), lr=1.0)


def weights(model):
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


def gradient_of(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def sequence(batch, *extra):
    return {key: batch[key] for key in ("prompt_ids", "prompt_mask", "responses", *extra)}


@pytest.mark.parametrize("max_tokens", [10_000, 1, 20])
def test_one_actor_step_moves_by_exactly_the_gradient_of_the_loss(model, batch, max_tokens):
    config = ActorUpdateConfig(kl_coefficient=0.3, entropy_coefficient=0.2, max_tokens=max_tokens, **ONE_STEP)
    mask = batch["response_mask"]
    log_probs = response_log_probs(model, **sequence(batch, "response_mask"))
    loss = (
        clipped_policy_loss(
            log_probs,
            old_log_probs=batch["log_probs"],
            advantages=batch["advantages"],
            response_mask=mask,
            clip_range=config.clip_range,
        )
        + 0.3 * token_mean(k3_kl(log_probs, batch["ref_log_probs"]), mask)
        - 0.2 * token_mean(token_entropy(response_logits(model, **sequence(batch))), mask)
    )
    gradient, before = gradient_of(model, loss), weights(model)
    metrics = actor_update(model, plain_sgd(model), batch, config=config, seed=SEED)
    torch.testing.assert_close(before - weights(model), gradient, atol=1e-4, rtol=1e-3)
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-4)
    assert metrics["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-3)


@pytest.mark.parametrize("max_tokens", [10_000, 20])
def test_one_critic_step_moves_by_exactly_the_gradient_of_the_loss(model, batch, max_tokens):
    critic = with_scalar_head(model)
    config = CriticUpdateConfig(clip_range=0.3, max_tokens=max_tokens, **ONE_STEP)
    loss = clipped_value_loss(
        response_values(critic, **sequence(batch)),
        old_values=batch["values"],
        returns=batch["returns"],
        response_mask=batch["response_mask"],
        clip_range=0.3,
    )
    gradient, before = gradient_of(critic, loss), weights(critic)
    metrics = critic_update(critic, plain_sgd(critic), batch, config=config, seed=SEED)
    torch.testing.assert_close(before - weights(critic), gradient, atol=1e-5, rtol=1e-3)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-4)


def test_the_same_seed_gives_the_same_weights_to_the_bit(model, batch):
    config = ActorUpdateConfig(epochs=2, minibatches=2)

    def trained(seed):
        network = copy.deepcopy(model)
        actor_update(
            network, make_optimizer(network, OptimizerConfig(learning_rate=1e-2)), batch, config=config, seed=seed
        )
        return weights(network)

    first = trained(SEED)
    assert torch.equal(first, trained(SEED))
    assert not torch.equal(first, trained(StepSeed(job=1, step=5)))


def test_the_gradient_is_cut_to_its_greatest_norm(model, batch):
    before = weights(model)
    config = ActorUpdateConfig(epochs=1, minibatches=1, max_grad_norm=1e-3)
    metrics = actor_update(model, plain_sgd(model), batch, config=config, seed=SEED)
    assert metrics["grad_norm"] > 1e-3
    assert (before - weights(model)).norm().item() == pytest.approx(1e-3, rel=0.05)


def test_the_policy_moves_towards_good_responses(model, batch):
    batch["log_probs"] = compute_log_probs(model, batch)
    batch["advantages"] = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]) * batch["response_mask"]
    config = ActorUpdateConfig(epochs=3, minibatches=2)
    metrics = actor_update(
        model, make_optimizer(model, OptimizerConfig(learning_rate=1e-2)), batch, config=config, seed=SEED
    )
    change = (compute_log_probs(model, batch) - batch["log_probs"]).sum(dim=1)
    assert (change * torch.tensor([1.0, -1.0, 1.0, -1.0]) > 0).all()
    assert metrics["approx_kl"] > 0


def test_the_critic_learns_its_returns(model, batch):
    critic = with_scalar_head(model)
    optimizer = make_optimizer(critic, OptimizerConfig(learning_rate=1e-2))
    batch["values"] = compute_values(critic, batch)
    assert (batch["values"] == 0).all()
    config = CriticUpdateConfig(epochs=4, minibatches=2, clip_range=100.0)
    first = critic_update(critic, optimizer, batch, config=config, seed=SEED)["loss"]
    for step in range(10):
        last = critic_update(critic, optimizer, batch, config=config, seed=StepSeed(job=1, step=step))["loss"]
    assert last < 0.3 * first


def test_more_minibatches_than_samples_are_refused(model, batch):
    with pytest.raises(ValueError, match="4 samples cannot be cut in 5"):
        actor_update(model, plain_sgd(model), batch, config=ActorUpdateConfig(minibatches=5), seed=SEED)


def test_a_missing_column_is_named(model, batch):
    del batch["ref_log_probs"]
    actor_update(model, plain_sgd(model), batch, config=ActorUpdateConfig(), seed=SEED)
    with pytest.raises(KeyError, match="ref_log_probs"):
        actor_update(model, plain_sgd(model), batch, config=ActorUpdateConfig(kl_coefficient=0.1), seed=SEED)
