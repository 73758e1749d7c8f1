"""A Ray cluster as the operator makes it, a node for each role's pod: places, losses, what a dead controller leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from builders import Run, RunBuilder, close_all
from real_processes import is_alive, on_ray, wait_until
from toy_workers import Process

from rlhf_api import in_pod, names
from rlhf_api.enums import FailureReason
from rlhf_runtime import ray_settings
from rlhf_runtime.backends import ray_backend
from rlhf_runtime.backends.ray_backend import RayBackend

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(1200)]

ROLES = ("actor", "critic")
ENVIRONMENT = {
    "RAY_raylet_start_wait_time_s": "240",  # a loaded machine takes its time
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "3",
}


class Pod:
    """A Ray node on this machine, started as in a pod."""

    def __init__(self, log: Path, *arguments: str, **variables: str) -> None:
        environment = {**os.environ, **ENVIRONMENT, **variables}
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        ray_settings.set_defaults(ray_settings.WORKERS, environment=environment)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=0"]
        command += ["--object-store-memory=80000000", "--disable-usage-stats", *arguments]
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, start_new_session=True
            )
        try:
            started = "Ray runtime started"
            wait_until(lambda: self._process.poll() is not None or started in log.read_text(), "Ray", seconds=300)
            assert self._process.poll() is None, log.read_text()
        except BaseException:
            self.delete()
            raise

    def delete(self) -> None:
        """As `kubectl delete pod` does."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Pods:
    """The head and the roles' pods."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._pods: dict[str, Pod] = {}
        self._head_port = port

    def start(self) -> None:
        log = self._folder / "head.log"
        self._pods["head"] = Pod(log, "--head", f"--port={self._head_port}", "--include-dashboard=false")
        for role in ROLES:
            self.add(role, f"{role}-0")

    def add(self, role: str, pod: str) -> None:
        self._pods[pod] = Pod(
            self._folder / f"{pod}.log",
            f"--address={self.address}",
            f"--resources={json.dumps({names.ray_resource(role): 1})}",
            **{in_pod.POD_VARIABLE: pod, in_pod.NODE_VARIABLE: f"node-of-{pod}"},
        )

    def remove(self, pod: str) -> None:
        self._pods.pop(pod).delete()

    def close(self) -> None:
        for pod in reversed(list(self._pods)):
            self.remove(pod)


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    session_had_one = ray.is_initialized()  # a process is connected to one Ray
    ray.shutdown()
    pods = Pods(tmp_path_factory.mktemp("pods"))
    try:
        pods.start()
        yield pods
    finally:
        close_all()
        pods.close()
    if session_had_one:
        ray_backend._start_ray(None, 256 * 1024**2)


@pytest.fixture
def runs(pods: Pods, tmp_path: Path) -> Iterator[RunBuilder]:
    yield on_ray(tmp_path).on(lambda: RayBackend(address=pods.address, places="role-pods")).settings(job="ppo")
    close_all()


def _places(run: Run, role: str) -> list[tuple[str, str]]:
    return [(s.joined.pod, s.joined.node) for s in run.controller.engine.groups[role].seats if s.joined]


def test_a_lost_pods_role_comes_back_in_the_next_pod_and_the_others_stay(runs: RunBuilder, pods: Pods) -> None:
    run = runs.role("critic", Process).role("rule", Process, colocate_with="critic").role("actor", Process).start()
    engine = run.controller.engine
    engine.wait_ready()
    assert {name: _places(run, name) for name in ("actor", "critic", "rule")} == {
        "actor": [("actor-0", "node-of-actor-0")],
        "critic": [("critic-0", "node-of-critic-0")],
        "rule": [("critic-0", "node-of-critic-0")],
    }
    for role in ("actor", "critic"):
        run.step(role, "update", [], amount=5.0).wait()
    before = run.pids

    engine.restart_role("critic", reason="new image")  # the place that it leaves is the one that it finds
    assert run.step("critic", "look", ["total"])["total"].get() == 5.0
    assert run.pids["critic"] != before["critic"]
    assert _places(run, "critic") == [("critic-0", "node-of-critic-0")]

    engine.expect_loss("critic", reason=FailureReason.NODE_DRAINED, seconds=120.0)
    lost = time.monotonic()
    pods.remove("critic-0")
    answer = run.step("critic", "update", ["total"], amount=1.0)
    wait_until(lambda: len(run.seen.incidents) > 2, "the loss to be noticed")
    print(f"\nnoticed {time.monotonic() - lost:.1f} s after the pod's end")
    for _ in range(2):
        run.step("actor", "update", [], amount=1.0).wait()
    (waiting, *_) = wait_for_words(run)
    assert waiting.startswith('role "critic" waits for its pod: it has not joined Ray')

    pods.add("critic", "critic-1")
    assert answer["total"].get() == 11.0
    assert _places(run, "critic") == _places(run, "rule") == [("critic-1", "node-of-critic-1")]
    assert run.pids["actor"] == before["actor"]
    assert run.restarts == {}
    group = engine.groups["critic"]
    assert (group.uncounted_restarts, group.last_recovery_ms is not None) == (2, True)
    losses = [i for i in run.seen.incidents if i.reason == "NodeDrained"]
    assert [(i.role, i.pod, i.node, i.counted) for i in losses] == [
        ("critic", "critic-0", "node-of-critic-0", False),
        ("rule", "critic-0", "node-of-critic-0", False),
    ]
    assert losses[0].message == "ended on purpose, as was announced"
    pods.remove("critic-1")
    pods.add("critic", "critic-0")


def wait_for_words(run: Run) -> list[str]:
    wait_until(lambda: any("joined" in line for line in run.controller.engine.waiting_for()), "an explanation")
    return run.controller.engine.waiting_for()


CONTROLLER = """
import sys
from builders import a_run
from toy_workers import Process
from rlhf_runtime.backends.ray_backend import RayBackend

address, folder = sys.argv[1:]
run = a_run().on(lambda: RayBackend(address=address, places="role-pods")).settings(state_location=folder)
run = run.role("critic", Process).start()
run.step("critic", "update", [], amount=4.0).wait()
print("pid", *run.pids["critic"], flush=True)
sys.stdin.read()
"""


def test_the_place_of_a_dead_controllers_process_is_free_for_the_next_ones(
    runs: RunBuilder, pods: Pods, tmp_path: Path
) -> None:
    here = Path(__file__).parent.parent / "control"
    state = str(tmp_path / "shared")
    first = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, pods.address, state],
        env={**os.environ, "PYTHONPATH": str(here)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = next(line for line in first.stdout if line.startswith("pid"))
        pid = int(line.split()[1])
        assert is_alive(pid)
    finally:
        first.kill()
        first.communicate()
    killed = time.monotonic()
    run = runs.settings(state_location=state, epoch=2, restore_versions={"critic": 1}).role("critic", Process).start()
    assert run.step("critic", "look", ["total"])["total"].get() == 4.0
    print(f"\nin place {time.monotonic() - killed:.1f} s after the first controller's end")
    assert not is_alive(pid)
    ((pod, _),) = _places(run, "critic")
    assert pod.startswith("critic-")


def test_a_roles_output_names_role_rank_and_step(runs: RunBuilder, tmp_path: Path) -> None:
    run = runs.role("actor", Process).start()
    run.controller.begin_iteration(11)
    run.step("actor", "generate", ["responses"], prompts=["a", "b"]).wait()
    run.step("actor", "look", x=1).wait()
    lines = (tmp_path / "logs" / "actor-worker-000.log").read_text().splitlines()
    assert lines[0].startswith("actor-worker-000 ready at version 0 (attempt 0, 0 updates replayed) after ")
    assert [line.split(" s")[0].rpartition(" ")[0] for line in lines[1:]] == [
        "step 12 actor-worker-000 generate",
        "step 12 actor-worker-000 look",
    ]
    assert lines[1].endswith("(64 samples)")
