"""Liveness fails when work has stopped; an API server that is away is no reason."""

import asyncio

import pytest
from operator_builders import run, until
from reconciling import Clock

from rlhf_operator.health import Health
from rlhf_operator.kube.audit import Audit
from rlhf_operator.kube.kinds import POD, RLHF_JOB
from rlhf_operator.kube.store import JobKey, Store
from rlhf_operator.worker import Pace, Workers


class DeafAudit(Audit):
    """An audit that found what a test says."""

    def __init__(self, late: list[str]) -> None:
        super().__init__(client=None, store=Store(), namespaces=(), clock=Clock())  # type: ignore[arg-type]
        self.late = late

    def deaf(self, kinds: object, *, since: float) -> list[object]:  # type: ignore[override]
        return [POD] if self.late else []


def health(workers: Workers, audit: Audit, *, started: bool = True, leading: bool = True) -> Health:
    return Health(
        workers=workers,
        audit=audit,
        kinds=lambda: (RLHF_JOB, POD),
        started=lambda: started,
        leading=lambda: leading,
        stuck_seconds=60,
        deaf_seconds=300,
    )


async def never(key: JobKey) -> float:
    await asyncio.Event().wait()
    return 0


async def fails(key: JobKey) -> float:
    raise RuntimeError("the API server is away")


@pytest.mark.parametrize(
    ("look", "seconds", "want"),
    [
        (never, 59, ""),
        (never, 61, "a look at a job has taken 61 s"),
        (fails, 10_000, ""),
    ],
    ids=["a long look is no trouble yet", "a hung look is", "errors are not"],
)
def test_liveness_reads_the_workers(look: object, seconds: float, want: str) -> None:
    async def test() -> None:
        clock, began = Clock(), asyncio.Event()

        async def watched(key: JobKey) -> float:
            began.set()
            result: float = await look(key)  # type: ignore[operator]
            return result

        workers = Workers(watched, pace=Pace(settle_seconds=0, first_backoff_seconds=60), clock=clock)
        workers.wake(JobKey("team", "ppo"))
        await asyncio.wait_for(began.wait(), 5)
        await until(lambda: look is never or workers.longest_look() == 0)
        workers.wake(JobKey("team", "ppo"))
        clock.seconds = seconds
        wrong = health(workers, DeafAudit([])).not_alive()
        assert (want in wrong[0]) if want else wrong == []
        await workers.close()

    run(test())


def test_a_deaf_watch_is_no_life() -> None:
    async def test() -> None:
        workers = Workers(never, pace=Pace(), clock=Clock())
        (wrong,) = health(workers, DeafAudit(["a pod"])).not_alive()
        assert wrong == "the watch of pods has not brought all changes for 300 s"

    run(test())


def test_a_replica_is_ready_when_it_stands_by_or_has_listed_everything() -> None:
    async def test() -> None:
        workers, audit = Workers(never, pace=Pace(), clock=Clock()), DeafAudit([])
        assert health(workers, audit, started=False).not_ready() == ["the API server does not answer yet"]
        assert health(workers, audit, leading=False).not_ready() == []
        audit.agreed_once.add(POD)
        assert health(workers, audit).not_ready() == ["not listed yet: rlhfjobs"]
        audit.agreed_once.add(RLHF_JOB)
        assert health(workers, audit).not_ready() == []

    run(test())
