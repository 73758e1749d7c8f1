"""What PPO and GRPO share: which prompts come next, and the steps around generation."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlhf_runtime.algorithms.counter_rng import DATA_STREAM, StepSeed, permutation
from rlhf_runtime.control.channels import DataChannel
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.tasks.base import Task

SEQUENCE = ("prompt_ids", "prompt_mask", "responses", "response_mask")
SAMPLES = (*SEQUENCE, "log_probs", "texts", "policy_version")
_JUDGED = ("response_mask", "log_probs", "rollout_log_probs")

Inputs = dict[str, Any]
Samples = Mapping[str, DataChannel]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """What the control flow itself must know.

    Attributes:
        prompts_per_step: B.
        samples_per_prompt: n; a step has B * n samples.
        seed: Of the order of prompts.
        actor: Name of the role that generates and learns.
        critic: Name of the role that gives values, if there is one.
        reference: Name of the frozen role, if there is one.
        rollout: Name of the role that generates in the actor's place, if there is one.
        rewards: Names of the roles that score; their scores are added.
        recomputes_log_probs: Whether the actor computes the samples' log-probs again before it learns from them: where
            another engine than its own may have generated.
    """

    prompts_per_step: int
    samples_per_prompt: int = 1
    seed: int = 0
    actor: str = "actor"
    critic: str | None = None
    reference: str | None = None
    rollout: str | None = None
    rewards: tuple[str, ...] = ("reward",)
    recomputes_log_probs: bool = False


class OnPolicyController(Controller):
    """Base of the algorithms that learn from their own samples."""

    task: Task
    flow: FlowSettings

    def generate(self) -> Samples:
        """The steps that sample responses to this iteration's prompts, with their log-probs."""
        actor, prompts = self.flow.actor, [self.task.train_prompts[row] for row in self.rows()]
        inputs = {"prompts": prompts} | self.weights()
        samples = self.step(role=self.flow.rollout or actor, method="generate", inputs=inputs, outputs=SAMPLES)
        if not self.flow.recomputes_log_probs:
            return samples
        again = self.step(role=actor, method="compute_log_probs", inputs=sequences(samples), outputs=["log_probs"])
        return {**samples, "rollout_log_probs": samples["log_probs"], "log_probs": again["log_probs"]}

    def weights(self) -> Inputs:
        """What a rollout role must be told to generate with the actor's present weights; nothing for the actor."""
        if self.flow.rollout is None:
            return {}
        return dict(self.step(role=self.flow.actor, method="publish_weights", outputs=["weights"]))

    def scores(self, samples: Samples) -> dict[str, DataChannel]:
        """The steps that score the samples, one per reward role: `scores`, or `scores/ROLE` where there are several."""
        rows = [row for row in self.rows() for _ in range(self.flow.samples_per_prompt)]
        answers = [self.task.train_answers[row] for row in rows]
        inputs = sequences(samples) | {"texts": samples["texts"], "answers": answers}
        if self.task.train_metadata:
            inputs["metadata"] = [self.task.train_metadata[row] for row in rows]
        channels = {}
        for role in self.flow.rewards:
            name = "scores" if len(self.flow.rewards) == 1 else f"scores/{role}"
            scored = self.step(role=role, method="compute_scores", inputs=inputs, outputs=["scores"])
            channels[name] = scored["scores"]
        return channels

    def reference_log_probs(self, samples: Samples) -> dict[str, DataChannel]:
        """The step that asks the reference, where there is one: `ref_log_probs`."""
        if self.flow.reference is None:
            return {}
        asked = self.step(
            role=self.flow.reference, method="compute_log_probs", inputs=sequences(samples), outputs=["ref_log_probs"]
        )
        return dict(asked)

    def rows(self) -> Sequence[int]:
        """Which training prompts this iteration takes: shuffled epochs, a pure function of seed and iteration."""
        count, batch = len(self.task.train_prompts), self.flow.prompts_per_step
        places = range(self.iteration * batch, (self.iteration + 1) * batch)
        return [int(_order(self.flow.seed, place // count, count)[place % count]) for place in places]

    def _build_evaluation(self) -> Mapping[str, Any]:
        """Greedy answers to the held-out problems, counted right when equal to the letter."""
        if not self.task.heldout_prompts:
            return {}
        inputs = {"prompts": list(self.task.heldout_prompts), "answers": list(self.task.heldout_answers)}
        inputs |= self.weights()
        tried = self.step(
            role=self.flow.rollout or self.flow.actor, method="evaluate", inputs=inputs, outputs=["accuracy"]
        )
        return {"heldout_accuracy": tried["accuracy"]}


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    return permutation(count, seed=StepSeed(job=seed, step=0), stream=DATA_STREAM, epoch=epoch)


def judged(samples: Samples) -> Inputs:
    """What the actor needs of the samples themselves to judge them."""
    return {name: samples[name] for name in _JUDGED if name in samples}


def sequences(samples: Samples) -> Inputs:
    """Prompts and responses alone: all that a role needs to run its model over them."""
    return {name: samples[name] for name in SEQUENCE}
