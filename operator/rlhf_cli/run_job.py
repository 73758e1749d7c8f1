"""What `rlhf run` does: from a manifest to an exit code, with one message for whatever goes wrong.

    read and check manifest ─► lock the run's folder ─► import torch ─► run ─► report
          2                        1, or 0 if done                      0 | 1 | 130 | 143

The order is by cost: what can be known without torch and Ray is answered within a second.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlhf_cli.manifests import ManifestError, read_manifest
from rlhf_cli.signals import StopSignals

if TYPE_CHECKING:
    from rlhf_api.types import RLHFJob
    from rlhf_cli.progress import ConsoleReporter
    from rlhf_runtime.job.run_folder import RunFolder

DONE, FAILED, WRONG = 0, 1, 2
DEFAULT_RUNS = "runs"
_EXTRA = ("torch", "ray", "transformers", "tokenizers", "safetensors", "numpy", "fsspec", "reasoning_gym", "matplotlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command line of `rlhf run`; see there."""

    manifest: str
    controller: str | None = None
    runs_dir: str = DEFAULT_RUNS
    fresh: bool = False
    steps: int | None = None
    backend: str | None = None
    quiet: bool = False


def run_job(options: RunOptions) -> int:
    """Run the job; gives the exit code."""
    from rlhf_api.validation import load_job

    try:
        job = read_manifest(options.manifest, lambda text, source: load_job(text, source=source))
    except ManifestError as error:
        click.echo(str(error), err=True)
        return WRONG
    if options.steps is not None:
        job = _with_steps(job, options.steps)
    _make_importable(Path.cwd())
    return _run(job, options)


def _run(job: RLHFJob, options: RunOptions) -> int:
    from rlhf_cli.progress import ConsoleReporter
    from rlhf_runtime.errors import RlhfError
    from rlhf_runtime.job.run_folder import RunFolder

    folder = RunFolder(Path(options.runs_dir) / job.name)
    reporter = ConsoleReporter(quiet=options.quiet)

    def last_words() -> None:
        """In a signal's handler, before the process ends: no locks, no buffers."""
        reporter.restore_terminal()
        if reporter.last_step:
            os.write(2, f"{_stopped(job, options, steps=reporter.last_step)}\n".encode())

    with StopSignals(before_end=last_words) as signals, reporter:
        try:
            _run_in(folder, job, options, reporter, signals)
        except KeyboardInterrupt:
            reporter.stop()
            click.echo(_stopped(job, options, steps=reporter.last_step), err=True)
            return signals.exit_code
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRA:
                raise
            reporter.stop()
            click.echo(f"`rlhf run` needs {error.name}: install the extra `runtime`: rlhf-operator[runtime]", err=True)
            return WRONG
        except (RlhfError, OSError) as error:
            reporter.stop()
            click.echo(f"Error: {_explained(error, folder)}", err=True)
            _tell_what_is_kept(job, options, steps=reporter.last_step)
            return FAILED
        except (Exception, SystemExit):  # a bug, ours or the control flow's: its author needs to see where
            reporter.stop()
            traceback.print_exc()
            _tell_what_is_kept(job, options, steps=reporter.last_step)
            return FAILED
    return DONE


def _run_in(
    folder: RunFolder, job: RLHFJob, options: RunOptions, reporter: ConsoleReporter, signals: StopSignals
) -> None:
    from rlhf_runtime.job.summary import finished_run

    folder.open()
    try:
        reporter.begin(job, folder.path)
        outcome = None
        if not options.fresh:
            folder.check_manifest(job.to_manifest())
            outcome = finished_run(folder, job)
        if outcome is None:
            signals.abrupt = True
            reporter.phase("Loading torch")
            from rlhf_runtime.job.runner import JobRunner

            signals.abrupt = False
            outcome = JobRunner(
                job,
                folder,
                reporter=reporter,
                backend=options.backend,
                controller_class=options.controller,
                fresh=options.fresh,
            ).run()
    finally:
        folder.close()
    reporter.finish(outcome)


def _with_steps(job: RLHFJob, steps: int) -> RLHFJob:
    algorithm = job.spec.algorithm.model_copy(update={"total_steps": steps})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"algorithm": algorithm})})


def _make_importable(folder: Path) -> None:
    """A user's modules lie where the command is run; the role processes look there too."""
    here = str(folder)
    if here not in sys.path:
        sys.path.insert(0, here)
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *(path for path in others if path and path != here)])


def _explained(error: BaseException, folder: RunFolder) -> str:
    """An error as its reader needs it: a full disk by its name, whoever met it."""
    if _is_full_disk(error):
        return f'no space is left on the disk of "{folder.path}"; make some, then run the same command again'
    if isinstance(error, OSError):
        where = f'"{error.filename}"' if error.filename else f'the run\'s folder "{folder.path}"'
        return f"{where}: {error.strerror or error}"
    return str(error)


def _is_full_disk(error: BaseException | None) -> bool:
    from rlhf_runtime.errors import RemoteError, StateStoreFullError

    while error is not None:
        if isinstance(error, StateStoreFullError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, RemoteError) and error.kind == StateStoreFullError.__name__:
            return True
        error = error.__cause__
    return False


def _stopped(job: RLHFJob, options: RunOptions, *, steps: int) -> str:
    total = job.spec.algorithm.total_steps
    if steps == 0:
        return "Stopped before the first step was done"
    if steps >= total:
        return f"Stopped after the last step; what is left is done by: {_resuming_command(options)}"
    return f"Stopped after step {steps} of {total}; it goes on with: {_resuming_command(options)}"


def _tell_what_is_kept(job: RLHFJob, options: RunOptions, *, steps: int) -> None:
    if steps:
        total = job.spec.algorithm.total_steps
        click.echo(
            f"Nothing up to step {steps} of {total} is lost; it goes on with: {_resuming_command(options)}", err=True
        )


def _program() -> str:
    """`rlhf`, or where it lies when a shell would not find this one."""
    started = Path(sys.argv[0])
    found = shutil.which("rlhf")
    if started.name != "rlhf" or (found and os.path.samefile(found, started)):
        return "rlhf"
    here = Path.cwd()
    return str(started.relative_to(here) if started.is_relative_to(here) else started)


def _resuming_command(options: RunOptions) -> str:
    """The command that goes on; the one that was given, but for `--fresh`."""
    words = [_program(), "run", options.manifest]
    given = {"controller": options.controller, "steps": options.steps, "backend": options.backend}
    if options.runs_dir != DEFAULT_RUNS:
        given["runs-dir"] = options.runs_dir
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    return shlex.join(words)
