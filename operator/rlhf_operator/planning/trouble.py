"""Why a pod is not there or not ready, in words that say what to do.

Three places tell it: the pod's own status (no node, no image, a missing Secret), warning events about the pod (a volume
that cannot be mounted), and, where there is no pod at all, warning events about what should have made it (a quota).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rlhf_api.formats import parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import NodePool, Resources
from rlhf_operator.planning import pods
from rlhf_operator.planning.snapshot import Object

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_START = ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError")
_VOLUME = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_PASSING = ("PVC is not bound", "failed to sync configmap cache", "failed to sync secret cache")
"""What a kubelet says that was quicker than a volume's maker or than its own view of a ConfigMap."""
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is in the way.

    Attributes:
        reason: The reason for the condition.
        message: What it is and what to do, as whole sentences.
    """

    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the job that has pods, as messages call it.

    Attributes:
        name: Such as `role "critic"`.
        field: Where it is in the manifest.
        pool: Its nodes.
        resources: What each of its pods asks for.
    """

    name: str
    field: str
    pool: NodePool | None
    resources: Resources

    @property
    def asks(self) -> str:
        """What a node must have for a pod of it."""
        resources = self.resources
        wants = [
            f"{name} {amount}" for name, amount in (("cpu", resources.cpu), ("memory", resources.memory)) if amount
        ]
        if resources.accelerators.count:
            wants.append(f"{resources.accelerators.name} {resources.accelerators.count}")
        wants += [f"{name} {amount}" for name, amount in resources.extended.items()]
        selector = ",".join(f"{key}={value}" for key, value in (self.pool.node_selector if self.pool else {}).items())
        if not wants:
            return f"a node with {selector}" if selector else "any node"
        free = f"{', '.join(wants)} free"
        return f"a node with {selector} and {free}" if selector else f"any node with {free}"


def trouble_of(pod: Object, part: Part, warnings: Iterable[Object]) -> Trouble | None:
    """What keeps a pod from being ready; None if nothing is known to."""
    placed = pods.condition(pod, "PodScheduled")
    name = pods.name_of(pod)
    if pods.node_of(pod) is None and placed is not None and placed.get("status") == "False":
        said = sentence(str(placed.get("message") or placed.get("reason") or ""))
        if "persistentvolumeclaim" in said and "is being deleted" in said:
            return Trouble(
                reason=ConditionReason.WAITING_FOR_PODS,
                message=f'{part.name}: pod "{name}" waits: {said} It goes when no pod uses it any more: suspend the'
                " job, then resume it. What was saved on it is lost then.",
            )
        if "unbound immediate PersistentVolumeClaims" in said:  # for a moment, with every new claim
            return Trouble(
                reason=ConditionReason.WAITING_FOR_PODS,
                message=f'{part.name}: pod "{name}" waits for its claims to be bound; if that lasts,'
                " `kubectl describe pvc` tells why.",
            )
        return Trouble(
            reason=ConditionReason.UNSCHEDULABLE,
            message=f'{part.name}: no node for pod "{name}": {said} It needs {part.asks}:'
            f" change `{part.field}.nodePool` or `{part.field}.resources`, or add such a node.",
        )
    for status in (
        *(pods.status_of(pod).get("initContainerStatuses") or ()),
        *(pods.status_of(pod).get("containerStatuses") or ()),
    ):
        found = _waiting(name, status, part)
        if found is not None:
            return found
    if pods.started(pod) is None:
        return _mounting(pod, part, warnings)
    return None


def _waiting(pod: str, status: Object, part: Part) -> Trouble | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, said = str(waiting.get("reason", "")), sentence(str(waiting.get("message") or waiting.get("reason") or ""))
    if reason in _IMAGE:
        return Trouble(
            reason=ConditionReason.IMAGE_PULL_FAILED,
            message=f'{part.name}: pod "{pod}" cannot pull image "{status.get("image", "")}" ({reason}): {said}'
            f" Correct `{part.field}.image` or `spec.image`, or name a pull Secret in `pullSecrets`.",
        )
    if reason == "CreateContainerConfigError":
        return Trouble(
            reason=ConditionReason.REFERENCE_MISSING,
            message=f'{part.name}: pod "{pod}" cannot start: {said}'
            " Make that Secret or ConfigMap in the job's namespace, or correct `env` and `envFrom`.",
        )
    if reason in _START:
        return Trouble(
            reason=ConditionReason.PODS_FAILING,
            message=f'{part.name}: the container of pod "{pod}" cannot start ({reason}): {said}'
            " The image must be a worker image.",
        )
    return None


def _mounting(pod: Object, part: Part, warnings: Iterable[Object]) -> Trouble | None:
    for event in reversed(list(warnings)):
        about = event.get("involvedObject") or event.get("regarding") or {}
        if about.get("uid") != pods.uid_of(pod):
            continue
        said = sentence(text_of(event))
        if any(words in said for words in _PASSING):
            continue
        if event.get("reason") in _VOLUME:
            hint = "Make what it names, or correct `volumes`, `cacheVolume` or `state.location`."
            if "Multi-Attach" in said:
                hint = "A claim that several nodes share must have the access mode ReadWriteMany."
            return Trouble(
                reason=ConditionReason.VOLUME_MISSING,
                message=f'{part.name}: pod "{pods.name_of(pod)}" cannot mount a volume: {said} {hint}',
            )
        if event.get("reason") != "FailedScheduling":
            return Trouble(
                reason=ConditionReason.WAITING_FOR_PODS,
                message=f'{part.name}: pod "{pods.name_of(pod)}" does not start ({event.get("reason")}): {said}',
            )
    return None


def refused_pods(warnings: Sequence[Object], prefix: str, part: Part, *, since: datetime | None) -> Trouble | None:
    """Why no pod with names of a form could be made, as KubeRay or the Job controller were told.

    Args:
        warnings: Events, oldest first.
        prefix: How the pods' names begin; five letters of chance follow.
        part: Whose pods they are.
        since: When a pod of this part was last made: what was said before no longer holds.
    """
    for event in reversed(warnings):
        said = text_of(event)
        _, found, rest = said.partition(f'"{prefix}')
        name = rest.partition('"')[0]
        if (
            not found
            or "-" in name
            or event.get("reason")
            not in (
                "FailedToCreateWorkerPod",
                "FailedToCreateHeadPod",
                "FailedCreate",
            )
        ):
            continue
        if since is not None and time_of(event) < since:
            return None
        if quota := quota_of(said):
            reason = ConditionReason.QUOTA_EXCEEDED
            hint = (
                f'The ResourceQuota "{quota}" of the namespace must allow more,'
                f" or `{part.field}.resources` ask for less."
            )
        else:
            reason = ConditionReason.PODS_REFUSED
            hint = "Whoever administers the namespace must allow such pods, or the manifest must ask for others."
            if "is invalid" in said:
                hint = f"Correct it in `{part.field}`."
        return Trouble(reason=reason, message=f"{part.name}: its pods are refused: {sentence(said)} {hint}")
    return None


def quota_of(said: str) -> str:
    """The name of the quota that a refusal speaks of; empty if it is about something else."""
    return said.partition("exceeded quota: ")[2].partition(",")[0]


def text_of(event: Object) -> str:
    """What an event says."""
    return str(event.get("message") or event.get("note") or "")


def time_of(event: Object) -> datetime:
    """When an event last happened."""
    series = event.get("series") or {}
    for text in (
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        pods.metadata(event).get("creationTimestamp"),
    ):
        if (moment := parse_time(text)) is not None:
            return moment
    return datetime.min.replace(tzinfo=UTC)


def sentence(text: str) -> str:
    """A text on one line, not too long, with a stop at its end."""
    words = " ".join(text.split())
    if len(words) > _LONGEST:
        words = f"{words[:_LONGEST]}..."
    return words if words.endswith((".", "!", "?")) else f"{words}."
