"""`rlhf suspend`: save a snapshot and free every pod and GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import FAILED, in_cluster, timeout_option

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


@click.command()
@click.argument("job")
@click.option("--wait", is_flag=True, help="Wait until every pod is gone.")
@timeout_option("15m")
@in_cluster
def suspend(cluster: Cluster, /, *, job: str, wait: bool, timeout: float) -> int | None:
    """Let a JOB finish its step, save a snapshot and free every pod; `resume` goes on from there.

    Exit code: 0 done (with `--wait`: it has no pods any more), 1 it cannot be done, 130 stopped by Ctrl-C.
    """
    from rlhf_api import KIND
    from rlhf_cli.changes import set_suspended
    from rlhf_cli.follow_job import wait_for
    from rlhf_cli.job_view import end_of, is_true, steps
    from rlhf_cli.program import next_command

    changed = set_suspended(cluster, job, True)
    click.echo(f"{KIND}/{job} {'is asked to suspend' if changed else 'is to be suspended already'}")

    def is_suspended(found: Object) -> bool:
        return is_true(found, "Suspended") or end_of(found) is not None

    if wait:
        found = wait_for(cluster, job, is_suspended, timeout=timeout, what="the suspension")
        if found is None or end_of(found):
            click.echo(f"{KIND}/{job} {'was deleted' if found is None else 'ended'} before it was suspended", err=True)
            return FAILED
        click.echo(f"{KIND}/{job} is suspended after step {steps(found)[0]}")
    click.echo(f"Go on with: {next_command('resume', job)}")
    return None
