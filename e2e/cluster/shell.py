"""Run a program and get its output, or an error that shows it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from e2e.cluster.errors import ClusterError, CommandError
from e2e.cluster.paths import search_path

_running: set[subprocess.Popen[str]] = set()


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
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "PATH": search_path(), **(env or {})},
            cwd=cwd,
            start_new_session=True,  # so that all that it started can be ended with it
        )
    except FileNotFoundError as error:
        raise ClusterError(f"`{words[0]}` is not installed") from error
    _running.add(child)
    try:
        out, err = child.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(words[:6])}` took longer than {timeout:.0f} s") from error
    finally:
        _end(child)
        _running.discard(child)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(out + err)
    if child.returncode != 0:
        raise CommandError(words, child.returncode, err or out)
    return out


def end_all() -> None:
    """Ask every program that other threads are running, and all that those started, to end: we were interrupted."""
    for child in list(_running):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def _end(child: subprocess.Popen[str]) -> None:
    if child.poll() is not None:
        return
    os.killpg(child.pid, signal.SIGTERM)
    try:
        child.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def succeeds(argv: Sequence[str | Path], *, timeout: float = 30) -> bool:
    """Whether a program ends with exit code 0."""
    try:
        run(argv, timeout=timeout)
    except ClusterError:
        return False
    return True
