"""`rlhf delete`: end a job and delete what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import FAILED, WRONG, in_cluster, timeout_option

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


@click.command()
@click.argument("job")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--wait", is_flag=True, help="Wait until the job and its pods are gone.")
@timeout_option("10m")
@in_cluster
def delete(cluster: Cluster, /, *, job: str, yes: bool, wait: bool, timeout: float) -> int | None:
    """Delete a JOB with its pods; it asks first, and tells what of the results goes with it.

    Exit code: 0 deleted (with `--wait`: all of it is gone), 1 not deleted, 2 nobody can be asked, 130 stopped
    by Ctrl-C.
    """
    import sys

    from rlhf_api import KIND

    found = cluster.job(job)
    click.echo(_consequences(found, cluster.namespace), err=True)
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Nobody can be asked here: give `--yes`", err=True)
            return WRONG
        if not click.confirm("Delete it?", err=True):
            click.echo("Nothing was deleted", err=True)
            return FAILED
    cluster.delete(found)
    if wait:
        _wait(cluster, job, str(found["metadata"]["uid"]), timeout)
    click.echo(f"{KIND}/{job} {'is gone' if wait else 'deleted'}")
    return None


def _consequences(job: Object, namespace: str) -> str:
    from rlhf_api import KIND
    from rlhf_cli.job_view import end_of, keeps_claim, name_of, steps, summary

    done, total = steps(job)
    lines = [f'{KIND}/{name_of(job)} in namespace "{namespace}": {summary(job)}, step {done}/{total}']
    if end_of(job) is None and not job["spec"].get("suspend"):
        lines.append("Its pods end at once, without another snapshot; to keep what they did since the last one, "
                     "suspend it first.")  # fmt: skip
    if claim := keeps_claim(job):
        lines.append(f'The claim "{claim}" goes with it: snapshots, logs and the trained model.')
    else:
        location = job["spec"]["state"]["location"]
        place = location.get("uri") or f'the claim "{location["persistentVolumeClaim"]["claimName"]}"'
        lines.append(f"What is in {place} stays: snapshots and the trained model.")
    return "\n".join(lines)


def _wait(cluster: Cluster, name: str, uid: str, timeout: float) -> None:
    import time

    from rlhf_cli.cluster.errors import NotAllowedError, WaitTimeoutError

    deadline = time.monotonic() + timeout
    while True:
        found = cluster.find(name)
        try:
            pods = len(cluster.pods(name))
        except NotAllowedError:
            pods = 0
        if (found is None or found["metadata"]["uid"] != uid) and not pods:
            return
        if time.monotonic() > deadline:
            left = f"{pods} pods are left" if pods else "the job is still there"
            raise WaitTimeoutError(f"it was deleted, but {left}: see kubectl get pods -l rlhf.dev/job={name}")
        time.sleep(1.0)
