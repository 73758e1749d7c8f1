"""The program as a pod runs it: it joins a Ray cluster whose nodes have the roles' places, is suspended and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_client import health_of
from job_secret import Secret
from running_service import RunningService, free_port, wait_until, write_job_file
from service_jobs import metrics_of, write_tiny_job

from rlhf_api.ending import EndingOutcome
from rlhf_api.job_control import messages
from rlhf_api.names import ray_resource
from rlhf_runtime import ray_settings

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(1200)]
STEPS = 40
ROLES = ("actor", "reward", "reference")


class RayProcess:
    """`ray start --block` in a process group of its own, so that it ends with all that it started."""

    def __init__(self, log: Path, *arguments: str, resources: dict[str, int]) -> None:
        environment = dict(os.environ)
        ray_settings.set_defaults(ray_settings.WORKERS, environment=environment)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=0"]
        command += ["--object-store-memory=100000000", "--disable-usage-stats", f"--resources={json.dumps(resources)}"]
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=output, stderr=output, start_new_session=True, env=environment
            )

    def wait_started(self) -> None:
        wait_until(lambda: self.process.poll() is not None or "Ray runtime started" in self._log.read_text(), "Ray")
        assert self.process.poll() is None, self._log.read_text()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the job's pods: whoever joins must have the job's token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


@pytest.fixture
def head(tmp_path: Path, token: None) -> Iterator[str]:
    """A head with places for all roles but the actor; gives its address."""
    port = free_port()
    process = RayProcess(
        tmp_path / "head.log",
        "--head",
        f"--port={port}",
        f"--ray-client-server-port={free_port()}",
        "--include-dashboard=false",
        resources={ray_resource(role): 1 for role in ROLES if role != "actor"},
    )
    process.wait_started()
    yield f"127.0.0.1:{port}"
    process.end()


@pytest.fixture
def place(tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLHF_CACHE_DIR", str(model_cache))
    monkeypatch.setenv("RLHF_JOB", "tiny")
    write_job_file(write_tiny_job(tmp_path, steps=STEPS))
    return tmp_path


def test_it_waits_for_places_trains_is_suspended_and_goes_on(
    place: Path, secret: Secret, head: str, tmp_path: Path
) -> None:
    with RunningService(place, secret, f"--address={head}") as first:
        assert health_of(first.health_port) == "SERVING"
        report = first.wait_for_report(lambda r: r.phase == messages.WAITING_FOR_PLACES, "the want of a place")
        assert 'role "actor" waits for its pod' in report.message
        wait_until(lambda: health_of(first.health_port, "ready") == "SERVING", "readiness")
        pool = RayProcess(tmp_path / "pool.log", f"--address={head}", resources={ray_resource("actor"): 1})
        try:
            report = first.wait_for_step(2)
            assert (report.phase, report.epoch) == (messages.TRAINING, 1)
            wait_until(lambda: all(role.ready == 1 for role in _report(first).roles), "ready roles in the report")
            classes = {role.name: role.class_name for role in _report(first).roles}
            assert classes["actor"] == "rlhf_runtime.workers.actor:ActorWorker"
            with first.client() as client:
                client.call("RestartRole", messages.RestartRoleRequest(role="reference", reason="a test"))
            restarted = first.wait_for_report(lambda r: r.incidents, "the restart")
            assert (restarted.incidents[0].role, restarted.incidents[0].counted) == ("reference", False)
            first.suspend()
            code, ending = first.end()
            assert (code, ending.outcome) == (0, EndingOutcome.SUSPENDED)
            assert ending.progress is not None and 2 <= ending.progress.step < STEPS
            done = ending.progress.step
            with RunningService(place, secret, f"--address={head}") as second:
                code, ending = second.end()
                assert f"going on after step {done} of {STEPS}" in second.output
        finally:
            pool.end()
    assert (code, ending.outcome, ending.epoch) == (0, EndingOutcome.COMPLETE, 2), ending.message
    assert [role.uncounted_restarts for role in ending.roles if role.name == "reference"] == [1]
    trained = [line["step"] for line in metrics_of(place / "run") if "reward" in line]
    assert trained == list(range(1, STEPS + 1))
    assert "snapshot after step" in (place / "run/logs/controller.log").read_text(encoding="utf-8")


def test_a_lost_head_is_for_the_next_controller(place: Path, secret: Secret, tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--head", f"--port={port}", f"--ray-client-server-port={free_port()}", "--include-dashboard=false")
    head = RayProcess(tmp_path / "head.log", *arguments, resources={ray_resource(role): 1 for role in ROLES})
    with RunningService(
        place, secret, f"--address=127.0.0.1:{port}", variables={"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    ) as running:
        try:
            running.wait_for_step(1)
        finally:
            os.killpg(head.process.pid, signal.SIGKILL)
            head.process.wait()
        code, ending = running.end()
    assert code not in (0, 3)
    assert ending.outcome is EndingOutcome.INTERRUPTED


def _report(service: RunningService) -> messages.Report:
    with service.client() as client:
        return client.report()
