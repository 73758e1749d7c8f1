"""A copy of all objects of all jobs, kept by watches, so that a look at a job costs the API server nothing.

What the operator itself writes goes in with the answer, so that the next look sees it although the watch may lag; an
older version of an object never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rlhf_api.names import JOB_LABEL
from rlhf_operator.kube.kinds import RLHF_JOB, Kind

Object = dict[str, Any]


class JobKey(NamedTuple):
    """A job's name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Store:
    """The objects.

    Args:
        changed: Told of each job something of which has changed.
    """

    def __init__(self, changed: Callable[[JobKey], None] = lambda key: None) -> None:
        self.changed = changed
        self._objects: dict[Kind, dict[tuple[str, str], Object]] = {}
        self._of_job: dict[JobKey, dict[tuple[Kind, str], Object]] = {}

    def put(self, kind: Kind, thing: Object, *, quiet: bool = False) -> None:
        """Keep an object, unless a newer version of it is there; `quiet` tells nobody of it."""
        meta = thing["metadata"]
        name = (meta["namespace"], meta["name"])
        old = self._objects.setdefault(kind, {}).get(name)
        if old is not None and _is_older(thing, than=old):
            return
        if old is not None and old["metadata"].get("resourceVersion") == meta.get("resourceVersion"):
            return
        slim = _without_bulk(thing)
        if old is not None:
            self._unlink(kind, old)
        self._objects[kind][name] = slim
        key = job_of(kind, slim)
        if key is not None:
            self._of_job.setdefault(key, {})[kind, meta["name"]] = slim
            if not quiet:
                self.changed(key)

    def remove(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Forget an object, if it is still the one with this UID."""
        old = self._objects.get(kind, {}).get((namespace, name))
        if old is None or old["metadata"].get("uid") != uid:
            return
        del self._objects[kind][namespace, name]
        self._unlink(kind, old)
        key = job_of(kind, old)
        if key is not None:
            self.changed(key)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: Kind) -> Iterator[Object]:
        """All objects of a kind."""
        yield from list(self._objects.get(kind, {}).values())

    def of_job(self, key: JobKey, kind: Kind) -> list[Object]:
        """The objects of a job, by name."""
        found = self._of_job.get(key, {})
        return [found[of_kind, name] for of_kind, name in sorted(found, key=_by_name) if of_kind == kind]

    def revision(self, key: JobKey) -> tuple[Any, ...]:
        """Changes whenever a job's user changes it, or it is another job of that name."""
        thing = self.get(RLHF_JOB, key.namespace, key.name)
        if thing is None:
            return ()
        meta = thing["metadata"]
        return meta.get("uid"), meta.get("generation"), str(meta.get("annotations")), meta.get("deletionTimestamp")

    def jobs(self) -> list[JobKey]:
        """All jobs that exist."""
        return [JobKey(*name) for name in self._objects.get(RLHF_JOB, {})]

    def count(self, kind: Kind) -> int:
        """How many objects of a kind there are."""
        return len(self._objects.get(kind, {}))

    def _unlink(self, kind: Kind, old: Object) -> None:
        key = job_of(kind, old)
        if key is None:
            return
        found = self._of_job[key]
        del found[kind, old["metadata"]["name"]]
        if not found:
            del self._of_job[key]


def job_of(kind: Kind, thing: Object) -> JobKey | None:
    """The job that an object belongs to."""
    meta = thing["metadata"]
    name = meta["name"] if kind == RLHF_JOB else (meta.get("labels") or {}).get(JOB_LABEL)
    return JobKey(meta["namespace"], name) if name else None


def _by_name(item: tuple[Kind, str]) -> tuple[str, str]:
    return (item[0].kind, item[1])


def _is_older(thing: Object, *, than: Object) -> bool:
    new, old = thing["metadata"], than["metadata"]
    if new.get("uid") != old.get("uid"):
        return str(new.get("creationTimestamp", "")) < str(old.get("creationTimestamp", ""))
    try:
        return int(new["resourceVersion"]) < int(old["resourceVersion"])
    except (KeyError, ValueError):  # an API server that numbers versions otherwise
        return False


def _without_bulk(thing: Object) -> Object:
    """Field managers are most of a small object, and nobody here reads them."""
    meta = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    annotations = meta.get("annotations")
    if annotations and "kubectl.kubernetes.io/last-applied-configuration" in annotations:
        meta["annotations"] = {key: value for key, value in annotations.items() if not key.startswith("kubectl.")}
    return {**thing, "metadata": meta}
