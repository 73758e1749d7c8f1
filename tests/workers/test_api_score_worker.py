import asyncio
import math
import time
from typing import Any

import pytest
from worker_builders import a_worker

from rlhf_runtime.executor import to_proto
from rlhf_runtime.tasks.metadata import pack
from rlhf_runtime.workers.api_score import APIScoreWorker, ScoreServiceError


class Service:
    """Stands for a slow scorer: counts who is being served, and fails when told to."""

    def __init__(self, *, seconds: float = 0.0, failures: int = 0, score: float | None = None) -> None:
        self.seconds = seconds
        self.failures = failures
        self.score = score
        self.tries: dict[str, list[float]] = {}
        self.serving = self.most_served = 0

    async def __call__(self, response: str, answer: str, scale: float = 1.0) -> float:
        self.tries.setdefault(response, []).append(time.monotonic())
        self.serving += 1
        self.most_served = max(self.most_served, self.serving)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.serving -= 1
        if len(self.tries[response]) <= self.failures:
            raise ConnectionError("503 busy")
        return scale * len(response) if self.score is None else self.score


def score(service: Any, count: int = 3, **settings: Any) -> list[float]:
    texts = ["x" * length for length in range(1, count + 1)]
    worker = a_worker(APIScoreWorker, service, **{"retry_seconds": 0.001, **settings})
    given = worker.compute_scores(to_proto({"texts": texts, "answers": texts}))["scores"]
    return [float(value) for value in given]


def test_scores_stand_in_the_order_of_the_responses() -> None:
    async def later_for_shorter(response: str, answer: str) -> float:
        await asyncio.sleep(0.02 / len(response))
        return len(response)

    assert score(later_for_shorter, 5) == [1, 2, 3, 4, 5]


def test_requests_are_under_way_together_but_no_more_than_allowed() -> None:
    service = Service(seconds=0.01)
    score(service, 40, concurrency=8)
    assert service.most_served == 8
    together = Service(seconds=0.01)
    score(together, 20)
    assert together.most_served == 20


def test_arguments_and_metadata_reach_the_service() -> None:
    assert score(Service(), arguments={"scale": 10.0}) == [10, 20, 30]

    async def of_level(response: str, answer: str, metadata: dict[str, Any]) -> float:
        return float(metadata["level"])

    columns = {"texts": ["a"], "answers": ["a"], "metadata": [pack({"level": 4})]}
    assert a_worker(APIScoreWorker, of_level).compute_scores(to_proto(columns))["scores"].tolist() == [4.0]


def test_a_failed_request_is_made_again_after_waits_that_double() -> None:
    service = Service(failures=2)
    assert score(service, 1, retry_seconds=0.02) == [1.0]
    first, second, third = service.tries["x"]
    assert second - first >= 0.02
    assert third - second >= 0.04


def test_a_service_that_stays_down_is_one_clear_error() -> None:
    service = Service(failures=9)
    with pytest.raises(ScoreServiceError) as caught:
        score(service, 1, tries=3)
    assert str(caught.value) == "\"score function\" failed 3 times for response 'x': ConnectionError: 503 busy"
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(service.tries["x"]) == 3


def test_a_request_that_hangs_is_given_up() -> None:
    service = Service(seconds=60.0)
    started = time.monotonic()
    with pytest.raises(ScoreServiceError, match=r"failed 2 times for response .*: no answer in 0.02 s"):
        score(service, timeout=0.02, tries=2)
    assert time.monotonic() - started < 5.0
    assert service.serving == 0


def test_one_failure_stops_the_others() -> None:
    cancelled = []

    async def serve(response: str, answer: str) -> float:
        if response == "x":
            raise ConnectionError("down")
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            cancelled.append(response)
            raise
        return 0.0

    with pytest.raises(ScoreServiceError, match='"serve" failed once for response'):
        score(serve, 3, tries=1)
    assert sorted(cancelled) == ["xx", "xxx"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_none_is_not_asked_for_again(bad: float) -> None:
    service = Service(score=bad)
    with pytest.raises(ScoreServiceError, match=f"must give a finite number, got {bad} for 'x'"):
        score(service, 1)
    assert len(service.tries["x"]) == 1


def test_a_service_by_name_that_cannot_be_imported_names_the_role() -> None:
    with pytest.raises(Exception, match='score function of role "tested" "no_such_module:f" cannot be imported'):
        a_worker(APIScoreWorker, "no_such_module:f")
