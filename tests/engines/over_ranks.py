"""What the tests of several ranks do on each of them."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tiny_models import make_tiny_model
from torch import Tensor

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.adapters import LoRASettings, add_adapters
from rlhf_runtime.engines.logprobs import compute_log_probs, response_statistics
from rlhf_runtime.engines.ranks import ALONE, Ranks, join_ranks
from rlhf_runtime.engines.scalar_outputs import compute_values
from rlhf_runtime.engines.trained import ShardingConfig, TrainedModel
from rlhf_runtime.engines.training import (
    ActorUpdateConfig,
    CriticUpdateConfig,
    OptimizerConfig,
    actor_update,
    critic_update,
)
from rlhf_runtime.models.heads import with_scalar_head
from rlhf_runtime.resilience.checkpoint import SnapshotStore
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.worker import WorkerContext

FEW_TOKENS = 30  # of a pass, so that a batch takes several
OPTIMIZER = OptimizerConfig(learning_rate=1e-2)


def actor_model(
    ranks: Ranks, sharding: ShardingConfig | None, *, lora: LoRASettings | None = None, **model: Any
) -> TrainedModel:
    made = make_tiny_model(0, **model)
    return TrainedModel(
        add_adapters(made, lora, seed=3) if lora else made,
        optimizer=OPTIMIZER,
        ranks=ranks,
        sharding=sharding,
        forward_methods=[response_statistics],
        keep_whole=True,
        adapted=lora is not None,
    )


def update_actor(trained: TrainedModel, batch: dict[str, Tensor], step: int) -> dict[str, float]:
    config = ActorUpdateConfig(kl_coefficient=0.1, entropy_coefficient=0.1, minibatches=2, max_tokens=FEW_TOKENS)
    return trained.update(actor_update, batch, config=config, seed=StepSeed(job=1, step=step))


def train_actor(
    context: WorkerContext,
    batch: dict[str, Tensor],
    sharding: ShardingConfig | None = None,
    updates: int = 10,
    model: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Some updates on this many ranks; plain torch where there is one and no `sharding`."""
    ranks = ALONE if context.world_size == 1 and sharding is None else join_ranks(context)
    trained = actor_model(ranks, sharding, **(model or {}))
    metrics = [update_actor(trained, batch, step) for step in range(updates)]
    share = {name: value[context.rank :: context.world_size] for name, value in batch.items()}
    # Ranks that need different numbers of passes wait for each other.
    tokens = FEW_TOKENS if context.rank else 10_000
    assert trained.whole is not None
    return {
        "metrics": metrics,
        "weights": {name: value.clone() for name, value in trained.whole.state_dict().items()},
        "masters": {str(parameter.dtype) for parameter in trained.optimizer.param_groups[0]["params"]},
        "log_probs": compute_log_probs(trained.model, share, max_tokens=tokens, ranks=ranks),
        "elements": sum(_held(parameter) for parameter in trained.optimizer.param_groups[0]["params"]),
    }


def _held(parameter: Tensor) -> int:
    local: Any = getattr(parameter, "to_local", lambda: parameter)()
    return int(local.numel())


def train_critic(context: WorkerContext, batch: dict[str, Tensor], updates: int = 10) -> dict[str, Any]:
    ranks = ALONE if context.world_size == 1 else join_ranks(context)
    trained = TrainedModel(with_scalar_head(make_tiny_model(0)), optimizer=OPTIMIZER, ranks=ranks, keep_whole=True)
    config = CriticUpdateConfig(epochs=2, minibatches=1, max_tokens=FEW_TOKENS)
    metrics = []
    for step in range(updates):
        seed = StepSeed(job=1, step=step)
        metrics.append(trained.update(critic_update, batch, config=config, seed=seed))
    share = {name: value[context.rank :: context.world_size] for name, value in batch.items()}
    assert trained.whole is not None
    return {
        "metrics": metrics,
        "weights": dict(trained.whole.state_dict()),
        "values": compute_values(trained.model, share, ranks=ranks),
    }


def train_and_save(
    context: WorkerContext, batch: dict[str, Tensor], folder: Path, updates: int, lora: LoRASettings | None = None
) -> dict[str, Any]:
    """Updates, a snapshot in parts, and as many updates again."""
    trained = actor_model(join_ranks(context), None, lora=lora)
    for step in range(updates):
        update_actor(trained, batch, step)
    _snapshots(context, folder).save(updates, trained.state_dict())
    return _go_on(trained, batch, updates)


def load_and_train(
    context: WorkerContext, batch: dict[str, Tensor], folder: Path, updates: int, lora: LoRASettings | None = None
) -> dict[str, Any]:
    """The snapshot, and as many updates again."""
    trained = actor_model(ALONE if context.world_size == 1 else join_ranks(context), None, lora=lora)
    trained.load_state_dict(_snapshots(context, folder).load(updates))
    return _go_on(trained, batch, updates)


def _snapshots(context: WorkerContext, folder: Path) -> SnapshotStore:
    return SnapshotStore(LocalStateStore(folder), role="actor", rank=context.rank, parts=context.world_size)


def _go_on(trained: TrainedModel, batch: dict[str, Tensor], updates: int) -> dict[str, Any]:
    for step in range(updates, 2 * updates):
        update_actor(trained, batch, step)
    assert trained.whole is not None
    return dict(trained.whole.state_dict())


def memory_to_train(
    context: WorkerContext, batch: dict[str, Tensor], model: Mapping[str, Any], limit: int | None = None
) -> int:
    """By how many bytes the process's memory grows at most while it makes and trains a critic.

    With a `limit` the kernel refuses it more than so many bytes beyond what it has.
    """
    ranks = ALONE if context.world_size == 1 else join_ranks(context)
    update_actor(actor_model(ranks, None), batch, 0)  # what is imported and allocated once does not count
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _memory("VmRSS")
    with _at_most(limit):
        trained = TrainedModel(with_scalar_head(make_tiny_model(0, **model)), optimizer=OPTIMIZER, ranks=ranks)
        config = CriticUpdateConfig(minibatches=1, max_tokens=FEW_TOKENS)
        for step in range(2):
            seed = StepSeed(job=1, step=step)
            trained.update(critic_update, batch, config=config, seed=seed)
    return _memory("VmHWM") - before


@contextlib.contextmanager
def _at_most(more: int | None) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if more is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (_memory("VmData") + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
