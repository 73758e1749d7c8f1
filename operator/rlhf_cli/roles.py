"""Finding a role that a user names."""

from __future__ import annotations

import difflib

from rlhf_api import KIND
from rlhf_cli import job_view
from rlhf_cli.cluster.errors import ClusterError
from rlhf_cli.job_view import Object
from rlhf_cli.program import next_command


def role_index(job: Object, name: str) -> int:
    """The place of a role in the spec.

    Raises:
        ClusterError: The job has no such role; the message tells which it has.
    """
    known = [role["name"] for role in job["spec"]["roles"]]
    if name in known:
        return known.index(name)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"it has: {', '.join(known)}"
    raise ClusterError(f'{KIND}/{job_view.name_of(job)} has no role "{name}"; {hint}')


def role_status(job: Object, name: str) -> Object:
    """What status says of a role, empty where it says nothing."""
    found: Object = next((role for role in job_view.status_of(job).get("roles") or () if role["name"] == name), {})
    return found


def must_not_have_ended(job: Object) -> None:
    """Refuse to change a job that is over.

    Raises:
        ClusterError: It is Complete or Failed.
    """
    if end := job_view.end_of(job):
        raise ClusterError(f"{KIND}/{job_view.name_of(job)} has ended ({end}); nothing of it runs any more")


def must_run(job: Object) -> None:
    """Refuse what makes sense only while pods are there.

    Raises:
        ClusterError: The job has ended or is suspended.
    """
    must_not_have_ended(job)
    if job["spec"].get("suspend"):
        name = job_view.name_of(job)
        raise ClusterError(f"{KIND}/{name} is suspended and has no pods; go on with: {next_command('resume', name)}")
