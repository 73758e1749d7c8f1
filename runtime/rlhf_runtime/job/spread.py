"""Over how many ranks a training role's model is spread, and what trains it there: what `Auto` stands for."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_api.accelerators import gpus_of
from rlhf_api.enums import Precision, TrainingEngine
from rlhf_api.types.roles import Role as RoleSpec
from rlhf_runtime.engines.trained import ShardingConfig
from rlhf_runtime.job.prepare import UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a role's workers come about.

    Attributes:
        workers: How many there are: a model's ranks, or replicas of a model that is not trained.
        per_pod: How many of them share a pod: one for each accelerator of a training role's.
        engine: What trains the role; None: it does not train.
        sharding: How FSDP2 does, where it does.
    """

    workers: int
    per_pod: int = 1
    engine: TrainingEngine | None = None
    sharding: ShardingConfig | None = None


def spread_of(spec: RoleSpec, field: str = "", *, accelerators: bool = True) -> Spread:
    """How a role is spread.

    Args:
        spec: The role.
        field: Where the manifest has it, for messages.
        accelerators: Whether the accelerators that it asks for are there; on a laptop they are not.

    Raises:
        UnsupportedError: Its engine cannot do what it asks for.
    """
    if not spec.type.trains:
        return Spread(workers=spec.replicas)
    per_pod = max(1, gpus_of(spec.resources)) if accelerators else 1
    ranks = spec.pods_per_replica * per_pod
    half = spec.engine.precision is Precision.BFLOAT16
    engine = spec.engine.training
    if engine is TrainingEngine.AUTO:
        sharded = ranks > 1 or half or spec.engine.checkpoint_activations
        engine = TrainingEngine.FSDP2 if sharded else TrainingEngine.TORCH
    if engine is TrainingEngine.FSDP2:
        sharding = ShardingConfig(
            compute_dtype="bfloat16" if half else "float32",
            checkpoint_activations=spec.engine.checkpoint_activations,
        )
        return Spread(workers=ranks, per_pod=per_pod, engine=engine, sharding=sharding)
    if ranks > 1:
        raise UnsupportedError(
            f"`{field}.engine.training` must be FSDP2 or Auto: Torch trains on one rank, and the role has {ranks} "
            "(`podsPerReplica` times its accelerators)"
        )
    if half:
        raise UnsupportedError(
            f"`{field}.engine.training` must be FSDP2 or Auto with `precision` BFloat16: Torch trains in Float32"
        )
    if spec.engine.checkpoint_activations:
        raise UnsupportedError(
            f"`{field}.engine.training` must be FSDP2 or Auto with `checkpointActivations`: Torch keeps activations"
        )
    return Spread(workers=1, engine=engine)
