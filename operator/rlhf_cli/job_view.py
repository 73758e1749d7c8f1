"""A job, its pods and its events as the API server gives them, read into what is shown. Pure.

Everything may be absent: a job that no operator has looked at has no status at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rlhf_api import names

Object = Mapping[str, Any]
_ENDS = ("Complete", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleView:
    """One role as it is shown."""

    name: str
    type: str
    ready: int
    desired: int
    restarts: int
    uncounted: int
    nodes: tuple[str, ...]
    host: str | None
    """The role whose pods this one shares."""
    failure: Object | None
    next_restart: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One event as it is shown."""

    time: datetime
    type: str
    reason: str
    message: str
    count: int


def name_of(job: Object) -> str:
    """The job's name."""
    return str(job["metadata"]["name"])


def status_of(job: Object) -> Object:
    """The job's status, empty where there is none."""
    return job.get("status") or {}


def progress_of(job: Object) -> Object:
    """How far training is, empty where it is not known."""
    return status_of(job).get("progress") or {}


def conditions(job: Object) -> dict[str, Object]:
    """The conditions by type."""
    return {condition["type"]: condition for condition in status_of(job).get("conditions") or ()}


def is_true(job: Object, condition: str) -> bool:
    """Whether a condition is True."""
    found = conditions(job).get(condition)
    return found is not None and found["status"] == "True"


def end_of(job: Object) -> str | None:
    """`Complete`, `Failed`, or None while the job is not over."""
    return next((kind for kind in _ENDS if is_true(job, kind)), None)


def summary(job: Object) -> str:
    """The job's state in one word."""
    return str(status_of(job).get("summary") or ("Suspended" if job["spec"].get("suspend") else "Pending"))


def steps(job: Object) -> tuple[int, int]:
    """Steps done, and steps in all."""
    progress = progress_of(job)
    total = progress.get("totalSteps") or job["spec"]["algorithm"].get("totalSteps") or 0
    return int(progress.get("step") or 0), int(total)


def moment(text: Any) -> datetime | None:
    """A Kubernetes time."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).astimezone(UTC) if text else None
    except ValueError:
        return None


def created(job: Object) -> datetime:
    """When an object was made."""
    return moment(job["metadata"].get("creationTimestamp")) or datetime.now(UTC)


def important_conditions(job: Object) -> list[Object]:
    """The conditions that say something now.

    An end hides how the cluster fares, and so does a suspension. Otherwise: what hinders the job, and what it does.
    """
    found = conditions(job)
    if end := end_of(job):
        return [found[end]]
    suspended = found.get("Suspended")
    if suspended and (suspended["status"] == "True" or suspended["reason"] == "Suspending"):
        return [suspended]
    hindered = [found[kind] for kind in ("ClusterReady", "RolesReady") if kind in found and not is_true(job, kind)]
    running = [found["Running"]] if "Running" in found and (is_true(job, "Running") or not hindered) else []
    degraded = [found["Degraded"]] if is_true(job, "Degraded") else []
    told = {condition["reason"] for condition in hindered}
    if not running and "Running" in found and found["Running"]["reason"] in {"ControllerLost", summary(job)} - told:
        running = [found["Running"]]  # with a trouble of its own; else it only waits for what hinders the job
    return degraded + hindered + running


def notes(job: Object, now: datetime) -> list[str]:
    """What a reader would otherwise wonder about."""
    metadata, spec, status = job["metadata"], job["spec"], status_of(job)
    if metadata.get("deletionTimestamp"):
        return ["The job is being deleted."]
    if spec.get("managedBy") not in (None, names.MANAGER):
        return [f'The job is managed by "{spec["managedBy"]}", not by rlhf-operator.']
    seconds = (now - created(job)).total_seconds()
    if not status.get("conditions"):
        text = "No operator has looked at the job yet."
        hint = " See whether one runs: kubectl get pods --all-namespaces -l app.kubernetes.io/name=rlhf-operator"
        return [text + (hint if seconds > 15 else "")]
    observed = status.get("observedGeneration")
    if end_of(job) is None and observed is not None and observed < metadata.get("generation", 0):
        return ["The operator has not acted on the last change yet."]
    return []


def roles(job: Object, pods: Sequence[Object] | None) -> list[RoleView]:
    """Each role of the spec, with what status says of it; `pods` is None where they may not be read."""
    known = {role["name"]: role for role in status_of(job).get("roles") or ()}
    return [_role(role, known.get(role["name"], {}), pods or ()) for role in job["spec"]["roles"]]


def _role(spec: Object, status: Object, pods: Iterable[Object]) -> RoleView:
    host = spec.get("colocateWith")
    mine = [pod for pod in pods if is_of_role(pod, host or spec["name"]) and not is_over(pod)]
    nodes = sorted({str(pod["spec"]["nodeName"]) for pod in mine if pod["spec"].get("nodeName")})
    return RoleView(
        name=spec["name"],
        type=spec["type"],
        ready=status.get("ready") or 0,
        desired=int(status.get("desired", int(spec.get("replicas", 1)) * int(spec.get("podsPerReplica", 1)))),
        restarts=status.get("restarts") or 0,
        uncounted=status.get("uncountedRestarts") or 0,
        nodes=tuple(nodes),
        host=host,
        failure=status.get("lastFailure"),
        next_restart=moment(status.get("nextRestartTime")),
    )


def is_of_role(pod: Object, role: str) -> bool:
    """Whether a pod belongs to a role."""
    return bool(pod["metadata"].get("labels", {}).get(names.ROLE_LABEL) == role)


def component(pod: Object) -> str:
    """`head`, `controller`, or the name of the pod's role."""
    labels = pod["metadata"].get("labels", {})
    return str(labels.get(names.ROLE_LABEL) or labels.get(names.COMPONENT_LABEL) or pod["metadata"]["name"])


def is_over(pod: Object) -> bool:
    """Whether a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Object) -> bool:
    """Whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def replicas_ready(job: Object) -> str:
    """`3/4` roles."""
    return str(status_of(job).get("rolesReady") or f"0/{len(job['spec']['roles'])}")


def events(found: Iterable[Object], *, last: int) -> list[EventView]:
    """The newest events, oldest first."""
    views = [
        EventView(
            time=_event_time(event),
            type=str(event.get("type") or "Normal"),
            reason=str(event.get("reason") or ""),
            message=re.sub(r"\s+", " ", str(event.get("message") or "")).strip(),
            count=int((event.get("series") or {}).get("count") or event.get("count") or 1),
        )
        for event in found
    ]
    return sorted(views, key=lambda view: view.time)[-last:]


def _event_time(event: Object) -> datetime:
    series = event.get("series") or {}
    texts = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
             event.get("firstTimestamp"), event["metadata"].get("creationTimestamp"))  # fmt: skip
    return next((time for time in map(moment, texts) if time), datetime.fromtimestamp(0, UTC))


def keeps_claim(job: Object) -> str | None:
    """The claim that the operator made for the job, which is deleted with it; None where state is elsewhere."""
    return None if (job["spec"].get("state") or {}).get("location") else names.state_claim(name_of(job))


def log_place(job: Object) -> str:
    """Where the logs of pods that are gone are kept, as half a sentence."""
    location = (job["spec"].get("state") or {}).get("location") or {}
    if location.get("uri"):
        return (
            f"its state is at {location['uri']}, where no logs are kept: a log collector of the cluster may have them"
        )
    claim = location.get("persistentVolumeClaim") or {}
    folder = claim.get("path") or name_of(job)
    return (
        f'the full logs are in the folder "{folder}/logs" of the claim "{claim.get("claimName") or keeps_claim(job)}"'
    )
