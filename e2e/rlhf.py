"""The `rlhf` command against the test cluster, as a person would call it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import paths
from e2e.lab import Lab


def rlhf(lab: Lab, command: str, *words: str, timeout: float = 120) -> str:
    """Run the command against the cluster; returns what it printed.

    Raises:
        AssertionError: its exit code is not 0; the message has all that it printed.
    """
    done = subprocess.run(
        _command(lab, command, *words), env=_environment(), capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{command} {words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Running:
    """A command that goes on while the test does other things, such as `status --watch`."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def text(self) -> str:
        """What it has printed so far, errors too."""
        return self._output.read_text()

    def ended(self, *, timeout: float = 60) -> int:
        """Wait for its end; returns its exit code."""
        return self._process.wait(timeout)


@contextmanager
def running(lab: Lab, folder: Path, command: str, *words: str) -> Iterator[Running]:
    """Start the command with its output in a file of ``folder``; what still runs at the end is terminated."""
    output = folder / f"{command}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            _command(lab, command, *words), env=_environment(), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield Running(process, output)
    finally:
        process.terminate()
        process.wait(30)


def _command(lab: Lab, command: str, *words: str) -> list[str]:
    where = ["--kubeconfig", str(paths.KUBECONFIG), "--namespace", lab.namespace]
    return [sys.executable, "-m", "rlhf_cli", command, *where, *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(paths.PROJECT / "operator"), "COLUMNS": "120"}
