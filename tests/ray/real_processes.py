"""What the tests on real processes share: runs with folders of their own, deaths, and waiting for things."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import ray
from builders import Run, RunBuilder, a_run

from rlhf_runtime.backends.ray_backend import RayBackend

PATIENCE = 120.0  # of a test; a loaded machine takes its time to start processes


def wait_until(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
    """Look until it is so; a test never sleeps for a while and hopes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether there is such a process that is more than an entry in a table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def spare_pid(run: Run) -> int:
    """The process id of the blank spare; waits until its imports are done."""
    pool = run.controller.engine.pool
    wait_until(lambda: pool._spares, "a spare")
    reply, _ = ray.get(pool._spares[0].handle.control.options(num_returns=1).remote("ping", ()), timeout=PATIENCE)
    return int(reply["pid"])


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


class Gate:
    """Blocks one method of a role while it is closed, so that a test can choose the moment of a death."""

    def __init__(self, folder: Path, name: str) -> None:
        self._hold, self._inside = folder / f"hold-{name}", folder / f"in-{name}"

    def __enter__(self) -> Gate:
        self._inside.unlink(missing_ok=True)
        self._hold.touch()
        return self

    def wait_inside(self) -> int:
        """Wait until the method is running; gives its process."""
        wait_until(lambda: self._inside.exists() and self._inside.read_text(), f"{self._inside.name}")
        return int(self._inside.read_text())

    def __exit__(self, *_: object) -> None:
        self._hold.unlink()


def on_ray(folder: Path) -> RunBuilder:
    """A builder of runs on the session's Ray, with state and logs in `folder`."""
    return a_run().on(RayBackend).settings(state_location=str(folder / "state"), log_folder=str(folder / "logs"))
