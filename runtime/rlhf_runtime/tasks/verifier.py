"""reasoning-gym's verifiers as scorers: imported where they score, which is the reward role's process alone."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGymVerifier:
    """A scorer `(response, answer, metadata) -> float` that travels to another process.

    Attributes:
        dataset: The name of the reasoning-gym dataset.
        parameters: Its arguments as JSON.
    """

    dataset: str
    parameters: str = "{}"

    def __call__(self, response: str, answer: str, metadata: Mapping[str, Any]) -> float:
        """The verifier's score, 0.0 for a response that it cannot read.

        Raises:
            ValueError: `metadata` is not that of the task's problem.
        """
        if "question" not in metadata:
            raise ValueError("the scoring step must have the input `metadata` of the task's `train_metadata`")
        entry = {"question": metadata["question"], "answer": answer or None, "metadata": metadata}
        dataset = _opened(self.dataset, self.parameters)
        try:
            return float(dataset.score_answer(response, entry))
        except Exception:  # several verifiers raise whatever parsing a malformed response raises
            return 0.0


def import_reasoning_gym() -> Any:
    """The package, without the warnings and lines that its import prints; takes seconds the first time.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import reasoning_gym
        import reasoning_gym.factory
    return reasoning_gym


@functools.lru_cache(maxsize=8)
def _opened(dataset: str, parameters: str) -> Any:
    return import_reasoning_gym().create_dataset(dataset, **json.loads(parameters))
