"""The reference: the frozen policy that the actor must not stray from."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.batches import MAX_TOKENS
from rlhf_runtime.engines.logprobs import compute_log_probs
from rlhf_runtime.engines.ranks import own_device
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_causal_lm
from rlhf_runtime.worker import Effect, Worker, register


class ReferenceWorker(Worker):
    """A causal language model that never changes.

    Args:
        model: A folder or a Hugging Face id.
        model_field: The manifest's field that named the model, for messages.
        dtype: Of its weights and of what it computes: "float32" or "bfloat16".
        max_tokens: Of one forward pass, padding included.
    """

    imports = SLOW_IMPORTS

    def __init__(
        self, model: str, model_field: str = "spec.model", dtype: str = "float32", max_tokens: int = MAX_TOKENS
    ) -> None:
        self._max_tokens = max_tokens
        self._model = load_causal_lm(model, field=model_field, dtype=getattr(torch, dtype)).to(own_device(self.context))

    @register(effect=Effect.READ)
    def compute_log_probs(self, data: DataProto) -> dict[str, Tensor]:
        """Log-probs (N, T) of responses (N, T) after prompts (N, P), as `ref_log_probs`."""
        return {"ref_log_probs": compute_log_probs(self._model, data.batch, max_tokens=self._max_tokens)}
