"""Carries out plans: calls, deletes, applies, status, events, in this order.

A step that fails does not keep the others from being done: a quota that forbids one object must not hide the status
that says so. What failed is raised in the end, and the job is looked at again after a while. What was refused for good
is remembered instead, for the next plan to say and to be tried again later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_api import API_VERSION, KIND
from rlhf_operator.control.client import ControlClient, ControlError
from rlhf_operator.kube import kinds
from rlhf_operator.kube.applied import Applied
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError, NameTakenError
from rlhf_operator.kube.events import Events
from rlhf_operator.kube.gather import Gatherer, running_controller
from rlhf_operator.kube.store import JobKey, Store, job_of
from rlhf_operator.planning.plan import Delete, Manifest, Plan, RestartRole
from rlhf_operator.planning.pods import owned_by
from rlhf_operator.planning.snapshot import Snapshot
from rlhf_operator.telemetry.logging import log


class IncompleteError(Exception):
    """Parts of a plan could not be carried out.

    Attributes:
        kinds: One word for each, for metrics.
    """

    def __init__(self, errors: Sequence[ApiError | ControlError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.kinds = tuple(error.kind for error in errors)


@dataclass(slots=True, kw_only=True)
class Executor:
    """Carries out plans.

    Attributes:
        client: The API server.
        store: Gets each answer, so that the next look sees what was done.
        control: The controllers of jobs.
        events: Tells of events.
        applied: What was applied before.
        gatherer: Told of refusals, and of namespaces that are terminating.
        watched: The kinds that the store has.
        missing: Optional kinds that the cluster was seen to lack.
    """

    client: KubeClient
    store: Store
    control: ControlClient
    events: Events
    applied: Applied
    gatherer: Gatherer
    watched: tuple[kinds.Kind, ...]
    missing: set[kinds.Kind] = field(default_factory=set)

    async def execute(self, plan: Plan, snapshot: Snapshot) -> list[ApiError]:
        """Carry out a plan.

        Returns:
            What the API server refuses since this look.

        Raises:
            IncompleteError: Something could not be done.
        """
        key = JobKey(snapshot.job.metadata.namespace or "default", snapshot.job.name)
        living = self.store.get(kinds.RLHF_JOB, *key)
        failed: list[ApiError | ControlError] = []
        pod = running_controller([dict(pod) for pod in snapshot.pods])
        unheard = False
        for call in plan.calls:
            try:
                await self.control.call(snapshot.job, pod, call)
                log("told the controller", job=key, call=type(call).__name__, role=getattr(call, "role", None))
            except ControlError as error:
                failed.append(error)
                unheard |= isinstance(call, RestartRole)
        for delete in plan.deletes:
            try:
                await self._delete(key, delete)
            except ApiError as error:
                failed.append(error)
        refusals, refused = self.gatherer.refusals, list[ApiError]()
        refusals.keep(key, plan.applies)
        for manifest in plan.applies:
            if unheard and manifest["kind"] == kinds.RAY_CLUSTER.kind:
                continue  # it says which restarts are done with
            if refusals.stands(key, manifest):
                continue
            try:
                await self._apply(key, manifest, whole=plan.whole)
                refusals.drop(key, manifest)
            except ApiError as error:
                if "NamespaceTerminating" in error.causes:
                    self.gatherer.terminating[key.namespace] = self.gatherer.clock()
                elif error.refused:
                    refused += [error] if refusals.add(key, manifest, error) else []
                    continue
                failed.append(error)
        if living is not None:
            try:
                if plan.status is not None:
                    await self.write_status(key, plan.status.model_dump(mode="json", by_alias=True, exclude_none=True))
                for event in plan.events:
                    await self.events.tell(living, event)
                if plan.delete_job:
                    await self._delete_job(key, living)
            except ApiError as error:
                failed.append(error)
        if failed:
            raise IncompleteError([*failed, *refused])
        return refused

    async def write_status(self, key: JobKey, status: Mapping[str, Any]) -> None:
        """Write a job's status, unless it is so already."""
        living = self.store.get(kinds.RLHF_JOB, *key)
        if living is None or _clean(living.get("status")) == _clean(status):
            return
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": living["metadata"]["uid"]},
            "status": dict(status),
        }
        try:
            answer = await self.client.apply(manifest, kinds.RLHF_JOB, subresource="status")
        except ApiError as error:
            if error.status in (404, 409):  # it is gone, or another has its name: the watch will tell
                return
            raise
        self.store.put(kinds.RLHF_JOB, answer, quiet=True)

    async def forget(self, key: JobKey) -> None:
        """A job is gone."""
        await self.control.forget(str(key))
        self.applied.forget(key)
        self.gatherer.forget(key)
        self.events.forget(key)

    async def _apply(self, key: JobKey, manifest: Manifest, *, whole: bool) -> None:
        kind = kinds.of(manifest["apiVersion"], manifest["kind"])
        name = manifest["metadata"]["name"]
        placed = {**manifest, "metadata": {**manifest["metadata"], "namespace": key.namespace}}
        blind = kind not in self.watched
        living = None if blind else self.store.get(kind, key.namespace, name)
        if self.applied.is_needless(key, kind, placed, living, blind=blind, whole=whole):
            return
        if living is None and not blind:
            await self._check_name(key, placed, kind)
        try:
            answer = await self.client.apply(placed, kind)
        except ApiError as error:
            if kind.optional and error.status == 404 and error.reason != "NotFound":  # not the namespace, but the kind
                if kind not in self.missing:
                    self.missing.add(kind)
                    log(
                        "the cluster lacks a kind, which is left out",
                        kind=f"{kind.plural}.{kind.group}",
                        level="warning",
                    )
                return
            raise
        changed = self.applied.remember(key, kind, placed, answer)
        if not blind:
            self.store.put(kind, answer, quiet=True)
        if changed:
            log("created" if living is None and not blind else "applied", job=key, kind=kind.kind, name=name)

    async def _check_name(self, key: JobKey, manifest: Manifest, kind: kinds.Kind) -> None:
        """Nobody's object is taken over: the store sees only what is labelled as ours, and an apply is forced.

        Raises:
            NameTakenError: The name is another's.
        """
        name = manifest["metadata"]["name"]
        found = await self.client.get(kind, key.namespace, name)
        if found is None or job_of(kind, found) == key:
            return
        job = self.store.get(kinds.RLHF_JOB, *key)
        if job is None or not owned_by(found, job["metadata"]["uid"]):
            raise NameTakenError(kind.kind, name)

    async def _delete(self, key: JobKey, delete: Delete) -> None:
        kind = kinds.of(delete.api_version, delete.kind)
        answer = await self.client.delete(
            kind, key.namespace, delete.name, uid=delete.uid, grace_seconds=delete.grace_seconds
        )
        if answer is not None and answer.get("kind") == kind.kind and delete.grace_seconds != 0:
            self.store.put(kind, answer, quiet=True)
        if answer is not None:
            log("deleted", job=key, kind=kind.kind, name=delete.name, grace=delete.grace_seconds)

    async def _delete_job(self, key: JobKey, living: Mapping[str, Any]) -> None:
        await self.client.delete(kinds.RLHF_JOB, *key, uid=living["metadata"]["uid"])
        log("deleted the job, whose time after its end is over", job=key)


def _clean(value: Any) -> Any:
    """Without what is absent or null, and lists as lists: the API server keeps no nulls."""
    if isinstance(value, Mapping):
        return {key: _clean(child) for key, child in value.items() if child is not None}
    if isinstance(value, list | tuple):
        return [_clean(child) for child in value]
    return value
