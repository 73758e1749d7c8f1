"""`python -m rlhf_runtime.service` as a pod would start it, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from control_client import ControlClient
from job_secret import HOST, Secret

from rlhf_api import in_pod
from rlhf_api.ending import Ending
from rlhf_api.job_control import messages

PATIENCE = 400.0  # a loaded machine takes its time to start processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE) -> Any:
    """Look until it is so, and give what it is."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)
    return found


class RunningService:
    """One attempt of a controller.

    Args:
        folder: Where job file, termination file and run are; the current folder of the process.
        secret: Its Secret.
        arguments: More of the command line.
        variables: More of the environment.
    """

    def __init__(
        self, folder: Path, secret: Secret, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.run = folder / "run"
        self.termination = folder / "termination"
        self.termination.unlink(missing_ok=True)
        self.health_port, self._control_port = free_port(), free_port()
        self._secret = secret
        command = [sys.executable, "-m", "rlhf_runtime.service", f"--job={folder / 'job.json'}"]
        command += [f"--secrets={secret.folder}", f"--control-port={self._control_port}"]
        command += [f"--health-port={self.health_port}", *arguments]
        self._output = (folder / "output").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                in_pod.RUN_FOLDER_VARIABLE: str(self.run),
                "RLHF_TERMINATION_FILE": str(self.termination),
                "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
                **(variables or {}),
            },
        )
        self._folder = folder

    def __enter__(self) -> RunningService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()
        if kind is not None:
            print(self.output)

    @property
    def output(self) -> str:
        return (self._folder / "output").read_text(encoding="utf-8")

    def client(self) -> ControlClient:
        return ControlClient(
            self._control_port, certificate=self._secret.certificate, token=self._secret.token, host=HOST
        )

    def wait_for_report(self, condition: Callable[[messages.Report], object], what: str) -> messages.Report:
        """Ask for reports until one is as wanted."""
        with self.client() as client:
            report: messages.Report = next(
                client.stub.WatchReports(
                    messages.GetReportRequest(), metadata=client.metadata, timeout=PATIENCE, wait_for_ready=True
                )
            )
            end = time.monotonic() + PATIENCE
            while not condition(report):
                assert time.monotonic() < end, f"waited for {what}; last:\n{report}"
                assert self.process.poll() is None, f"ended while {what} was awaited"
                time.sleep(0.05)
                report = client.report()
            return report

    def wait_for_step(self, step: int) -> messages.Report:
        return self.wait_for_report(lambda report: report.progress.step >= step, f"step {step}")

    def suspend(self) -> None:
        with self.client() as client:
            client.call("Suspend", messages.SuspendRequest())

    def end(self) -> tuple[int, Ending]:
        """Wait for the end; gives exit code and termination message."""
        code = self.process.wait(PATIENCE)
        ending = Ending.decode(self.termination.read_text(encoding="utf-8"))
        assert ending is not None, self.output
        return code, ending


def write_job_file(manifest: Path) -> None:
    """The job as the operator writes it: JSON, beside the manifest."""
    job = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    job["metadata"] |= {"namespace": "team", "uid": "0b5e", "generation": 1}
    (manifest.parent / "job.json").write_text(json.dumps(job), encoding="utf-8")
