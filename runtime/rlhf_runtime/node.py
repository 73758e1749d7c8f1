"""The first process of a role's pod: starts Ray there, and shows the role's output as the pod's own.

    python -m rlhf_runtime.node ─► bash -c "$KUBERAY_GEN_RAY_START_CMD" (raylet, role processes)
            │ 10 times a second: what they append to their log files ─► this process's output
            └ their end: the last lines, then Ray's exit code

Ray gives a node 30 seconds to start, whatever the load of its machine. A start that failed is tried again here: were
the pod to end for it, that would count as a restart of the role.

KubeRay makes the command, the operator makes this module run it. A pod must be up in a second, so it imports nothing
heavy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType

from rlhf_api import in_pod
from rlhf_runtime import ray_settings
from rlhf_runtime.descendants import end_descendants
from rlhf_runtime.pod_logs import LogCopier

COMMAND_VARIABLE = "KUBERAY_GEN_RAY_START_CMD"
_PERIOD_SECONDS = 0.1
_LAST_WORDS_SECONDS = 5.0
_WRONG_USE = 2
_START_FAILED = 1
_STARTS = 5
_PAUSE_SECONDS = 2.0


def main(environment: Mapping[str, str] = os.environ, *, folder: str = in_pod.POD_LOGS_FOLDER) -> int:
    """Run Ray until it ends.

    Returns:
        Its exit code, 128 and the signal's number if a signal ended it.
    """
    command = environment.get(COMMAND_VARIABLE)
    if not command:
        print(f"`{COMMAND_VARIABLE}` must be set, as KubeRay does in the pods of a RayCluster", file=sys.stderr)
        return _WRONG_USE
    os.makedirs(folder, exist_ok=True)
    settings = dict(environment)
    ray_settings.set_defaults(ray_settings.WORKERS, environment=settings)
    copier = LogCopier(folder, sys.stdout.buffer)
    ray = _run(command, settings, copier)
    for start in range(2, _STARTS + 1):
        if ray.exit_code != _START_FAILED or _has_joined(environment):
            break
        print(f"Ray has not started; try {start} of {_STARTS} follows", flush=True)
        end_descendants()  # what it has left, so that the next one finds its ports free
        time.sleep(_PAUSE_SECONDS)
        if ray.was_told:
            break
        ray = _run(command, settings, copier)
    return ray.exit_code


def _run(command: str, environment: Mapping[str, str], copier: LogCopier) -> _Child:
    """Run Ray once, to its end."""
    ray = _Child(["bash", "-c", f"ulimit -n 65536; exec {command}"], environment)
    while not ray.ended.wait(_PERIOD_SECONDS):
        copier.copy()
    end = time.monotonic() + _LAST_WORDS_SECONDS  # of role processes, which the kernel ends with Ray's
    while copier.has_writers() and time.monotonic() < end:
        copier.copy()
        time.sleep(_PERIOD_SECONDS)
    copier.copy(last=True)
    return ray


def _has_joined(environment: Mapping[str, str]) -> bool:
    """Whether Ray's node was up once: `ray start` writes the cluster's address to a file when it is."""
    return os.path.exists(os.path.join(environment.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster"))


class _Child:
    """A process that gets this one's signals. Orphans, which a pod's first process inherits, are reaped as well."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.ended = threading.Event()
        self.exit_code = 0
        self.was_told = False
        self._process = subprocess.Popen(command, env=environment)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._forward)
        threading.Thread(target=self._reap, name="rlhf-reap", daemon=True).start()

    def _forward(self, number: int, _: FrameType | None) -> None:
        self.was_told = True
        if not self.ended.is_set():
            os.kill(self._process.pid, number)

    def _reap(self) -> None:
        while not self.ended.is_set():
            pid, status = os.wait()
            if pid == self._process.pid:
                code = os.waitstatus_to_exitcode(status)
                self._process.returncode = code  # else `Popen` would wait for it itself
                self.exit_code = 128 - code if code < 0 else code
                self.ended.set()


if __name__ == "__main__":
    sys.exit(main())
