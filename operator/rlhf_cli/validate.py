"""`rlhf validate`: check manifests without a cluster."""

import sys
from pathlib import Path

import click

STDIN = "-"


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
    from rlhf_api.errors import InvalidManifestError
    from rlhf_api.validation import load_jobs

    source = "<stdin>" if file == STDIN else file
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        click.echo(f"{source}: cannot be read: {reason}", err=True)
        return 2
    try:
        jobs = load_jobs(content.decode("utf-8-sig"), source=source)
    except UnicodeDecodeError as error:
        click.echo(f"{source}: must be text in UTF-8, byte {error.start + 1} is not", err=True)
        return 1
    except InvalidManifestError as error:
        click.echo(str(error), err=True)
        return 1
    for job in jobs:
        click.echo(f"{source}: {KIND}/{job.name} is valid")
    return 0
