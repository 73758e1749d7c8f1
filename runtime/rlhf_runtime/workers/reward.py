"""The reward model: one learned number for a whole response."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.batches import MAX_TOKENS
from rlhf_runtime.engines.ranks import own_device
from rlhf_runtime.engines.scalar_outputs import compute_scores
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_reward_model, load_tokenizer
from rlhf_runtime.worker import Effect, Worker, register

MISSING_END_SCORE = -2.0


class RewardWorker(Worker):
    """A transformer with a trained scalar head.

    Args:
        model: A folder with a trained head.
        tokenizer: A folder or Hugging Face id; tells which token ends a response.
        missing_end_score: Of a response that was cut off; scores are normalized to about mean 0 and variance 1.
        model_field: The manifest's field that named the model, for messages.
        dtype: Of its weights and of what it computes: "float32" or "bfloat16".
        max_tokens: Of one forward pass, padding included.
    """

    imports = SLOW_IMPORTS

    def __init__(
        self,
        model: str,
        tokenizer: str,
        missing_end_score: float = MISSING_END_SCORE,
        model_field: str = "spec.model",
        dtype: str = "float32",
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self._max_tokens = max_tokens
        self._model = load_reward_model(model, field=model_field, dtype=getattr(torch, dtype))
        self._model.to(own_device(self.context))
        self._eos_token_id = load_tokenizer(tokenizer).eos_token_id
        self._missing_end_score = missing_end_score

    @register(effect=Effect.READ)
    def compute_scores(self, data: DataProto) -> dict[str, Tensor]:
        """Scores (N,) of responses (N, T) after prompts (N, P)."""
        scores = compute_scores(
            self._model,
            data.batch,
            eos_token_id=self._eos_token_id,
            missing_eos_score=self._missing_end_score,
            max_tokens=self._max_tokens,
        )
        return {"scores": scores}
