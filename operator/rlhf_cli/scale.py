"""`rlhf scale`: change how many replicas a role has, also while the job trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import FAILED, in_cluster, timeout_option

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


@click.command()
@click.argument("job")
@click.argument("role")
@click.argument("replicas", type=click.IntRange(1, 1024))
@click.option("--wait", is_flag=True, help="Wait until all replicas are ready.")
@timeout_option("15m")
@in_cluster
def scale(cluster: Cluster, /, *, job: str, role: str, replicas: int, wait: bool, timeout: float) -> int | None:
    """Give a ROLE of a JOB another number of REPLICAS; a replica that goes finishes its work first.

    Exit code: 0 done (with `--wait`: the replicas are ready), 1 it cannot be done, 130 stopped by Ctrl-C.
    """
    from rlhf_api import KIND
    from rlhf_cli.changes import set_replicas
    from rlhf_cli.follow_job import wait_for
    from rlhf_cli.job_view import end_of
    from rlhf_cli.program import next_command
    from rlhf_cli.roles import role_index, role_status

    before, changed = set_replicas(cluster, job, role, replicas)
    if changed is None:
        click.echo(f"{KIND}/{job}: {role} has {replicas} already")
        return None
    click.echo(f"{KIND}/{job}: {role} scaled from {before} to {replicas}")
    if not wait:
        click.echo(f"Next: {next_command('status', job)}")
        return None
    pods = replicas * int(changed["spec"]["roles"][role_index(changed, role)].get("podsPerReplica", 1))

    def is_there(found: Object) -> bool:
        status = role_status(found, role)
        return end_of(found) is not None or (status.get("desired") == pods and status.get("ready") == pods)

    found = wait_for(cluster, job, is_there, timeout=timeout, what=f"the scaling of {role}")
    if found is None or end_of(found):
        click.echo(f"{KIND}/{job} {'was deleted' if found is None else 'ended'} meanwhile", err=True)
        return FAILED
    click.echo(f"{role} has {replicas} ready")
    return None
