"""The first process of a role's pod: starts Ray there, and shows the role's output as the pod's own.

    python -m rlhf_runtime.node ─► bash -c "$KUBERAY_GEN_RAY_START_CMD" (raylet, role processes)
            │ 10 times a second: what they append to their log files ─► this process's output
            └ their end: the last lines, then Ray's exit code

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
from rlhf_runtime.pod_logs import LogCopier

COMMAND_VARIABLE = "KUBERAY_GEN_RAY_START_CMD"
_PERIOD_SECONDS = 0.1
_LAST_WORDS_SECONDS = 5.0
_WRONG_USE = 2


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
    ray = _Child(["bash", "-c", f"ulimit -n 65536; exec {command}"], settings)
    copier = LogCopier(folder, sys.stdout.buffer)
    while not ray.ended.wait(_PERIOD_SECONDS):
        copier.copy()
    end = time.monotonic() + _LAST_WORDS_SECONDS  # of role processes, which the kernel ends with Ray's
    while copier.has_writers() and time.monotonic() < end:
        copier.copy()
        time.sleep(_PERIOD_SECONDS)
    copier.copy(last=True)
    return ray.exit_code


class _Child:
    """A process that gets this one's signals. Orphans, which a pod's first process inherits, are reaped as well."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.ended = threading.Event()
        self.exit_code = 0
        self._process = subprocess.Popen(command, env=environment)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._forward)
        threading.Thread(target=self._reap, name="rlhf-reap", daemon=True).start()

    def _forward(self, number: int, _: FrameType | None) -> None:
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
