"""Who ends the process when: after the step, at the grace's end, at a second SIGTERM."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rlhf_runtime.service.stopping import SIGTERM, SUSPEND, StopRequests, margin

PATIENCE = 20.0


class Run:
    """Stands for the run: tells whether it will finish, and remembers how it was asked."""

    def __init__(self, *, finishes: bool) -> None:
        self.finishes = finishes
        self.asked: list[str] = []
        self.asked_to_finish = threading.Event()
        self.ended = threading.Event()

    def finish(self, word: str) -> bool:
        self.asked.append(word)
        self.asked_to_finish.set()
        return self.finishes


@pytest.fixture
def opened() -> Iterator[list[StopRequests]]:
    requests: list[StopRequests] = []
    yield requests
    for one in requests:
        one.close()


def serve(run: Run, opened: list[StopRequests], *, grace: float = 3600.0) -> StopRequests:
    requests = StopRequests(finish=run.finish, end=run.ended.set, grace=grace)
    opened.append(requests)
    threading.Thread(target=requests.start).start()  # not the main thread, whose signals are pytest's
    return requests


@pytest.mark.parametrize("word", [SUSPEND, SIGTERM])
def test_a_run_that_trains_is_asked_to_finish_and_left_alone(opened: list[StopRequests], word: str) -> None:
    run = Run(finishes=True)
    serve(run, opened).request(word)
    assert run.asked_to_finish.wait(PATIENCE)
    assert (run.asked, run.ended.is_set()) == ([word], False)


def test_a_run_that_does_not_train_ends_at_once(opened: list[StopRequests]) -> None:
    run = Run(finishes=False)
    serve(run, opened).request()
    assert run.ended.wait(PATIENCE)


def test_when_the_grace_is_nearly_over_it_ends_whatever_it_does(opened: list[StopRequests]) -> None:
    run = Run(finishes=True)
    serve(run, opened, grace=3.1).request()
    assert run.ended.wait(PATIENCE)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param([SIGTERM, SIGTERM], True, id="a second SIGTERM ends at once"),
        pytest.param([SUSPEND, SUSPEND, SUSPEND], False, id="asking again, as the operator does, changes nothing"),
        pytest.param([SUSPEND, SIGTERM], False, id="the SIGTERM after a suspension still lets the step finish"),
        pytest.param([SUSPEND, SIGTERM, SIGTERM], True, id="the second SIGTERM after a suspension ends at once"),
    ],
)
def test_later_requests(opened: list[StopRequests], words: list[str], want: bool) -> None:
    run = Run(finishes=True)
    requests = serve(run, opened)
    for word in words:
        requests.request(word)
    assert run.asked_to_finish.wait(PATIENCE)
    requests.close()
    requests._thread.join(PATIENCE)
    assert not requests._thread.is_alive()
    assert (run.ended.is_set(), run.asked) == (want, words[:1])


@pytest.mark.parametrize(
    ("grace", "want"), [(0.0, 0.0), (2.0, 2.0), (10.0, 3.0), (30.0, 6.0), (300.0, 15.0)], ids=lambda v: f"{v:g} s"
)
def test_a_part_of_the_grace_is_kept_for_the_way_out(grace: float, want: float) -> None:
    assert margin(grace) == want
