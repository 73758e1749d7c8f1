"""Generation behind one small interface: ``cached`` (our loop) and ``transformers`` (the reference)."""

from torch import nn

from rlhf_runtime.engines.rollout.base import RolloutEngine, RolloutResult, SamplingConfig

__all__ = ["RolloutEngine", "RolloutResult", "SamplingConfig", "make_rollout_engine"]


def make_rollout_engine(name: str, model: nn.Module) -> RolloutEngine:
    """The rollout engine of this name on a policy.

    Raises:
        ValueError: there is no such engine.
    """
    if name == "cached":
        from rlhf_runtime.engines.rollout.cached import CachedRollout

        return CachedRollout(model)
    if name == "transformers":
        from rlhf_runtime.engines.rollout.transformers_generate import TransformersRollout

        return TransformersRollout(model)
    raise ValueError(f"the rollout engine must be cached or transformers, not '{name}'")
