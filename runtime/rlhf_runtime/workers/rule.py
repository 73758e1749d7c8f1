"""Rule rewards: a task's own verifier, or a function of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.executor import import_object
from rlhf_runtime.worker import Effect, Worker, register
from rlhf_runtime.workers.functions import scored_rows, takes_metadata

RewardFunction = Callable[..., float]


class RewardFunctionError(ValueError):
    """A reward function raised or gave no number; the message shows for which response."""


class RuleWorker(Worker):
    """Scores each response with a function `(response, answer, **arguments) -> number`.

    A function with a parameter `metadata` also gets what the task knows of the problem, as a dict.

    Args:
        function: The function, or `package.module:function`.
        arguments: More keyword arguments for every call.
    """

    def __init__(self, function: RewardFunction | str, arguments: Mapping[str, Any] | None = None) -> None:
        self._name = function if isinstance(function, str) else getattr(function, "__name__", "reward function")
        what = f'reward function of role "{self.context.role}"'
        self._function = import_object(function, what=what) if isinstance(function, str) else function
        self._arguments = dict(arguments or {})
        self._takes_metadata = takes_metadata(self._function)

    @register(effect=Effect.NONE)
    def compute_scores(self, data: DataProto) -> dict[str, Tensor]:
        """Scores (N,) of `texts` (N strings) against `answers` (N strings), with `metadata` (N strings) if there is.

        Raises:
            RewardFunctionError: The function raised, or gave something that is no finite number.
        """
        rows = scored_rows(data, with_metadata=self._takes_metadata)
        return {"scores": torch.tensor([self._score(*row) for row in rows], dtype=torch.float32)}

    def _score(self, text: str, answer: str, more: Mapping[str, Any]) -> float:
        try:
            score = float(self._function(text, answer, **{**more, **self._arguments}))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise RewardFunctionError(
                f'"{self._name}" raised {type(error).__name__}: {error}; response {text!r}, answer {answer!r}'
            ) from error
        if not math.isfinite(score):
            raise RewardFunctionError(
                f'"{self._name}" must give a finite number, got {score}; response {text!r}, answer {answer!r}'
            )
        return score
