"""Changes of a job that its controller takes up only when it starts next. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_api.errors import Path, format_path
from rlhf_cli import job_view
from rlhf_cli.differences import Difference
from rlhf_cli.job_view import Object
from rlhf_cli.program import next_command

_FIELDS: tuple[Path, ...] = (
    ("spec", "algorithm", "totalSteps"),
    ("spec", "algorithm", "evaluation"),
    ("spec", "state", "snapshotEverySteps"),
    ("spec", "state", "keep"),
    ("spec", "controller"),
)
_OF_ROLES = "restartPolicy"
_MOST_NAMED = 4


def fields_at_start(changed: Sequence[Difference]) -> list[str]:
    """Those of the changed fields that act at the controller's next start."""
    return [format_path(path) for path, _, _ in changed if _waits(path)]


def _waits(path: Path) -> bool:
    if path[:2] == ("spec", "roles"):
        return path[3:4] == (_OF_ROLES,)
    return any(path[: len(field)] == field[: len(path)] for field in _FIELDS)  # a part, or all of what was absent


def advice(before: Object, after: Object, changed: Sequence[Difference], *, namespace: str | None) -> str | None:
    """When the changes act and how to bring that about now; None where all act at once, or at the coming start anyway.

    Args:
        before: The job before the change.
        after: The job after it.
        changed: What the change is.
        namespace: The namespace that the manifest names.
    """
    fields = fields_at_start(changed)
    started = job_view.is_true(before, "ClusterReady") and job_view.end_of(before) is None
    if not fields or not started or after["spec"].get("suspend"):
        return None
    named = ", ".join(fields[:_MOST_NAMED]) + (", ..." if len(fields) > _MOST_NAMED else "")
    name = job_view.name_of(before)
    suspend = next_command("suspend", name, "--wait", namespace=namespace)
    resume = next_command("resume", name, namespace=namespace)
    return f"Taken up when the controller starts next: {named}; to have that now: {suspend} && {resume}"
