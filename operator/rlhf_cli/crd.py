"""`rlhf crd`: print, write or check the CustomResourceDefinition."""

from pathlib import Path

import click


@click.command()
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write it to a file.")
@click.option(
    "--check", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Fail when a file differs from it."
)
@click.pass_context
def crd(ctx: click.Context, output: str | None, check: str | None) -> None:
    """Print the CustomResourceDefinition of RLHFJob, generated from the API types.

    Exit code: 0 done, 1 the checked file is out of date, 2 a file cannot be read or written.
    """
    from rlhf_api.crd import render

    if output and check:
        raise click.UsageError("`--output` and `--check` must not be given together.")
    text = render()
    if check:
        if Path(check).read_bytes() != text.encode():
            click.echo(f"{check} is out of date with the API types: renew it with `make golden`", err=True)
            ctx.exit(1)
    elif output:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            click.echo(f"{output}: cannot be written: {error.strerror}", err=True)
            ctx.exit(2)
    else:
        click.echo(text, nl=False)
