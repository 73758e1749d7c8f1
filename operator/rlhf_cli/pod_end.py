"""How a pod ended: well, as somebody wanted it, or of itself with an error. Pure."""

from __future__ import annotations

from datetime import timedelta

from rlhf_cli import job_view
from rlhf_cli.job_view import Object

_PLAIN_ERROR = "Error"
"""What the kubelet calls every exit code but 0, also that of a process which was told to end."""


def ended(pod: Object, job: Object | None) -> str:
    """How a pod ended, as half a sentence; an exit code only where nobody asked it to end.

    Args:
        pod: The pod, which is over.
        job: Its job as it is now; None once it is deleted.
    """
    terminated = _terminated(pod)
    code, reason = terminated.get("exitCode"), _disruption(pod) or terminated.get("reason")
    if code == 0:
        return "has ended"
    if reason in (None, _PLAIN_ERROR) and (cause := _asked_to_end(pod, job)):
        return f"has ended: {cause}"
    if code is None:
        return f"ended ({reason})" if reason else "has ended"
    return f"ended with exit code {code} ({reason or 'unknown reason'})"


def _terminated(pod: Object) -> Object:
    containers = pod.get("status", {}).get("containerStatuses") or ()
    found: Object = next(filter(None, ((one.get("state") or {}).get("terminated") for one in containers)), {})
    return found


def _disruption(pod: Object) -> str | None:
    """Why Kubernetes itself took a pod off its node."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("reason") or "disrupted")
    return str(status["reason"]) if status.get("reason") else None


def _asked_to_end(pod: Object, job: Object | None) -> str | None:
    """Who wanted a pod to end; None when it ended of itself."""
    if job is None:
        return "the job was deleted"
    if job_view.end_of(job) == "Complete":
        return "the job is complete"
    if job["spec"].get("suspend"):
        return "the job is suspended"
    deletion = job_view.moment(pod["metadata"].get("deletionTimestamp"))
    if deletion is None:
        return None
    asked = deletion - timedelta(seconds=pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    over = job_view.moment(_terminated(pod).get("finishedAt"))
    return "it was told to leave" if over is None or over >= asked else None  # one that died is deleted afterwards
