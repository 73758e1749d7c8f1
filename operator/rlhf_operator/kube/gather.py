"""Builds the snapshot that a plan is made from: from the store, and the few things that no watch brings.

| what | from where | how often |
|---|---|---|
| the job, its RayCluster, Job, pods and other children | the store | whenever they change |
| whether the cluster has RayClusters | discovery | every 30 s, for all jobs together |
| RayCluster and Job without our label, while pods of theirs are there | one read each | every look |
| claims that the manifest names, which carry no label of ours | one read each | every 20 s |
| warning events about a job that is not ready | one list for the RayCluster, one for each of few pods | every 10 s |
| the controller's report | gRPC | every look at a job whose controller runs |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from rlhf_api.document import Document
from rlhf_api.messages import explain
from rlhf_api.names import COMPONENT_LABEL, CONTROLLER_COMPONENT, controller, ray_cluster
from rlhf_api.types import RLHFJob
from rlhf_operator.control.client import ControlClient
from rlhf_operator.kube.cached import Cached
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError
from rlhf_operator.kube.kinds import CHILDREN, CLAIM, EVENT, JOB, POD, RAY_CLUSTER, RLHF_JOB, Kind
from rlhf_operator.kube.refusals import Refusals
from rlhf_operator.kube.store import JobKey, Store
from rlhf_operator.planning.pods import owned_by
from rlhf_operator.planning.snapshot import Object, Snapshot
from rlhf_operator.telemetry.logging import log

_MOST_PODS_WITH_EVENTS = 8
_MOST_EVENTS = 50
_TERMINATING_SECONDS = 60.0


class UnreadableJobError(Exception):
    """A job's manifest is not one that this version of the operator understands.

    Attributes:
        living: The object.
    """

    def __init__(self, message: str, *, living: Object) -> None:
        super().__init__(message)
        self.living = living


@dataclass(slots=True, kw_only=True)
class Gatherer:
    """Looks at jobs.

    Attributes:
        client: The API server.
        store: What the watches brought.
        control: The controllers of jobs.
        now: The time, UTC.
        clock: Of this process, seconds.
        refusals: What the API server refused.
        terminating: When a namespace was last said to be terminating, by `clock`.
    """

    client: KubeClient
    store: Store
    control: ControlClient
    now: Callable[[], datetime]
    clock: Callable[[], float]
    refusals: Refusals
    terminating: dict[str, float] = field(default_factory=dict)
    _kuberay: Cached[str, bool] = field(init=False)
    _claims: Cached[tuple[str, str], Object | None] = field(init=False)
    _warnings: Cached[tuple[str, str, str], list[dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        self._kuberay = Cached(self.clock, seconds=30.0)
        self._claims = Cached(self.clock, seconds=20.0)
        self._warnings = Cached(self.clock, seconds=10.0)

    async def gather(self, key: JobKey) -> Snapshot | None:
        """Everything known of a job; None if it does not exist.

        Raises:
            UnreadableJobError: The manifest cannot be understood.
            ApiError: The API server does not tell something that is needed.
        """
        living = self.store.get(RLHF_JOB, key.namespace, key.name)
        if living is None:
            return None
        job = read_job(living)
        pods = self.store.of_job(key, POD)
        kuberay = await self._kuberay.get("", lambda _: self.client.serves(RAY_CLUSTER))
        report, claims, warnings, cluster, controller_job = await asyncio.gather(
            self.control.report(job, running_controller(pods)),
            self._named_claims(key.namespace, living),
            self._warnings_about(key, job, pods),
            self._made(key, job, RAY_CLUSTER, ray_cluster(key.name), pods),
            self._made(key, job, JOB, controller(key.name), pods),
        )
        return Snapshot(
            job=job,
            now=self.now(),
            kuberay=kuberay,
            ray_cluster=cluster,
            controller_job=controller_job,
            pods=pods,
            children={
                (kind.kind, thing["metadata"]["name"]): thing
                for kind in CHILDREN
                for thing in self.store.of_job(key, kind)
            },
            claims=claims,
            warnings=warnings,
            report=report,
            idle_pods=self.control.idle_pods(job),
            refusals=self.refusals.of(key),
            namespace_terminating=self._is_terminating(key.namespace),
        )

    def forget(self, key: JobKey) -> None:
        """Drop what was kept of a job that is gone."""
        self.refusals.forget(key)
        self._claims.forget(lambda at: at[0] == key.namespace)
        self._warnings.forget(lambda at: at[:2] == key)

    def _is_terminating(self, namespace: str) -> bool:
        seen = self.terminating.get(namespace)
        return seen is not None and self.clock() - seen < _TERMINATING_SECONDS

    async def _made(
        self, key: JobKey, job: RLHFJob, kind: Kind, name: str, pods: list[dict[str, Any]]
    ) -> Object | None:
        """What makes the job's pods; asked for where pods are there without it, since a label may have been taken."""
        found = self.store.get(kind, key.namespace, name)
        if found is not None or not any(_made_by(kind, pod) for pod in pods):
            return found
        unseen = await self.client.get(kind, key.namespace, name)
        return unseen if unseen is not None and owned_by(unseen, job.metadata.uid or "") else None

    async def _named_claims(self, namespace: str, living: Object) -> dict[str, Object | None]:
        names = sorted(set(_claim_names(living.get("spec"))))
        found = await asyncio.gather(
            *(self._claims.get((namespace, name), lambda at: self.client.get(CLAIM, *at)) for name in names)
        )
        return dict(zip(names, found, strict=True))

    async def _warnings_about(self, key: JobKey, job: RLHFJob, pods: list[dict[str, Any]]) -> list[Object]:
        if not _worth_explaining(job):
            return []
        waiting = [pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Pending"]
        about = [("RayCluster", ray_cluster(key.name)), ("Job", controller(key.name))]
        about += [("Pod", name) for name in waiting[:_MOST_PODS_WITH_EVENTS]]

        async def ask(at: tuple[str, str, str]) -> list[dict[str, Any]]:
            fields = f"type=Warning,involvedObject.kind={at[1]},involvedObject.name={at[2]}"
            return await self.client.list(EVENT, at[0], fields=fields, limit=_MOST_EVENTS)

        try:
            found = await asyncio.gather(*(self._warnings.get((key.namespace, *one), ask) for one in about))
        except ApiError as error:  # a plan without them is better than none
            log("events cannot be read", job=key, error=str(error), level="warning")
            return []
        return sorted((event for events in found for event in events), key=_when)


def read_job(living: Object) -> RLHFJob:
    """An RLHFJob of the API server, as our types have it. A status that they do not understand is left out.

    Raises:
        UnreadableJobError: The rest is not understood either.
    """
    text = json.dumps(living)
    try:
        return RLHFJob.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as first:
        without = {key: value for key, value in living.items() if key != "status"}
        try:
            return RLHFJob.model_validate_json(json.dumps(without), strict=True, by_alias=True, by_name=False)
        except ValidationError as error:
            found = "; ".join(str(one) for one in explain(error, Document(value=without)))
            raise UnreadableJobError(found or str(error), living=living) from first


def running_controller(pods: list[dict[str, Any]]) -> Object | None:
    """The controller's pod that can be called now: the newest that runs and is not being deleted."""
    running = [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == CONTROLLER_COMPONENT
        and "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") == "Running"
        and pod.get("status", {}).get("podIP")
    ]
    return max(running, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)


def _made_by(kind: Kind, pod: Object) -> bool:
    return any(owner.get("kind") == kind.kind for owner in pod["metadata"].get("ownerReferences") or ())


def _worth_explaining(job: RLHFJob) -> bool:
    """Whether somebody may ask why this job does not run."""
    if job.spec.suspend:
        return False
    true = {str(found.type) for found in (job.status.conditions if job.status else ()) if found.status == "True"}
    return not true & {"Complete", "Failed", "RolesReady"}


def _claim_names(value: Any) -> Iterator[str]:
    """The claims that a manifest names, wherever it may."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            if key == "claimName" and isinstance(child, str):
                yield child
            else:
                yield from _claim_names(child)
    elif isinstance(value, list):
        for child in value:
            yield from _claim_names(child)


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
