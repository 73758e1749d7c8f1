"""Generation behind one small interface: ``cached`` (our loop) and ``transformers`` (the reference)."""

from rlhf_runtime.engines.rollout.base import RolloutEngine, RolloutResult, SamplingConfig

__all__ = ["RolloutEngine", "RolloutResult", "SamplingConfig"]
