"""`rlhf resume`: go on with a suspended job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import FAILED, in_cluster, timeout_option

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


@click.command()
@click.argument("job")
@click.option("--wait", is_flag=True, help="Wait until it trains.")
@timeout_option("30m")
@in_cluster
def resume(cluster: Cluster, /, *, job: str, wait: bool, timeout: float) -> int | None:
    """Let a suspended JOB go on after its last step.

    Exit code: 0 done (with `--wait`: it trains, or is complete), 1 it cannot be done, 130 stopped by Ctrl-C.
    """
    from rlhf_api import KIND
    from rlhf_cli.changes import set_suspended
    from rlhf_cli.follow_job import wait_for
    from rlhf_cli.job_view import end_of, is_true
    from rlhf_cli.program import next_command

    changed = set_suspended(cluster, job, False)
    click.echo(f"{KIND}/{job} {'goes on' if changed else 'is not suspended'}")

    def trains(found: Object) -> bool:
        return is_true(found, "Running") or end_of(found) is not None

    if wait:
        found = wait_for(cluster, job, trains, timeout=timeout, what="the start")
        if found is None or end_of(found) == "Failed":
            click.echo(f"{KIND}/{job} {'was deleted' if found is None else 'failed'} before it trained", err=True)
            return FAILED
        click.echo(f"{KIND}/{job} {'is complete' if end_of(found) else 'trains'}")
    elif changed:
        click.echo(f"Next: {next_command('status', job, '--watch')}")
    return None
