"""Workers that speak text: prompts in, responses, scores and a loss out. What a short script of `step`s needs.

    generate(prompt) ─► responses ─► score ─► values, rewards ─► compute_loss ─► loss ─► update

Nothing is remembered between methods: the responses carry their tokens (`TokenizedText`), the loss its recipe
(`Loss`), so any of these steps can be run again in another process. For training at scale see `workers.actor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlhf_runtime.algorithms.counter_rng import StepSeed
from rlhf_runtime.algorithms.losses import clipped_policy_loss
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.engines.batches import Batch, select, trim_padding
from rlhf_runtime.engines.logprobs import response_log_probs
from rlhf_runtime.engines.rollout import SamplingConfig, make_rollout_engine
from rlhf_runtime.engines.training import OptimizerConfig, make_optimizer
from rlhf_runtime.errors import DataError, RefusedError
from rlhf_runtime.models.loading import SLOW_IMPORTS, load_causal_lm, load_tokenizer
from rlhf_runtime.models.text_scorers import load_text_scorer
from rlhf_runtime.values import Loss, TokenizedText
from rlhf_runtime.worker import Dispatch, Effect, Worker, register
from rlhf_runtime.workers.prompts import encode_prompts

TOKEN_KEYS = ("prompt_ids", "prompt_mask", "responses", "response_mask", "log_probs")
_STEPS_PER_ITERATION = 2**20


class ActorWorker(Worker):
    """A policy that generates text and learns from losses.

    Args:
        model_name: A folder or a Hugging Face id of a causal language model.
        learning_rate: Of the optimizer.
        optimizer: "adamw" or "sgd".
        max_new_tokens: Length of the longest response.
        temperature: Of sampling; 0: greedy.
        clip_range: PPO's epsilon.
        rollout: Rollout engine, "cached" or "transformers".
        max_prompt_length: Width of the prompts' tokens where several ranks generate; unused with one.
    """

    imports = SLOW_IMPORTS

    def __init__(
        self,
        model_name: str,
        learning_rate: float = 1e-6,
        optimizer: str = "adamw",
        max_new_tokens: int = 128,
        temperature: float = 0.7,
        clip_range: float = 0.2,
        rollout: str = "cached",
        max_prompt_length: int = 512,
    ) -> None:
        self._tokenizer = load_tokenizer(model_name, field="model_name")
        self._model = load_causal_lm(model_name, field="model_name")
        self._rollout = make_rollout_engine(rollout, self._model)
        if optimizer not in ("adamw", "sgd"):
            raise ValueError(f'`optimizer` must be "adamw" or "sgd"; got "{optimizer}"')
        self._optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(self._model.parameters(), lr=learning_rate)
            if optimizer == "sgd"
            else make_optimizer(self._model, OptimizerConfig(learning_rate=learning_rate))
        )
        self._sampling = SamplingConfig(
            max_new_tokens=max_new_tokens,
            eos_token_id=self._tokenizer.eos_token_id,
            pad_token_id=self._tokenizer.pad_token_id,
            temperature=temperature or 1.0,
            greedy=temperature == 0,
        )
        self._clip_range = clip_range
        self._max_prompt_length = max_prompt_length

    @register(effect=Effect.READ)
    def generate(self, prompt: list[str]) -> dict[str, TokenizedText]:
        """Sample a response to each of B prompts.

        Returns:
            `responses`: B strings; their `tokens` have `prompt_ids` and `prompt_mask` (B, P), `responses`,
            `response_mask` and `log_probs` (B, T), and per row the `prompt` and whether the response `ended`.

        Raises:
            ValueError: A prompt is empty, or longer than the model takes.
        """
        ids, mask = encode_prompts(self._tokenizer, prompt, model=self._model, room_for=self._sampling.max_new_tokens)
        call = self.context.call
        result = self._rollout.generate(
            ids,
            prompt_mask=mask,
            sampling=self._sampling,
            # A script may generate more than once in an iteration, and each time anew.
            seed=StepSeed(job=self.context.seed, step=call.iteration * _STEPS_PER_ITERATION + call.ordinal),
            sample_ids=torch.arange(call.row_offset, call.row_offset + len(prompt)),
        )
        kept = [row[mask.bool()] for row, mask in zip(result.responses, result.response_mask, strict=True)]
        ended = [bool(len(row)) and int(row[-1]) == self._sampling.eos_token_id for row in kept]
        if self.context.world_size > 1:  # the ranks' rows are joined, so they need one width
            ids, mask = (self._widened(column) for column in (ids, mask))
        tokens = {
            "prompt_ids": ids,
            "prompt_mask": mask,
            "responses": result.responses,
            "response_mask": result.response_mask,
            "log_probs": result.log_probs,
        }
        texts = self._tokenizer.batch_decode(kept, skip_special_tokens=True)
        return {
            "responses": TokenizedText(texts, DataProto.from_dict(tokens, {"prompt": list(prompt), "ended": ended}))
        }

    @register(effect=Effect.READ, dispatch=Dispatch.RANK_ZERO)
    def compute_loss(self, responses: TokenizedText, values: list[float], rewards: list[float]) -> dict[str, Any]:
        """PPO's clipped surrogate with one-step advantages A = R - V, the same for each token of a response.

        Args:
            responses: What `generate` gave.
            values: Of each response, as the critic gave them.
            rewards: Of each response.

        Returns:
            `loss`: a `Loss`, to be formatted as a float and given to `update`. `gae`: the advantages.

        Raises:
            DataError: The responses are plain strings, or the lists differ in length.
        """
        tokens = _tokens_of(responses, needed_by="compute_loss")
        if not len(responses) == len(values) == len(rewards):
            raise DataError(
                f"`compute_loss` must be given one value and one reward for each of the {len(responses)} responses; "
                f"got {len(values)} values and {len(rewards)} rewards"
            )
        advantages = [reward - value for reward, value in zip(rewards, values, strict=True)]
        recipe = {
            "tokens": DataProto(select(tokens.batch, TOKEN_KEYS)),
            "advantages": torch.tensor(advantages, dtype=torch.float32),
            "clip_range": self._clip_range,
            "version": self.context.version,
            "seed": self.context.seed,
        }
        with torch.no_grad():
            loss = float(self._surrogate(recipe))
        return {"loss": Loss(loss, recipe), "gae": advantages}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, loss: float) -> None:
        """One optimizer step with exactly the gradient of a loss that `compute_loss` gave.

        Raises:
            RefusedError: The loss is a bare float, or was computed for other weights than these. Nothing is changed.
        """
        if not isinstance(loss, Loss) or "version" not in loss.recipe:
            raise RefusedError(
                f"`update` must be given the loss that `compute_loss` returned; a bare number ({float(loss):g}) does "
                "not say what it is the loss of, so it has no gradient"
            )
        if loss.recipe["version"] != self.context.version:
            raise RefusedError(
                f"`update` must be given a loss of the present weights, version {self.context.version}; this one was "
                f"computed for version {loss.recipe['version']}: compute it again"
            )
        self._optimizer.zero_grad(set_to_none=True)
        self._surrogate(loss.recipe).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._rollout.refresh()

    def state_dict(self) -> Mapping[str, Any]:
        """Weights and optimizer."""
        return {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(dict(state["optimizer"]))
        self._rollout.refresh()

    def _surrogate(self, recipe: Mapping[str, Any]) -> Tensor:
        batch: Batch = trim_padding({**recipe["tokens"].batch, "advantages": recipe["advantages"]})
        log_probs = response_log_probs(  # in eval mode, as everything here: dropout would make it another loss
            self._model, **{name: batch[name] for name in TOKEN_KEYS if name != "log_probs"}
        )
        return clipped_policy_loss(
            log_probs,
            old_log_probs=batch["log_probs"],
            advantages=batch["advantages"].unsqueeze(1),
            response_mask=batch["response_mask"],
            clip_range=recipe["clip_range"],
        )

    def _widened(self, column: Tensor) -> Tensor:
        missing = self._max_prompt_length - column.shape[1]
        if missing < 0:
            raise DataError(f"`max_prompt_length` must be at least {column.shape[1]}, the longest prompt's tokens")
        return torch.nn.functional.pad(column, (missing, 0))


class CriticWorker(Worker):
    """Values: what reward is to be expected after a prompt.

    Args:
        model_name: A folder or a Hugging Face id: of a scalar-head model, a sequence classifier with one output, or
            any other model, which gets a new head.
    """

    imports = SLOW_IMPORTS

    def __init__(self, model_name: str) -> None:
        self._scorer = load_text_scorer(model_name, seed=self.context.seed)

    @register(effect=Effect.READ)
    def score(self, responses: TokenizedText) -> dict[str, list[float]]:
        """One value per response: that of the state at its prompt's end, before the first token of it.

        Raises:
            DataError: The responses are plain strings, which do not remember their prompts.
        """
        return {"values": self._scorer.prompt_values(_tokens_of(responses, needed_by="score")["prompt"])}


class RewardModelWorker(Worker):
    """Rewards: how good a response is.

    Args:
        model_name: A folder or a Hugging Face id of a trained reward model: a scalar-head model, or any sequence
            classifier, which reads prompt and response as a pair.
        label: Which output of a classifier with several is the reward.
    """

    imports = SLOW_IMPORTS

    def __init__(self, model_name: str, label: int = 0) -> None:
        self._scorer = load_text_scorer(model_name, seed=self.context.seed, must_be_trained=True, label=label)

    @register(effect=Effect.READ)
    def score(self, responses: list[str]) -> dict[str, list[float]]:
        """One reward per response; those that do not remember their prompt are judged alone."""
        tokens = responses.tokens if isinstance(responses, TokenizedText) else None
        prompts = tokens["prompt"] if tokens is not None else [""] * len(responses)
        ended = tokens["ended"] if tokens is not None else [True] * len(responses)
        return {"rewards": self._scorer.response_scores(prompts, list(responses), ended=ended)}


def _tokens_of(responses: Any, *, needed_by: str) -> DataProto:
    if not isinstance(responses, TokenizedText):
        raise DataError(
            f"`{needed_by}` must be given the responses as `generate` returned them: plain strings have lost their "
            "prompts, tokens and log-probabilities"
        )
    return responses.tokens
