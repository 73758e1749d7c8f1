"""One worker per job: wakes, looks, and sleeps until something changes or its time has come.

    wake ──► wait for a place ──► look (gather, plan, execute) ──► sleep until `wake_in` or the next wake
                                      └─ error: sleep longer each time; only a change by the user cuts that short

However often a job is woken, there is one look at a time, and one more for all that came meanwhile. Between two looks
at one job there is a least time, so nothing can make a hot loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlhf_operator.kube.errors import LostLeaseError
from rlhf_operator.kube.store import JobKey

GONE = None
"""What a look returns when the job does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a worker may be.

    Attributes:
        at_once: Jobs that are looked at at the same time.
        settle_seconds: From a wake to the look: changes come in bursts.
        least_seconds: Between the ends of two looks at one job.
        first_backoff_seconds: The first sleep after an error; doubled each time.
        longest_backoff_seconds: The longest.
    """

    at_once: int = 8
    settle_seconds: float = 0.05
    least_seconds: float = 0.2
    first_backoff_seconds: float = 1.0
    longest_backoff_seconds: float = 120.0


@dataclass(slots=True, kw_only=True)
class _Job:
    task: asyncio.Task[None]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    revision: object = None
    woken_at: float | None = None
    looking_since: float | None = None
    errors: int = 0


class Workers:
    """The workers of all jobs.

    Args:
        look: Looks at a job once; returns the seconds until it is to be looked at again, or `GONE`.
        pace: How fast.
        revision: Of what a job's user wrote; a new one is tried at once, whatever failed before.
        clock: Of this process, seconds.
        failed: Told of each error, for metrics.
        fatal: Told of an error after which the process must end.
        jitter: A number in [0, 1), so that jobs that failed together are not tried together.
    """

    def __init__(
        self,
        look: Callable[[JobKey], Awaitable[float | None]],
        *,
        pace: Pace,
        clock: Callable[[], float],
        revision: Callable[[JobKey], object] = lambda key: None,
        failed: Callable[[JobKey, Exception], None] = lambda key, error: None,
        fatal: Callable[[BaseException], None] = lambda error: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._look = look
        self._pace = pace
        self._clock = clock
        self._revision = revision
        self._failed = failed
        self._fatal = fatal
        self._jitter = jitter
        self._places = asyncio.Semaphore(pace.at_once)
        self._jobs: dict[JobKey, _Job] = {}
        self._closed = False

    def wake(self, key: JobKey) -> None:
        """Something of a job has changed."""
        if self._closed:
            return
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(task=asyncio.create_task(self._work(key), name=f"worker of {key}"))
        if job.woken_at is None:
            job.woken_at = self._clock()
        job.woken.set()
        if job.errors and self._revision(key) != job.revision:
            job.errors = 0
            job.changed.set()

    async def close(self) -> None:
        """End all workers; a look that is under way is cut off, which a later one makes good."""
        self._closed = True
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def waiting(self) -> int:
        """Jobs that were woken and wait for their look."""
        return sum(job.woken_at is not None and job.looking_since is None for job in self._jobs.values())

    def longest_wait(self) -> float:
        """Seconds that a woken job without errors has waited for its look."""
        now = self._clock()
        waits = (job.woken_at for job in self._jobs.values() if not job.errors and job.looking_since is None)
        return max((now - woken for woken in waits if woken is not None), default=0.0)

    def longest_look(self) -> float:
        """Seconds that a look has taken so far."""
        now = self._clock()
        looks = (job.looking_since for job in self._jobs.values())
        return max((now - since for since in looks if since is not None), default=0.0)

    async def _work(self, key: JobKey) -> None:
        await asyncio.sleep(0)  # until `wake` has put this job in place
        job = self._jobs[key]
        while True:
            await asyncio.sleep(self._pace.settle_seconds)
            async with self._places:
                sleep = await self._look_once(key, job)
            if sleep is GONE and not job.woken.is_set():
                del self._jobs[key]
                return
            await asyncio.sleep(self._pace.least_seconds)
            if job.errors:
                await _until(job.changed, self._backoff(job.errors))
            else:
                await _until(job.woken, sleep or 0.0)

    async def _look_once(self, key: JobKey, job: _Job) -> float | None:
        job.woken.clear()
        job.changed.clear()
        job.revision = self._revision(key)
        job.woken_at = None
        job.looking_since = self._clock()
        try:
            sleep = await self._look(key)
        except asyncio.CancelledError:
            raise
        except LostLeaseError as error:
            self._fatal(error)
            return 0.0
        except Exception as error:
            job.errors += 1
            self._failed(key, error)
            return 0.0
        finally:
            job.looking_since = None
        job.errors = 0
        return sleep

    def _backoff(self, errors: int) -> float:
        doubled = self._pace.first_backoff_seconds * 2.0 ** min(errors - 1, 20)
        return min(doubled, self._pace.longest_backoff_seconds) * (0.75 + 0.5 * self._jitter())


async def _until(event: asyncio.Event, seconds: float) -> None:
    """Sleep, but not longer than until something happens."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
