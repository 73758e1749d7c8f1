"""The controller's pod as a node of the job's Ray cluster: a driver needs one beside it. It offers nothing to anybody.

`ray start --block` is a child process; its head may come up later than this pod, so it is tried until a limit. When
the child ends by itself, Ray here is gone, most often since the head is.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from rlhf_runtime import ray_settings

JOIN_SECONDS = 600.0
_RETRY_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_STARTED = "Ray runtime started"
_WATCHED = "Process exit logs will be saved to"
_OBJECT_STORE_BYTES = 256 * 1024**2  # prompts go out and numbers come in; large buffers pass between the roles


class ClusterUnreachableError(Exception):
    """The head did not answer in time; another controller may have more luck."""


class RayNode:
    """This pod's part of the Ray cluster.

    Args:
        address: `host:port` of the head.
        log: For lines that people should see.
    """

    def __init__(self, address: str, *, log: Callable[[str], None]) -> None:
        self._address = address
        self._log = log
        self._child: subprocess.Popen[str] | None = None
        self._started = threading.Event()
        self._last_words = ""

    def join(self, *, seconds: float = JOIN_SECONDS) -> None:
        """Join, waiting for the head if need be.

        Raises:
            ClusterUnreachableError: It did not work within `seconds`.
        """
        ray_settings.set_defaults(ray_settings.WORKERS, ray_settings.DRIVER)
        end = time.monotonic() + seconds
        told = ""
        while True:
            trouble = self._unreachable() or self._try(end)
            if not trouble:
                return
            if time.monotonic() >= end:
                raise ClusterUnreachableError(
                    f'Ray\'s head at "{self._address}" could not be joined within {seconds:g} s: {trouble}'
                )
            if trouble != told:
                self._log(f'waiting for Ray\'s head at "{self._address}": {trouble}')
                told = trouble
            time.sleep(_RETRY_SECONDS)

    @property
    def ended(self) -> str | None:
        """What the node said last when it has ended by itself; None while it lives."""
        child = self._child
        if child is None or child.poll() is None:
            return None
        return self._last_words or f"exit code {child.returncode}"

    def leave(self, *, seconds: float = 10.0) -> None:
        """End the node's processes; waits for them."""
        child, self._child = self._child, None
        if child is None:
            return
        _signal_all(child, signal.SIGTERM)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            _signal_all(child, signal.SIGKILL)
            child.wait()

    def abandon(self) -> None:
        """End the node's processes without waiting."""
        if self._child is not None:
            _signal_all(self._child, signal.SIGTERM)

    def _unreachable(self) -> str:
        host, _, port = self._address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
                return ""
        except (OSError, ValueError) as error:
            return str(error)

    def _try(self, end: float) -> str:
        """Start the node; gives what went wrong, or nothing."""
        self._started.clear()
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ray.scripts.scripts",
                "start",
                f"--address={self._address}",
                "--num-cpus=0",
                "--num-gpus=0",
                f"--object-store-memory={_OBJECT_STORE_BYTES}",
                "--include-log-monitor=false",  # the logs of roles are those of their pods
                "--disable-usage-stats",
                "--block",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # to end it with all that it starts
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._child = child
        threading.Thread(target=self._read, args=(child,), name="rlhf-ray-output", daemon=True).start()
        while not self._started.wait(0.1):
            if child.poll() is not None:
                self._child = None
                return self._last_words or f"`ray start` ended with exit code {child.returncode}"
            if time.monotonic() >= end:
                self.leave()
                return "`ray start` did not come to its end"
        return ""

    def _read(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        told = False  # what it prints until it watches over its processes is of interest only if it fails
        with child.stdout:
            for line in child.stdout:
                text = line.strip()
                if _STARTED in text:
                    self._started.set()
                if text.strip("- "):
                    self._last_words = text
                if text and told:
                    self._log(f"ray: {text}")
                told = told or _WATCHED in text


def _signal_all(child: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return
