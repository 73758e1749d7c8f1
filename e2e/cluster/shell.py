"""Run a program and get its output, or an error that shows it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError, CommandError


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
    log: Path | None = None,
) -> str:
    """Run a program to its end and return what it wrote to stdout.

    ``env`` is added to this process's. With ``log``, all output is also kept in that file (for long builds).

    Raises:
        CommandError: it ended with another exit code than 0.
        ClusterError: it took longer than ``timeout`` seconds, or is not installed.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(words[:6])}` took longer than {timeout:.0f} s") from error
    except FileNotFoundError as error:
        raise ClusterError(f"`{words[0]}` is not installed") from error
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise CommandError(words, done.returncode, done.stderr or done.stdout)
    return done.stdout


def succeeds(argv: Sequence[str | Path], *, timeout: float = 30) -> bool:
    """Whether a program ends with exit code 0."""
    try:
        run(argv, timeout=timeout)
    except ClusterError:
        return False
    return True
