"""`rlhf run`: run a job for real on this machine."""

import os
import re
import sys

import click

BACKENDS = ("ray", "in-process")
_SIGNALLED = 128
_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--config", metavar="FILE", help="The manifest; the same as FILE.")
@click.option("--controller", metavar="PKG.MOD:CLASS", help="Your own control flow, in place of the algorithm's.")
@click.option("--runs-dir", default="runs", show_default=True, metavar="FOLDER", help="Results go to FOLDER/NAME.")
@click.option("--fresh", is_flag=True, help="Forget an earlier run of this name, and start anew.")
@click.option("--steps", type=click.IntRange(1, 999_999), metavar="N", help="In place of the manifest's `totalSteps`.")
@click.option("--backend", type=click.Choice(BACKENDS), help="Where the roles run; by default Ray, a process for each.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.pass_context
def run(
    ctx: click.Context,
    file: str | None,
    config: str | None,
    controller: str | None,
    runs_dir: str,
    fresh: bool,
    steps: int | None,
    backend: str | None,
    quiet: bool,
) -> None:
    """Run the RLHFJob in FILE for real on this machine, without Kubernetes.

    Every role gets a process of its own. What was started before and not finished goes on after its last step.

    Exit code: 0 done, 1 the run failed, 2 the command or the manifest is wrong, 130 stopped by Ctrl-C (143 by SIGTERM).
    """
    from rlhf_cli.run_job import RunOptions, run_job

    if (file is None) == (config is None):
        raise click.UsageError("one manifest must be given, as FILE or with `--config`.")
    if controller is not None and not _IMPORT_PATH.fullmatch(controller):
        raise click.BadParameter(
            f'must be written "package.module:Class"; got "{controller}"', param_hint="--controller"
        )
    options = RunOptions(
        manifest=file or config or "",
        controller=controller,
        runs_dir=runs_dir,
        fresh=fresh,
        steps=steps,
        backend=backend,
        quiet=quiet,
    )
    code = run_job(options)
    if code > _SIGNALLED:  # everything is ended and written; taking torch and Ray apart would take seconds
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    ctx.exit(code)
