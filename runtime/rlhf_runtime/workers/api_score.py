"""Scores from an external service: slow, asynchronous, and in a process of its own, so that nobody else waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.executor import import_object
from rlhf_runtime.worker import Effect, Worker, register

Scorer = Callable[..., Awaitable[float]]


class ScoreServiceError(RuntimeError):
    """The service failed for a response, after all tries."""


class APIScoreWorker(Worker):
    """Asks an async function of the user's, `(response, answer, **arguments) -> number`, many responses at a time.

    Args:
        function: The function, or `package.module:function`.
        arguments: More keyword arguments for every call.
        concurrency: How many requests are under way at once.
        timeout: Seconds that one request may take.
        tries: How often a request is made before it fails the step; the waits between double from `retry_seconds`.
        retry_seconds: The first wait between tries.
    """

    def __init__(
        self,
        function: Scorer | str,
        arguments: Mapping[str, Any] | None = None,
        concurrency: int = 32,
        timeout: float = 60.0,
        tries: int = 3,
        retry_seconds: float = 1.0,
    ) -> None:
        self._name = function if isinstance(function, str) else getattr(function, "__name__", "score function")
        what = f'score function of role "{self.context.role}"'
        self._function = import_object(function, what=what) if isinstance(function, str) else function
        self._arguments = dict(arguments or {})
        self._concurrency = concurrency
        self._timeout = timeout
        self._tries = tries
        self._retry_seconds = retry_seconds

    @register(effect=Effect.NONE)
    def compute_scores(self, data: DataProto) -> dict[str, Tensor]:
        """Scores (N,) of `texts` (N strings) against `answers` (N strings).

        Raises:
            ScoreServiceError: The service failed for one of them after all tries, or gave no finite number.
        """
        texts, answers = data.non_tensor_batch["texts"], data.non_tensor_batch["answers"]
        scores = asyncio.run(self._score_all(texts, answers))
        return {"scores": torch.tensor(scores, dtype=torch.float32)}

    async def _score_all(self, texts: list[str], answers: list[str]) -> list[float]:
        limit = asyncio.Semaphore(self._concurrency)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._score(t, a, limit)) for t, a in zip(texts, answers, strict=True)]
        return [task.result() for task in tasks]

    async def _score(self, text: str, answer: str, limit: asyncio.Semaphore) -> float:
        async with limit:
            for attempt in range(self._tries):
                try:
                    async with asyncio.timeout(self._timeout):
                        score = float(await self._function(text, answer, **self._arguments))
                except Exception as error:  # a client library may raise anything
                    if attempt + 1 == self._tries:
                        raise ScoreServiceError(
                            f'"{self._name}" failed {self._tries} times for response {text!r}: '
                            f"{type(error).__name__}: {error}"
                        ) from error
                    await asyncio.sleep(self._retry_seconds * 2**attempt)
                    continue
                if not math.isfinite(score):
                    raise ScoreServiceError(f'"{self._name}" must give a finite number, got {score} for {text!r}')
                return score
        raise AssertionError("unreachable: the last try returns or raises")
