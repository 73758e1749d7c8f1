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
from rlhf_runtime.workers.functions import scored_rows, takes_metadata

Scorer = Callable[..., Awaitable[float]]


class ScoreServiceError(RuntimeError):
    """The service failed for a response, after all tries."""


class APIScoreWorker(Worker):
    """Asks an async function of the user's, `(response, answer, **arguments) -> number`, many responses at a time.

    A function with a parameter `metadata` also gets what the task knows of the problem, as a dict.

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
        self._takes_metadata = takes_metadata(self._function)
        self._concurrency = concurrency
        self._timeout = timeout
        self._tries = tries
        self._retry_seconds = retry_seconds

    @register(effect=Effect.NONE)
    def compute_scores(self, data: DataProto) -> dict[str, Tensor]:
        """Scores (N,) of `texts` (N strings) against `answers` (N strings), with `metadata` (N strings) if there is.

        Raises:
            ScoreServiceError: The service failed for one of them after all tries, or gave no finite number.
        """
        scores = asyncio.run(self._score_all(scored_rows(data, with_metadata=self._takes_metadata)))
        return {"scores": torch.tensor(scores, dtype=torch.float32)}

    async def _score_all(self, rows: list[tuple[str, str, dict[str, Any]]]) -> list[float]:
        limit = asyncio.Semaphore(self._concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._score(*row, limit)) for row in rows]
        except ExceptionGroup as failed:
            # The first failure has stopped the others; a group of one would hide its message.
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        return [task.result() for task in tasks]

    async def _score(self, text: str, answer: str, more: Mapping[str, Any], limit: asyncio.Semaphore) -> float:
        async with limit:
            for attempt in range(self._tries):
                try:
                    async with asyncio.timeout(self._timeout):
                        score = float(await self._function(text, answer, **{**more, **self._arguments}))
                except Exception as error:  # a client library may raise anything
                    if attempt + 1 == self._tries:
                        times = "once" if self._tries == 1 else f"{self._tries} times"
                        cause = (
                            f"no answer in {self._timeout:g} s"
                            if isinstance(error, TimeoutError)
                            else f"{type(error).__name__}: {error}"
                        )
                        raise ScoreServiceError(
                            f'"{self._name}" failed {times} for response {text!r}: {cause}'
                        ) from error
                    await asyncio.sleep(self._retry_seconds * 2**attempt)
                    continue
                if not math.isfinite(score):
                    raise ScoreServiceError(f'"{self._name}" must give a finite number, got {score} for {text!r}')
                return score
        raise AssertionError("unreachable: the last try returns or raises")
