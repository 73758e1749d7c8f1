"""The control experiment: the task's own scores, but each given to another sample of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_runtime.algorithms.counter_rng import StepSeed, permutation
from rlhf_runtime.api import DataProto, Effect, register
from rlhf_runtime.tasks.procedural import spelling_credit
from rlhf_runtime.workers.rule import RuleWorker

SHUFFLED_STREAM = 77


class ShuffledRuleWorker(RuleWorker):
    """Scores that say nothing about the response they are given to: nothing can be learned from them."""

    def __init__(self) -> None:
        super().__init__(spelling_credit)

    @register(effect=Effect.NONE)
    def compute_scores(self, data: DataProto) -> dict[str, Tensor]:
        scores = super().compute_scores(data)["scores"]
        seed = StepSeed(job=self.context.seed, step=self.context.call.iteration)
        return {"scores": scores[torch.from_numpy(permutation(len(scores), seed=seed, stream=SHUFFLED_STREAM))]}
