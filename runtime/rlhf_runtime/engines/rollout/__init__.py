"""Generation behind one small interface: ``cached`` (our loop), ``transformers`` (the reference), ``vllm``."""

import torch
from torch import nn

from rlhf_runtime.engines.rollout.base import (
    EngineUnavailableError,
    RolloutEngine,
    RolloutResult,
    SamplingConfig,
    VLLMSettings,
)

__all__ = [
    "EngineUnavailableError",
    "RolloutEngine",
    "RolloutResult",
    "SamplingConfig",
    "VLLMSettings",
    "make_rollout_engine",
]


LARGE_PARAMETERS = 50_000_000
"""From here on vLLM is the quicker one; below, its own work per token is more than the model's (bench/rollouts.py)."""


def make_rollout_engine(name: str, model: nn.Module, vllm: VLLMSettings | None = None) -> RolloutEngine:
    """The rollout engine of this name on a policy.

    Args:
        name: cached, transformers or vllm; auto: vllm for a large model on a GPU, where it is installed and knows the
            model's architecture, else cached.
        model: the policy, whole.
        vllm: what vLLM is told of its device.

    Raises:
        ValueError: there is no such engine.
        EngineUnavailableError: it cannot run here, or not this model.
    """
    if name == "auto":
        name = "vllm" if _suits_vllm(model) else "cached"
    if name == "cached":
        from rlhf_runtime.engines.rollout.cached import CachedRollout

        return CachedRollout(model)
    if name == "transformers":
        from rlhf_runtime.engines.rollout.transformers_generate import TransformersRollout

        return TransformersRollout(model)
    if name == "vllm":
        from rlhf_runtime.engines.rollout.vllm_engine import VLLMRollout

        return VLLMRollout(model, vllm or VLLMSettings())
    raise ValueError(f"the rollout engine must be auto, cached, transformers or vllm, not '{name}'")


def _suits_vllm(model: nn.Module) -> bool:
    if not torch.cuda.is_available() or sum(part.numel() for part in model.parameters()) < LARGE_PARAMETERS:
        return False
    from rlhf_runtime.engines.rollout.vllm_start import knows

    return knows(model)
