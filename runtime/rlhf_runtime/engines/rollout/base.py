"""The interface of a rollout engine, and the sampling rule that all engines of ours share.

A token is drawn by inverting the cumulative distribution at one uniform number, which is a pure function of
(job seed, step, global sample index, token position): the same sample gets the same numbers whatever batch,
shard or engine it is in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.engines.adapters import tied_names
from rlhf_runtime.errors import RlhfError


class EngineUnavailableError(RlhfError):
    """A rollout engine cannot run here, or not this model; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How responses are drawn.

    Attributes:
        max_new_tokens: T, the columns of every result.
        eos_token_id: ends a response; belongs to it and to its mask.
        pad_token_id: fills the columns after the end.
        samples_per_prompt: n; the samples of one prompt are neighbours in the result.
        temperature: divides the logits before drawing.
        greedy: takes the most likely token instead; no random number is used.
    """

    max_new_tokens: int
    eos_token_id: int
    pad_token_id: int
    samples_per_prompt: int = 1
    temperature: float = 1.0
    greedy: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.samples_per_prompt < 1:
            raise ValueError("`max_new_tokens` and `samples_per_prompt` must be at least 1")
        if self.temperature <= 0:
            raise ValueError(f"`temperature` must be above 0, not {self.temperature}; set `greedy` for its limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMSettings:
    """What vLLM is told of its device.

    Attributes:
        gpu_memory_share: of each GPU's memory that it may take for weights and cache.
        cpu_kv_cache_gib: of memory for the cache where it computes on a CPU.
        tensor_parallel_size: over how many accelerators one model is spread.
        max_model_length: longest prompt and response together; 0: what the model takes.
        max_sequences: how many responses it works on at once.
        sleep: whether it gives its GPU memory back while the policy trains.
    """

    gpu_memory_share: float = 0.5
    cpu_kv_cache_gib: int = 1
    tensor_parallel_size: int = 1
    max_model_length: int = 0
    max_sequences: int = 256
    sleep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutResult:
    """Responses of B prompts times n samples.

    Attributes:
        responses: (B * n, T) int64, ``pad_token_id`` after the end.
        response_mask: (B * n, T) int64, 1 up to and including the end-of-sequence token.
        log_probs: (B * n, T) float32 of the chosen tokens under the model's own distribution, that is at
            temperature 1 whatever temperature they were drawn at: what training computes, so that the ratio
            starts at 1. Zero outside the mask.
    """

    responses: Tensor
    response_mask: Tensor
    log_probs: Tensor

    def to(self, device: torch.device) -> "RolloutResult":
        """The same on this device."""
        return RolloutResult(
            responses=self.responses.to(device),
            response_mask=self.response_mask.to(device),
            log_probs=self.log_probs.to(device),
        )


class RolloutEngine(Protocol):
    """Generates responses from the policy's present weights."""

    name: str

    @property
    def device(self) -> torch.device:
        """Where it wants its prompts."""
        ...

    def generate(
        self,
        prompt_ids: Tensor,
        *,
        prompt_mask: Tensor,
        sampling: SamplingConfig,
        seed: StepSeed,
        sample_ids: Tensor | None = None,
    ) -> RolloutResult:
        """Draw ``samples_per_prompt`` responses for each prompt, in eval mode and without gradient.

        Args:
            prompt_ids: (B, P) int64, padded on the left.
            prompt_mask: (B, P).
            sampling: how to draw.
            seed: job seed and step.
            sample_ids: (B * n,) global index of each sample in its step; 0, 1, 2, ... by default. A shard
                passes its own.

        Returns:
            the responses, in the order of the prompts.
        """
        ...

    def release(self) -> None:
        """The policy trains next: an engine that holds memory of its own on the device gives it back meanwhile."""
        ...

    def refresh(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """The policy's weights have changed.

        Args:
            weights: the new ones by the names that a checkpoint has, where the policy is trained elsewhere; none: they
                are in the model already, and an engine that keeps a copy takes them from there.
        """
        ...


class SharesParameters:
    """What engines have in common that compute with the policy's own parameters, and so are always up to date.

    Args:
        model: a causal language model of transformers.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    @property
    def device(self) -> torch.device:
        """The model's."""
        return next(self._model.parameters()).device

    def release(self) -> None:
        """Nothing to do: nothing is kept between calls."""

    def refresh(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Take weights from elsewhere; those of the policy itself need nothing."""
        if weights is not None:
            load_weights(self._model, weights)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; one that is tied to another may be left out.

    Raises:
        ValueError: they are not this model's.
    """
    result = model.load_state_dict(dict(weights), strict=False)
    tied = tied_names(model)
    missing = [name for name in result.missing_keys if name not in tied]
    if missing or result.unexpected_keys:
        raise ValueError(
            f"the weights are those of another model: {missing[:3]} are missing, {result.unexpected_keys[:3]} too many"
        )


def global_sample_ids(count: int, sample_ids: Tensor | None) -> Tensor:
    """The global index of each of ``count`` samples; 0, 1, 2, ... where none are given.

    Raises:
        ValueError: there are more or fewer.
    """
    ids = torch.arange(count) if sample_ids is None else sample_ids
    if ids.shape != (count,):
        raise ValueError(f"`sample_ids` must have shape ({count},), not {tuple(ids.shape)}")
    return ids


def choose_tokens(logits: Tensor, *, uniform: Tensor, sampling: SamplingConfig) -> Tensor:
    """Draw one token per row.

    Args:
        logits: (N, V) float32.
        uniform: (N,) float64 in [0, 1); unused when greedy.
        sampling: temperature or greedy.

    Returns:
        (N,) int64.
    """
    if sampling.greedy:
        return logits.argmax(dim=-1)
    # In float64 the rounding of the sum cannot reach a token of probability 0 at the end of the vocabulary.
    cumulative = (logits / sampling.temperature).softmax(dim=-1).double().cumsum(dim=-1)
    target = uniform.unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)
