"""`rlhf submit`: create jobs from a manifest, or change those that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlhf_cli.options import WRONG, in_cluster

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--wait", is_flag=True, help="Show the job until it ends, as `status --watch` does.")
@click.option("--dry-run", is_flag=True, help="Let the API server judge it, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else has set otherwise.")
@in_cluster
def submit(cluster: Cluster, /, *, file: str, wait: bool, dry_run: bool, force_conflicts: bool) -> int:
    """Create the RLHFJobs in FILE, or change those that exist; `-` reads from standard input.

    The manifest is checked without the cluster first, as `validate` does, and nothing is sent if it is wrong.

    Exit code: 0 done (with `--wait`: every job is complete), 1 the cluster refused or a job failed, 2 the manifest is
    wrong or cannot be read, 130 stopped by Ctrl-C.
    """
    from rlhf_cli.manifests import ManifestError
    from rlhf_cli.submission import home, read, submit_all

    if wait and dry_run:
        raise click.UsageError("`--wait` and `--dry-run` must not be given together.")
    try:
        manifests = read(file)
    except ManifestError as error:
        click.echo(str(error), err=True)
        return WRONG
    code = submit_all(cluster, manifests, dry_run=dry_run, force=force_conflicts)
    if wait and code == 0:
        from rlhf_cli.follow_job import follow

        code = max(follow(home(cluster, manifest), manifest.name) for manifest in manifests)
    return code
