"""`rlhf logs`: what the controller or a role writes, also across a replaced pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import in_cluster

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster


@click.command()
@click.argument("job")
@click.option("--role", "-r", metavar="ROLE", help="A role's pods; by default the controller's.")
@click.option("--head", is_flag=True, help="The pod of Ray's head.")
@click.option("--controller", is_flag=True, help="The controller's pod, which is the default.")
@click.option("--all", "everything", is_flag=True, help="The controller and every role.")
@click.option("--pod", metavar="POD", help="One pod of these: its name, or its number, where 0 is the oldest.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends; a pod's successor is followed too.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each pod.")
@click.option("--previous", "-p", is_flag=True, help="The pod before the present one.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@in_cluster
def logs(
    cluster: Cluster,
    /,
    *,
    job: str,
    role: str | None,
    head: bool,
    controller: bool,
    everything: bool,
    pod: str | None,
    follow: bool,
    tail: int | None,
    previous: bool,
    timestamps: bool,
) -> int | None:
    """Print the log of a JOB's controller, or of a role's pods.

    With several pods each line begins with its pod. Pods that are gone have left their logs with the job's state.

    Exit code: 0 printed, 1 there is nothing to print, or an error, 130 stopped by Ctrl-C.
    """
    from rlhf_cli.log_choice import Choice
    from rlhf_cli.log_follow import follow_logs
    from rlhf_cli.log_print import print_logs

    if sum((role is not None, head, controller, everything)) > 1:
        raise click.UsageError("only one of `--role`, `--head`, `--controller`, `--all` must be given.")
    if previous and (follow or everything or pod):
        raise click.UsageError("`--previous` must not be given with `--follow`, `--all` or `--pod`.")
    choice = Choice(role=role, head=head, everything=everything, pod=pod)
    if follow:
        return follow_logs(cluster, job, choice, tail=tail, timestamps=timestamps)
    return print_logs(cluster, job, choice, tail=tail, previous=previous, timestamps=timestamps)
