"""`rlhf status`: all jobs of a namespace, or one with its roles and last events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import in_cluster

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster


@click.command()
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--watch", "-w", is_flag=True, help="Go on showing one job until it ends.")
@click.option("--all-namespaces", "-A", is_flag=True, help="The jobs of all namespaces.")
@click.option("--output", "-o", type=click.Choice(["json", "yaml"]), help="The objects themselves.")
@in_cluster
def status(
    cluster: Cluster, /, *, job: str | None, watch: bool, all_namespaces: bool, output: str | None
) -> int | None:
    """Show the jobs of a namespace, or how one JOB, its roles and its training are.

    Exit code: 0 shown (with `--watch`: the job is complete), 1 an error (with `--watch`: the job failed or was
    deleted), 130 stopped by Ctrl-C; the job goes on.
    """
    if watch and job is None:
        raise click.UsageError("`--watch` must be given with a JOB.")
    if watch and output:
        raise click.UsageError("`--watch` and `--output` must not be given together.")
    if job is not None and all_namespaces:
        raise click.UsageError("a JOB must not be given with `--all-namespaces`.")
    if watch and job is not None:
        from rlhf_cli.follow_job import follow

        return follow(cluster, job)
    from rlhf_cli.show import show_job, show_jobs, show_objects

    if output:
        found = cluster.job(job) if job is not None else cluster.jobs(everywhere=all_namespaces)
        show_objects(found, as_yaml=output == "yaml")
    elif job is not None:
        show_job(cluster, cluster.job(job))
    else:
        show_jobs(cluster, everywhere=all_namespaces)
    return None
