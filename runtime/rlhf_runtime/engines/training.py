"""Updates of an actor and a critic: epochs of shuffled minibatches, each one optimizer step.

The shuffle comes from counters (job seed, step, epoch), so a replayed update takes the same minibatches. Old
log-probs and values are those in the batch; nothing is computed anew before the first step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed, permutation
from rlhf_runtime.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    entropy_bonus,
    kl_penalty,
    token_mean,
)
from rlhf_runtime.engines.batches import MAX_TOKENS, SEQUENCE, Batch, plan_passes, select, take_rows, trim_padding
from rlhf_runtime.engines.logprobs import statistics_of
from rlhf_runtime.engines.ranks import ALONE, Ranks
from rlhf_runtime.engines.scalar_outputs import response_values

ACTOR_KEYS = (*SEQUENCE, "log_probs", "advantages")
CRITIC_KEYS = (*SEQUENCE, "values", "returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with a constant learning rate."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConfig:
    """What actor and critic updates share.

    Attributes:
        epochs: passes over the batch.
        minibatches: optimizer steps per epoch.
        max_grad_norm: the gradient is scaled down to this norm.
        max_tokens: of one forward and backward pass, padding included; a minibatch of more takes several, whose
            gradients add up.
    """

    epochs: int = 1
    minibatches: int = 2
    max_grad_norm: float = 1.0
    max_tokens: int = MAX_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorUpdateConfig(UpdateConfig):
    """Settings of PPO's and GRPO's policy update.

    Attributes:
        clip_range: of the probability ratio.
        kl_coefficient: of the k3 KL to the reference inside the loss (GRPO); 0 where the reward holds the
            penalty.
        entropy_coefficient: of the entropy bonus.
    """

    clip_range: float = 0.2
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticUpdateConfig(UpdateConfig):
    """Settings of the value update.

    Attributes:
        clip_range: of the change of a value.
    """

    clip_range: float = 0.2


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the parameters that are trained, in torch's fused form."""
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def actor_update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    config: ActorUpdateConfig,
    seed: StepSeed,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Train a policy on one batch: the clipped surrogate, a KL term and an entropy bonus where asked for.

    Args:
        model: a causal language model; changed.
        optimizer: over its parameters; changed.
        batch: ``ACTOR_KEYS``, and ``ref_log_probs`` where ``kl_coefficient`` is not 0.
        config: the settings.
        seed: job seed and step, for the shuffle.
        ranks: who holds the model; all call this with the same batch, of which each computes its share.

    Returns:
        means over the optimizer steps: ``loss``, ``policy_loss``, ``clip_fraction``, ``approx_kl`` (k3, of
        the update itself), ``grad_norm``, and ``kl`` and ``entropy`` where they are in the loss.
    """
    keys = ACTOR_KEYS + (("ref_log_probs",) if config.kl_coefficient else ())

    def loss_of(part: Batch, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return _actor_loss(model, part, config=config, denominator=tokens)

    return _run_updates(
        model, optimizer, select(batch, keys, model=model), loss_of=loss_of, config=config, seed=seed, ranks=ranks
    )


def critic_update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    config: CriticUpdateConfig,
    seed: StepSeed,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Train a critic on one batch with the clipped value loss.

    Args:
        model: a ``ScalarHeadModel``; changed.
        optimizer: over its parameters; changed.
        batch: ``CRITIC_KEYS``.
        config: the settings.
        seed: job seed and step, for the shuffle.
        ranks: who holds the model; all call this with the same batch, of which each computes its share.

    Returns:
        means over the optimizer steps: ``loss``, ``grad_norm``.
    """

    def loss_of(part: Batch, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        values = response_values(
            model,
            prompt_ids=part["prompt_ids"],
            prompt_mask=part["prompt_mask"],
            responses=part["responses"],
        )
        loss = clipped_value_loss(
            values,
            old_values=part["values"],
            returns=part["returns"],
            response_mask=part["response_mask"],
            clip_range=config.clip_range,
            denominator=tokens,
        )
        return loss, {}

    return _run_updates(
        model,
        optimizer,
        select(batch, CRITIC_KEYS, model=model),
        loss_of=loss_of,
        config=config,
        seed=seed,
        ranks=ranks,
    )


def _actor_loss(
    model: nn.Module, part: Batch, *, config: ActorUpdateConfig, denominator: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    mask = part["response_mask"].bool()
    log_probs, entropies = statistics_of(
        model, **{name: part[name] for name in SEQUENCE}, with_entropy=config.entropy_coefficient > 0
    )
    loss = clipped_policy_loss(
        log_probs,
        old_log_probs=part["log_probs"],
        advantages=part["advantages"],
        response_mask=mask,
        clip_range=config.clip_range,
        denominator=denominator,
    )
    statistics = _ratio_statistics(log_probs.detach(), part, mask, clip_range=config.clip_range, tokens=denominator)
    statistics["policy_loss"] = loss.detach()
    if config.kl_coefficient:
        kl = kl_penalty(log_probs, ref_log_probs=part["ref_log_probs"], response_mask=mask, denominator=denominator)
        loss = loss + config.kl_coefficient * kl
        statistics["kl"] = kl.detach()
    if entropies is not None:
        entropy = entropy_bonus(entropies, response_mask=mask, denominator=denominator)
        loss = loss - config.entropy_coefficient * entropy
        statistics["entropy"] = entropy.detach()
    return loss, statistics


def _ratio_statistics(
    log_probs: Tensor, part: Batch, mask: Tensor, *, clip_range: float, tokens: Tensor
) -> dict[str, Tensor]:
    log_ratio = torch.where(mask, log_probs - part["log_probs"], 0.0)
    clipped = ((log_ratio.exp() - 1.0).abs() > clip_range).float()
    return {
        "clip_fraction": token_mean(clipped, mask, denominator=tokens),
        "approx_kl": token_mean(log_ratio.expm1() - log_ratio, mask, denominator=tokens),
    }


def _run_updates(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    loss_of: Callable[[Batch, Tensor], tuple[Tensor, dict[str, Tensor]]],
    config: UpdateConfig,
    seed: StepSeed,
    ranks: Ranks,
) -> dict[str, float]:
    # Not the model's own: of a sharded one these may be the gathered ones of the last forward pass.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    sums: dict[str, Tensor] = {}
    norms = torch.zeros(())
    steps = 0
    model.train()
    for minibatch in _minibatches(batch, config=config, seed=seed):
        optimizer.zero_grad(set_to_none=True)
        tokens = minibatch["response_mask"].sum().clamp(min=1)
        for shares in plan_passes(minibatch, max_tokens=config.max_tokens, ranks=ranks.size):
            loss, statistics = loss_of(_share(minibatch, shares[ranks.rank]), tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            _accumulate(sums, {"loss": loss.detach(), **statistics})
        norm: Any = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        norms = norms + (norm.full_tensor() if ranks.mesh is not None else norm)
        optimizer.step()
        steps += 1
    optimizer.zero_grad(set_to_none=True)
    means = {name: total / steps for name, total in ranks.sums(sums).items()}
    return means | {"grad_norm": float(norms) / steps}


def _share(minibatch: Batch, rows: Tensor) -> Batch:
    """These rows; for a rank that is left with none, one that weighs nothing: it must compute with the others."""
    if len(rows):
        return trim_padding(take_rows(minibatch, rows))
    blank = {name: value[:1] for name, value in minibatch.items()}
    return trim_padding(blank | {"response_mask": torch.zeros_like(blank["response_mask"])})


def _minibatches(batch: Batch, *, config: UpdateConfig, seed: StepSeed) -> Iterator[Batch]:
    rows = batch["responses"].shape[0]
    if rows < config.minibatches:
        raise ValueError(f"{rows} samples cannot be cut in {config.minibatches} minibatches")
    for epoch in range(config.epochs):
        order = torch.from_numpy(permutation(rows, seed=seed, epoch=epoch))
        for chosen in order.tensor_split(config.minibatches):
            yield {name: value[chosen] for name, value in batch.items()}


def _accumulate(sums: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, value in values.items():
        sums[name] = sums[name] + value if name in sums else value
