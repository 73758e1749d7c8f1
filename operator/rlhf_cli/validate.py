"""`rlhf validate`: check manifests without a cluster."""

import click

from rlhf_cli.manifests import ManifestError, UnreadableError, read_manifest, source_name


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_context
def validate(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Check manifests of RLHFJobs without a cluster; `-` reads from standard input.

    Exit code: 0 all are valid, 1 something is wrong in them, 2 a file cannot be read.
    """
    ctx.exit(max(_validate(file) for file in files))


def _validate(file: str) -> int:
    from rlhf_api import KIND
    from rlhf_api.validation import load_jobs

    try:
        jobs = read_manifest(file, lambda text, source: load_jobs(text, source=source))
    except ManifestError as error:
        click.echo(str(error), err=True)
        return 2 if isinstance(error, UnreadableError) else 1
    for job in jobs:
        click.echo(f"{source_name(file)}: {KIND}/{job.name} is valid")
    return 0
