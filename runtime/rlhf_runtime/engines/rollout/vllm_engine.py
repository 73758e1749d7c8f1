"""Rollout engine ``vllm``: vLLM in the process of the role that generates.

It keeps the weights a second time, in its own layout (Kwon et al., "Efficient Memory Management for Large Language
Model Serving with PagedAttention", 2023, arXiv:2309.06180), so that each change of the policy must be brought to it.
Its random numbers are its own: a sample depends on seed, step and its index, as in our engines, but is another one.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlhf_runtime.algorithms.counter_rng import StepSeed, uniforms
from rlhf_runtime.engines.adapters import checkpoint_weights
from rlhf_runtime.engines.rollout.base import (
    RolloutResult,
    SamplingConfig,
    VLLMSettings,
    global_sample_ids,
)
from rlhf_runtime.engines.rollout.vllm_start import own_thread_setting, start

_SEEDS = 2**62


class VLLMRollout:
    """See the module.

    Args:
        model: The policy, whole, whose weights are taken at once; or its shape alone (on torch's meta device), where it
            is trained elsewhere: then the weights come with the first ``refresh``.
        settings: What vLLM is told of the device.

    Raises:
        EngineUnavailableError: vLLM is not installed, does not know the model's architecture, or does not start.
    """

    name = "vllm"

    _current: ClassVar[weakref.ref[VLLMRollout] | None] = None

    def __init__(self, model: nn.Module, settings: VLLMSettings) -> None:
        _end_current()
        self._model: Any = model
        self._settings = settings
        self._asleep = False
        self._llm = start(self._model, settings)
        VLLMRollout._current = weakref.ref(self)
        if not next(model.parameters()).is_meta:
            self.refresh()

    @property
    def device(self) -> torch.device:
        """The CPU: vLLM takes lists of numbers."""
        return torch.device("cpu")

    def end(self) -> None:
        """Let go of all that vLLM holds: it keeps things in global places, so that a process has one at a time."""
        from vllm.distributed.parallel_state import destroy_model_parallel

        self._llm.llm_engine.engine_core.shutdown()
        destroy_model_parallel()

    def release(self) -> None:
        """Give the device's memory back until the next ``refresh`` or ``generate``; on a CPU vLLM cannot."""
        if self._settings.sleep and not self._asleep and torch.cuda.is_available():
            self._llm.sleep(level=2)  # the weights are not kept either: what comes next brings new ones
            self._asleep = True

    def refresh(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Take new weights, and forget what was computed with the old ones."""
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        state = checkpoint_weights(self._model) if weights is None else weights
        with own_thread_setting():
            self._llm.collective_rpc(_load_weights, args=(self._sendable(state),))
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        self._llm.reset_prefix_cache()

    def generate(
        self,
        prompt_ids: Tensor,
        *,
        prompt_mask: Tensor,
        sampling: SamplingConfig,
        seed: StepSeed,
        sample_ids: Tensor | None = None,
    ) -> RolloutResult:
        """See ``RolloutEngine.generate``."""
        from vllm import SamplingParams

        if self._asleep:
            self.refresh()
        prompts = [
            {"prompt_token_ids": row[kept.bool()].tolist()} for row, kept in zip(prompt_ids, prompt_mask, strict=True)
        ]
        n = sampling.samples_per_prompt
        seeds = _request_seeds(global_sample_ids(len(prompts) * n, sample_ids), seed)
        parameters = [
            SamplingParams(
                max_tokens=sampling.max_new_tokens,
                temperature=0.0 if sampling.greedy else sampling.temperature,
                seed=None if sampling.greedy else request_seed,
                stop_token_ids=[sampling.eos_token_id],
                logprobs=0,  # of the chosen token alone
                detokenize=False,
            )
            for request_seed in seeds
        ]
        requests = [prompt for prompt in prompts for _ in range(n)]
        with own_thread_setting():
            answers = self._llm.generate(requests, parameters, use_tqdm=False)
        return _to_result([answer.outputs[0] for answer in answers], sampling).to(prompt_ids.device)

    def _sendable(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor] | bytes:
        """As vLLM's workers can be given it: tensors as they are to one in this process, to several others as bytes."""
        if self._settings.tensor_parallel_size == 1:
            return state
        from safetensors.torch import save

        data: bytes = save({name: value.detach().cpu().contiguous() for name, value in state.items()})
        return data


def _end_current() -> None:
    """End the engine of a worker that this process had before: one is made anew when its state was discarded."""
    before = VLLMRollout._current() if VLLMRollout._current is not None else None
    if before is not None:
        before.end()
        VLLMRollout._current = None


def _load_weights(worker: Any, weights: Mapping[str, Tensor] | bytes) -> None:
    """Runs in vLLM's worker."""
    from safetensors.torch import load

    named: Mapping[str, Tensor] = load(weights) if isinstance(weights, bytes) else weights
    worker.reload_weights(weights_iterator=iter(named.items()))
    head = getattr(worker.model_runner.get_model(), "lm_head", None)
    method = getattr(head, "quant_method", None)
    if method is not None:
        # A head that is tied to the embedding would go on with what was prepared from the old one (vllm 0.32, CPU).
        method.process_weights_after_loading(head)


def _request_seeds(sample_ids: Tensor, seed: StepSeed) -> list[int]:
    """A seed for each sample: a pure function of (job seed, step, global sample index)."""
    numbers = uniforms(seed, sample_ids=sample_ids.cpu().numpy(), length=1)[:, 0]
    seeds: list[int] = np.floor(numbers * _SEEDS).astype(np.int64).tolist()
    return seeds


def _to_result(outputs: list[Any], sampling: SamplingConfig) -> RolloutResult:
    shape = (len(outputs), sampling.max_new_tokens)
    responses = torch.full(shape, sampling.pad_token_id, dtype=torch.int64)
    response_mask = torch.zeros(shape, dtype=torch.int64)
    log_probs = torch.zeros(shape, dtype=torch.float32)
    for row, output in enumerate(outputs):
        length = len(output.token_ids)
        responses[row, :length] = torch.tensor(list(output.token_ids), dtype=torch.int64)
        response_mask[row, :length] = 1
        chosen = [entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True)]
        log_probs[row, :length] = torch.tensor(chosen, dtype=torch.float32)
    return RolloutResult(responses=responses, response_mask=response_mask, log_probs=log_probs)
