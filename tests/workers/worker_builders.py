"""Workers outside a process, and the batches they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.training import ActorUpdateConfig, CriticUpdateConfig, OptimizerConfig
from rlhf_runtime.executor import to_proto
from rlhf_runtime.resilience.state_tree import pack_state, unpack_state
from rlhf_runtime.worker import CallInfo, Worker, WorkerContext, constructing
from rlhf_runtime.workers.actor import ActorSettings, ActorWorker, AdvantageSettings, GenerationSettings
from rlhf_runtime.workers.critic import CriticSettings, CriticWorker

EXAMPLES = [("cat=", "tac"), ("horse=", "esroh"), ("a=", "a"), ("dog=", "god"), ("mouse=", "esuom"), ("bee=", "eeb")]
SEQUENCE = ("prompt_ids", "prompt_mask", "responses", "response_mask")
NEW_TOKENS = 5

W = TypeVar("W", bound=Worker)


def a_worker(cls: type[W], *args: Any, seed: int = 7, **kwargs: Any) -> W:
    with constructing(WorkerContext(role="tested", seed=seed)):
        return cls(*args, **kwargs)


def at(worker: W, *, iteration: int = 0, row_offset: int = 0, version: int = 0) -> W:
    """The worker, in a call of that place in the run."""
    worker.context.call = CallInfo(iteration=iteration, row_offset=row_offset)
    worker.context.version = version
    return worker


def actor_settings(samples: int = 1, engine: str = "cached", **update: Any) -> ActorSettings:
    return ActorSettings(
        generation=GenerationSettings(max_new_tokens=NEW_TOKENS, samples_per_prompt=samples, engine=engine),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        update=ActorUpdateConfig(epochs=2, minibatches=2, **update),
        advantages=AdvantageSettings(group_size=samples if samples > 1 else 0, kl_coefficient=0.05),
    )


def critic_settings() -> CriticSettings:
    return CriticSettings(
        optimizer=OptimizerConfig(learning_rate=1e-2), update=CriticUpdateConfig(epochs=2, minibatches=2)
    )


def an_actor(policy: Path, **settings: Any) -> ActorWorker:
    return a_worker(ActorWorker, str(policy), actor_settings(**settings))


def a_critic(policy: Path) -> CriticWorker:
    return a_worker(CriticWorker, str(policy), critic_settings())


def batch(values: Mapping[str, Any], /, *names: str, **more: Any) -> DataProto:
    """Some columns of what a worker gave, and more, as the next worker gets them."""
    return to_proto({**{name: values[name] for name in names}, **more})


def numbers_like(column: Tensor, *, seed: int) -> Tensor:
    """Standard normal numbers of the same shape."""
    return torch.randn(column.shape, generator=torch.Generator().manual_seed(seed))


def actor_batch(samples: Mapping[str, Any], *, seed: int = 11, **more: Any) -> DataProto:
    """What `ActorWorker.update` gets, with made-up advantages."""
    return batch(samples, *SEQUENCE, "log_probs", advantages=numbers_like(samples["responses"], seed=seed), **more)


def critic_batch(samples: Mapping[str, Any], *, seed: int = 13) -> DataProto:
    """What `CriticWorker.update` gets, with made-up returns."""
    values = torch.zeros(samples["responses"].shape)
    return batch(samples, *SEQUENCE, values=values, returns=numbers_like(values, seed=seed))


def stored(state: Mapping[str, Any]) -> Any:
    """The state as a snapshot brings it back."""
    skeleton, tensors = pack_state(state)
    return unpack_state(json.loads(json.dumps(skeleton)), tensors, where="snapshot")


def same_state(left: Any, right: Any) -> bool:
    """Whether two nested states are equal to the bit."""
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(same_state(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same_state(a, b) for a, b in zip(left, right, strict=True))
    return torch.equal(left, right) if isinstance(left, Tensor) else bool(left == right)
