"""One job as it changes, through everything that ends a watch.

    look ──► watch from there for 10 s ──► (closed | silent | 410: too long ago | broken) ──► look again
      ▲
      └── the API server does not answer: tried again, and the reader is told

A watch alone is not relied upon: what it should have told is seen at the next look.

Every look gives the job, changed or not, so that a reader who shows pods or times can renew them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlhf_cli.cluster import paths
from rlhf_cli.cluster.client import Cluster, Object
from rlhf_cli.cluster.errors import ExpiredError, NotFoundError, UnreachableError

WATCH_SECONDS = 10
_SILENCE = 30.0
_SHORTEST_WATCH = 1.0
_LONGEST_PAUSE = 8.0
GIVE_UP_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a job.

    Attributes:
        job: As it is now; None once it is deleted.
        problem: Why nothing new is known at the moment; "" when all is well.
    """

    job: Object | None
    problem: str = ""


def watch(
    cluster: Cluster,
    name: str,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    give_up: float = GIVE_UP_SECONDS,
    deadline: float | None = None,
) -> Iterator[Seen]:
    """Look at a job again and again; ends after it was deleted.

    Args:
        cluster: Where it is.
        name: Its name.
        pause: Waits; for tests.
        clock: Seconds that only go forward.
        give_up: Seconds without an answer after which there is no more hope.
        deadline: On `clock`; no look takes longer than until then, if that is near.

    Raises:
        NotFoundError: There is no such job at the beginning.
        ClusterError: A request is refused, or the API server does not answer for `give_up` seconds.
    """
    job: Object | None = cluster.job(name)
    uid = job["metadata"]["uid"] if job else None
    yield Seen(job=job)
    version, failures, lost_since = _version(job), 0, clock()
    while True:
        try:
            if version is None:
                job = cluster.find(name)
                if job is None or job["metadata"]["uid"] != uid:
                    yield Seen(job=None)
                    return
                version = _version(job)
                yield Seen(job=job)
            began = clock()
            for event in _events(cluster, name, version or "0", _seconds(deadline, clock)):
                found = event["object"]
                version = _version(found) or version
                if event["type"] == "DELETED" or (event["type"] == "ADDED" and found["metadata"]["uid"] != uid):
                    yield Seen(job=None)
                    return
                if event["type"] in ("ADDED", "MODIFIED"):
                    job = found
                    yield Seen(job=job)
            failures, lost_since = 0, clock()
            version = None  # some proxies keep a watch open and silent
            if clock() - began < _SHORTEST_WATCH:  # a server or proxy that closes at once must not be asked in a loop
                pause(_SHORTEST_WATCH)
        except (ExpiredError, NotFoundError):
            version = None
            if failures:
                pause(min(_LONGEST_PAUSE, 0.5 * 2**failures))
            failures += 1
        except UnreachableError as error:
            if clock() - lost_since > give_up:
                raise
            yield Seen(job=job, problem=str(error))
            pause(min(_LONGEST_PAUSE, 0.5 * 2**failures))
            failures, version = failures + 1, None


def _seconds(deadline: float | None, clock: Callable[[], float]) -> int:
    return WATCH_SECONDS if deadline is None else max(1, min(WATCH_SECONDS, round(deadline - clock())))


def _events(cluster: Cluster, name: str, version: str, seconds: int) -> Iterator[dict[str, Any]]:
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": seconds,
    }
    for line in cluster.http.lines(paths.jobs(cluster.namespace), query=query, silence=_SILENCE):
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError as error:  # cut where the connection broke
            raise UnreachableError(f"the connection to {cluster.http.host} broke") from error
        if event["type"] == "ERROR":
            status = event["object"]
            if status.get("code") == 410:
                raise ExpiredError(str(status.get("message")))
            raise UnreachableError(f"the watch ended: {status.get('message')}")
        yield event


def _version(job: Object | None) -> str | None:
    version = (job or {}).get("metadata", {}).get("resourceVersion")
    return str(version) if version else None
