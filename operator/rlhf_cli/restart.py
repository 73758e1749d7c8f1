"""`rlhf restart`: restart one role while the others keep their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import FAILED, in_cluster, timeout_option

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


@click.command()
@click.argument("job")
@click.argument("role")
@click.option("--no-wait", is_flag=True, help="Do not wait until the role is back.")
@timeout_option("15m")
@in_cluster
def restart(cluster: Cluster, /, *, job: str, role: str, no_wait: bool, timeout: float) -> int | None:
    """Restart the processes of one ROLE of a JOB; the other roles keep theirs, and no step is lost.

    Such a restart does not count against `maxRestarts`.

    Exit code: 0 the role is back (with `--no-wait`: the restart is asked for), 1 it is not, 130 stopped by Ctrl-C.
    """
    from rlhf_api import KIND
    from rlhf_cli.changes import ask_for_restart
    from rlhf_cli.follow_job import wait_for
    from rlhf_cli.job_view import end_of
    from rlhf_cli.roles import role_status

    asked = ask_for_restart(cluster, job, role)
    counts, recovery = _counts(asked, role), role_status(asked, role).get("lastRecoveryMilliseconds")
    down = False
    click.echo(f"{KIND}/{job}: asked for a restart of {role}")
    if no_wait:
        return None

    def is_back(found: Object) -> bool:
        nonlocal down
        status = role_status(found, role)
        whole = (status.get("ready") or 0) >= (status.get("desired") or 1)
        down |= not whole
        # The count may rise a moment before the role is seen to be down.
        restarted = _counts(found, role) > counts and (down or status.get("lastRecoveryMilliseconds") != recovery)
        return end_of(found) is not None or (restarted and whole)

    found = wait_for(cluster, job, is_back, timeout=timeout, what=f"the restart of {role}")
    if found is None or end_of(found):
        click.echo(f"{KIND}/{job} {'was deleted' if found is None else 'ended'} meanwhile", err=True)
        return FAILED
    milliseconds = role_status(found, role).get("lastRecoveryMilliseconds")
    took = f" after {milliseconds / 1000:.1f} s" if milliseconds and milliseconds != recovery else ""
    click.echo(f"{role} is back{took}")
    return None


def _counts(job: Object, role: str) -> int:
    from rlhf_cli.roles import role_status

    status = role_status(job, role)
    return int(status.get("restarts") or 0) + int(status.get("uncountedRestarts") or 0)
