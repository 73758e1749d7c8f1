"""Readers of pods as the API server gives them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from rlhf_api.enums import FailureReason
from rlhf_api.formats import parse_time
from rlhf_api.names import COMPONENT_LABEL, ROLE_LABEL, SPEC_HASH_ANNOTATION
from rlhf_operator.planning.plan import Delete
from rlhf_operator.planning.snapshot import Object

_REASON_OF_EXIT_CODE = {
    134: FailureReason.ABORTED,
    137: FailureReason.KILLED,
    139: FailureReason.SEGMENTATION_FAULT,
}
_REASON_OF_DISRUPTION = {
    "PreemptionByScheduler": FailureReason.PREEMPTED,
    "EvictionByEvictionAPI": FailureReason.NODE_DRAINED,
    "DeletionByTaintManager": FailureReason.NODE_LOST,
    "DeletionByPodGC": FailureReason.NODE_LOST,
    "TerminationByKubelet": FailureReason.EVICTED,
}


def metadata(item: Object) -> Mapping[str, Any]:
    """The metadata of any object."""
    found: Mapping[str, Any] = item.get("metadata") or {}
    return found


def name_of(item: Object) -> str:
    """The name of any object."""
    return str(metadata(item).get("name", ""))


def uid_of(item: Object) -> str:
    """The UID of any object."""
    return str(metadata(item).get("uid", ""))


def created(item: Object) -> datetime | None:
    """When any object was made."""
    return parse_time(metadata(item).get("creationTimestamp"))


def going(item: Object) -> bool:
    """Whether any object is being deleted."""
    return bool(metadata(item).get("deletionTimestamp"))


def annotation(item: Object, name: str) -> str | None:
    """An annotation of any object."""
    return (metadata(item).get("annotations") or {}).get(name)


def component(pod: Object) -> str | None:
    """Which part of the job a pod is: head, role or controller."""
    return (metadata(pod).get("labels") or {}).get(COMPONENT_LABEL)


def role_of(pod: Object) -> str | None:
    """The role whose pod this is."""
    return (metadata(pod).get("labels") or {}).get(ROLE_LABEL)


def spec_hash(pod: Object) -> str | None:
    """The hash of what the user had written when the pod was rendered."""
    return annotation(pod, SPEC_HASH_ANNOTATION)


def owned_by(item: Object, uid: str) -> bool:
    """Whether an object belongs to the one of this UID."""
    return any(owner.get("uid") == uid for owner in metadata(item).get("ownerReferences") or ())


def status_of(item: Object) -> Mapping[str, Any]:
    """The status of any object."""
    found: Mapping[str, Any] = item.get("status") or {}
    return found


def phase(pod: Object) -> str:
    """The pod's phase; Pending until the kubelet says otherwise."""
    return str(status_of(pod).get("phase") or "Pending")


def ended(pod: Object) -> bool:
    """Whether all containers have ended for good, so that the pod holds nothing of its node."""
    return phase(pod) in ("Succeeded", "Failed")


def condition(item: Object, kind: str) -> Mapping[str, Any] | None:
    """A condition of any object."""
    for found in status_of(item).get("conditions") or ():
        if found.get("type") == kind:
            return dict(found)
    return None


def holds(item: Object, kind: str) -> bool:
    """Whether a condition of any object is true."""
    found = condition(item, kind)
    return found is not None and found.get("status") == "True"


def ready(pod: Object) -> bool:
    """Whether the pod is ready, and not on its way out."""
    return holds(pod, "Ready") and not going(pod) and not ended(pod)


def node_of(pod: Object) -> str | None:
    """The node that the pod was placed on."""
    return (pod.get("spec") or {}).get("nodeName")


def main_container(pod: Object) -> Mapping[str, Any]:
    """The status of the first container, which is the one of ours."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    statuses = status_of(pod).get("containerStatuses") or ()
    for found in statuses:
        if not containers or found.get("name") == containers[0].get("name"):
            return dict(found)
    return {}


def started(pod: Object) -> datetime | None:
    """When the first container started, in its node's time; None if it never did."""
    state = main_container(pod).get("state") or {}
    return parse_time((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def termination(pod: Object) -> Mapping[str, Any]:
    """How the first container ended; empty while it has not."""
    state = main_container(pod).get("state") or {}
    return dict(state.get("terminated") or {})


def asked_to_go(pod: Object) -> datetime | None:
    """When somebody asked for the deletion of a pod; the API server keeps when its grace period is over."""
    limit = parse_time(metadata(pod).get("deletionTimestamp"))
    grace = metadata(pod).get("deletionGracePeriodSeconds") or 0
    return limit - timedelta(seconds=int(grace)) if limit is not None else None


def ended_at(pod: Object) -> datetime | None:
    """When the pod's first container ended, or the pod was made if that is not known."""
    return parse_time(termination(pod).get("finishedAt")) or created(pod)


def failure_reason(pod: Object) -> FailureReason:
    """The kind of failure that ended a pod, as far as Kubernetes knows it."""
    disruption = condition(pod, "DisruptionTarget")
    if disruption is not None and disruption.get("reason") in _REASON_OF_DISRUPTION:
        return _REASON_OF_DISRUPTION[str(disruption["reason"])]
    if status_of(pod).get("reason") == "Evicted":
        return FailureReason.EVICTED
    how = termination(pod)
    if how.get("reason") == "OOMKilled":
        return FailureReason.HOST_OUT_OF_MEMORY
    if "exitCode" not in how:
        return FailureReason.UNKNOWN
    return _REASON_OF_EXIT_CODE.get(int(how["exitCode"]), FailureReason.EXITED)


def how_it_ended(pod: Object) -> str:
    """How a pod ended, for people: `exit code 137 (OOMKilled): last words`."""
    how = termination(pod)
    code = f"exit code {how['exitCode']}" if "exitCode" in how else phase(pod)
    reason = status_of(pod).get("reason") or how.get("reason")
    words = str(how.get("message") or status_of(pod).get("message") or "").strip()
    text = f"{code} ({reason})" if reason and reason not in ("Error", "Completed") else code
    return f"{text}: {words}" if words else text


def delete_pod(pod: Object, *, grace_seconds: int | None = None) -> Delete:
    """The deletion of exactly this pod."""
    return Delete(api_version="v1", kind="Pod", name=name_of(pod), uid=uid_of(pod), grace_seconds=grace_seconds)
