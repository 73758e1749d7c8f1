"""One worker per job: one look at a time, one more for all that came meanwhile, never a hot loop."""

import asyncio
from collections import Counter
from itertools import pairwise

from operator_builders import run, until

from rlhf_operator.kube.errors import LostLeaseError
from rlhf_operator.kube.store import JobKey
from rlhf_operator.worker import GONE, Pace, Workers

A, B = JobKey("team", "a"), JobKey("team", "b")
QUICK = Pace(settle_seconds=0, least_seconds=0.001)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_many_wakes_during_a_look_make_one_more_look() -> None:
    async def test() -> None:
        looks, going = 0, asyncio.Event()

        async def look(key: JobKey) -> float:
            nonlocal looks
            looks += 1
            await going.wait()
            return 1000

        workers = Workers(look, pace=QUICK, clock=Clock())
        workers.wake(A)
        await until(lambda: looks == 1)
        for _ in range(50):
            workers.wake(A)
        going.set()
        await until(lambda: looks == 2)
        await asyncio.sleep(0.05)
        assert looks == 2
        await workers.close()

    run(test())


def test_a_burst_of_changes_is_one_look() -> None:
    async def test() -> None:
        looks = 0

        async def look(key: JobKey) -> float:
            nonlocal looks
            looks += 1
            return 1000

        workers = Workers(look, pace=Pace(settle_seconds=0.1, least_seconds=0.001), clock=Clock())
        for _ in range(10):
            workers.wake(A)
            await asyncio.sleep(0.002)
        await until(lambda: looks)
        await asyncio.sleep(0.15)
        assert looks == 1
        await workers.close()

    run(test())


def test_a_job_is_looked_at_again_when_its_time_has_come() -> None:
    async def test() -> None:
        looks = 0

        async def look(key: JobKey) -> float:
            nonlocal looks
            looks += 1
            return 0.02 if looks < 3 else 1000

        workers = Workers(look, pace=QUICK, clock=Clock())
        workers.wake(A)
        await until(lambda: looks == 3)
        await workers.close()

    run(test())


def test_a_look_that_wants_the_next_at_once_still_waits_the_least_time() -> None:
    async def test() -> None:
        looks = 0

        async def look(key: JobKey) -> float:
            nonlocal looks
            looks += 1
            workers.wake(key)
            return 0

        workers = Workers(look, pace=Pace(settle_seconds=0, least_seconds=0.05), clock=Clock())
        workers.wake(A)
        await asyncio.sleep(0.5)
        assert 3 <= looks <= 11
        await workers.close()

    run(test())


def test_errors_are_tried_again_ever_later_and_wakes_do_not_cut_that_short() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        looks: list[float] = []

        async def look(key: JobKey) -> float:
            looks.append(loop.time())
            if len(looks) < 6:
                raise RuntimeError("no")
            return 1000

        failed: list[Exception] = []
        pace = Pace(settle_seconds=0, least_seconds=0.001, first_backoff_seconds=0.1, longest_backoff_seconds=0.4)
        workers = Workers(
            look, pace=pace, clock=Clock(), jitter=lambda: 0.5, failed=lambda key, error: failed.append(error)
        )
        async with asyncio.timeout(10):
            while len(looks) < 6:
                workers.wake(A)
                await asyncio.sleep(0.01)
        pauses = [later - sooner for sooner, later in pairwise(looks)]
        for pause, least in zip(pauses, (0.1, 0.2, 0.4, 0.4, 0.4), strict=True):
            assert least <= pause < least + 0.3
        assert len(failed) == 5
        await workers.close()

    run(test())


def test_what_the_user_changes_is_tried_at_once_after_errors() -> None:
    async def test() -> None:
        revision, looks = 1, 0

        async def look(key: JobKey) -> float:
            nonlocal looks
            looks += 1
            raise RuntimeError("no")

        pace = Pace(settle_seconds=0, least_seconds=0.001, first_backoff_seconds=60)
        workers = Workers(look, pace=pace, clock=Clock(), revision=lambda key: revision)
        workers.wake(A)
        await until(lambda: looks == 1)
        workers.wake(A)
        await asyncio.sleep(0.05)
        assert looks == 1
        revision = 2
        workers.wake(A)
        await until(lambda: looks == 2)
        await workers.close()

    run(test())


def test_one_job_that_fails_does_not_keep_another_waiting() -> None:
    async def test() -> None:
        seen: Counter[JobKey] = Counter()

        async def look(key: JobKey) -> float:
            seen[key] += 1
            if key == A:
                raise RuntimeError("no")
            return 0.01

        workers = Workers(look, pace=Pace(at_once=1, settle_seconds=0, least_seconds=0.001), clock=Clock())
        workers.wake(A)
        workers.wake(B)
        await until(lambda: seen[B] >= 5)
        assert seen[A] == 1
        await workers.close()

    run(test())


def test_no_more_jobs_are_looked_at_at_once_than_allowed() -> None:
    async def test() -> None:
        now, most, done = 0, 0, 0

        async def look(key: JobKey) -> float:
            nonlocal now, most, done
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1
            done += 1
            return 1000

        workers = Workers(look, pace=Pace(at_once=3, settle_seconds=0), clock=Clock())
        for number in range(12):
            workers.wake(JobKey("team", f"job-{number}"))
        await until(lambda: done == 12)
        assert most == 3
        await workers.close()

    run(test())


def test_work_for_a_job_that_is_gone_ends_and_begins_anew_with_another_of_its_name() -> None:
    async def test() -> None:
        exists, looks = False, 0

        async def look(key: JobKey) -> float | None:
            nonlocal looks
            looks += 1
            return 1000 if exists else GONE

        workers = Workers(look, pace=QUICK, clock=Clock())
        workers.wake(A)
        await until(lambda: not workers._jobs)
        exists = True
        workers.wake(A)
        await until(lambda: looks == 2)
        assert set(workers._jobs) == {A}
        await workers.close()

    run(test())


def test_a_hung_look_and_a_starved_job_show_in_the_figures_that_liveness_reads() -> None:
    async def test() -> None:
        clock = Clock()

        async def look(key: JobKey) -> float:
            await asyncio.Event().wait()
            return 0

        workers = Workers(look, pace=Pace(at_once=1, settle_seconds=0), clock=clock)
        workers.wake(A)
        await until(lambda: workers._jobs[A].looking_since is not None)
        workers.wake(B)
        clock.now = 100
        assert workers.longest_look() == 100
        assert workers.longest_wait() == 100
        assert workers.waiting == 1
        await workers.close()

    run(test())


def test_a_lost_lease_ends_the_process_not_the_job() -> None:
    async def test() -> None:
        fatal: list[BaseException] = []

        async def look(key: JobKey) -> float:
            raise LostLeaseError("lost")

        workers = Workers(look, pace=QUICK, clock=Clock(), fatal=fatal.append)
        workers.wake(A)
        await until(lambda: fatal)
        await workers.close()

    run(test())
