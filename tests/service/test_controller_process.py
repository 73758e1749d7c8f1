"""The whole program in a process of its own, with the roles in that process: its life from first line to exit code."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from control_client import health_of
from job_secret import Secret
from running_service import RunningService, wait_until, write_job_file
from service_jobs import metrics_of, write_tiny_job

from rlhf_api.ending import Ending, EndingOutcome
from rlhf_api.job_control import messages
from rlhf_api.reasons import ConditionReason

pytestmark = [pytest.mark.job, pytest.mark.long, pytest.mark.timeout(600)]
STEPS = 30
SLOW_REWARD = "import time\ndef reward(response, answer):\n    time.sleep(0.01)\n    return len(response) / 8\n"


@pytest.fixture
def place(tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLHF_CACHE_DIR", str(model_cache))
    (tmp_path / "slow_rewards.py").write_text(SLOW_REWARD, encoding="utf-8")
    return tmp_path


def service(place: Path, secret: Secret, **variables: str) -> RunningService:
    return RunningService(place, secret, "--backend=in-process", variables=variables)


def write_job(place: Path, *, steps: int = STEPS, **spec: Any) -> None:
    write_job_file(write_tiny_job(place, steps=steps, function="slow_rewards:reward", **spec))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_cache: Path, secret: Secret) -> list[dict[str, Any]]:
    """The numbers of a run that nobody stops."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "slow_rewards.py").write_text(SLOW_REWARD, encoding="utf-8")
    write_job(folder)
    with service(folder, secret, RLHF_CACHE_DIR=str(model_cache)) as running:
        assert running.end()[0] == 0
    return metrics_of(folder / "run")


def test_it_is_alive_at_once_suspends_after_a_step_and_goes_on_with_the_same_numbers(
    place: Path, secret: Secret, undisturbed: list[dict[str, Any]]
) -> None:
    write_job(place)
    with service(place, secret) as first:
        assert health_of(first.health_port) == "SERVING"
        report = first.wait_for_step(3)
        assert (report.phase, report.epoch, report.progress.total_steps) == (messages.TRAINING, 1, STEPS)
        assert [role.name for role in report.roles] == ["actor", "reward", "reference"]
        assert report.progress.HasField("reward") and report.progress.HasField("evaluation")
        wait_until(lambda: health_of(first.health_port, "ready") == "SERVING", "readiness")
        first.suspend()
        code, ending = first.end()
    assert (code, ending.outcome, ending.reason) == (0, EndingOutcome.SUSPENDED, ConditionReason.SUSPENDED)
    assert ending.progress is not None and 3 <= ending.progress.step < STEPS
    done = ending.progress.step
    assert (ending.progress.snapshot_step, ending.message) == (done, f"Stopped after step {done}, which is saved.")
    assert (place / f"run/state/roles/actor/0/snapshots/v{done:012d}").exists()

    with service(place, secret) as second:
        code, ending = second.end()
        assert f"going on after step {done} of {STEPS}" in second.output
    assert (code, ending.outcome, ending.epoch) == (0, EndingOutcome.COMPLETE, 2)
    assert ending.progress is not None and ending.progress.step == STEPS
    assert metrics_of(place / "run") == undisturbed
    log = (place / "run/logs/controller.log").read_text(encoding="utf-8")
    assert f"step {done}/{STEPS} reward " in log and f"step {STEPS}/{STEPS} reward " in log
    assert (place / "run/model/config.json").exists()

    with service(place, secret) as third:
        code, ending = third.end()
        assert "Training" not in third.output
    assert (code, ending.outcome) == (0, EndingOutcome.COMPLETE)
    assert ending.progress is not None and ending.progress.step == STEPS


def test_sigterm_is_a_suspension_by_the_kubelet(place: Path, secret: Secret) -> None:
    write_job(place)
    with service(place, secret) as running:
        running.wait_for_step(1)
        running.process.send_signal(signal.SIGTERM)
        code, ending = running.end()
    assert (code, ending.outcome) == (0, EndingOutcome.SUSPENDED)
    assert ending.progress is not None and ending.progress.snapshot_step == ending.progress.step


def test_a_second_sigterm_ends_it_in_the_middle_of_a_step_and_nothing_is_lost(
    place: Path, secret: Secret, undisturbed: list[dict[str, Any]]
) -> None:
    (place / "slow_rewards.py").write_text(
        "import pathlib, time\n"
        "calls = 0\n"
        "def reward(response, answer):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls > 24:\n"
        "        pathlib.Path('inside').touch()\n"
        "        time.sleep(3600)\n"
        "    return len(response) / 8\n",
        encoding="utf-8",
    )
    write_job(place)
    with service(place, secret) as running:
        wait_until((place / "inside").exists, "a step that takes an hour")
        running.process.send_signal(signal.SIGTERM)
        running.wait_for_report(lambda report: report.phase == messages.STOPPING, "the stop")
        running.process.send_signal(signal.SIGTERM)
        code, ending = running.end()
    assert (code, ending.outcome) == (0, EndingOutcome.SUSPENDED)
    assert ending.progress is not None and ending.progress.step == 3
    (place / "slow_rewards.py").write_text(SLOW_REWARD, encoding="utf-8")
    with service(place, secret) as second:
        assert second.end()[0] == 0
    assert metrics_of(place / "run") == undisturbed


def test_a_killed_process_leaves_an_honest_word_and_its_successor_goes_on(
    place: Path, secret: Secret, undisturbed: list[dict[str, Any]]
) -> None:
    write_job(place)
    with service(place, secret) as running:
        running.wait_for_step(2)
        running.process.kill()
        running.process.wait()
    left = Ending.decode((place / "termination").read_text(encoding="utf-8"))
    assert left is not None
    assert (left.outcome, left.reason) == (EndingOutcome.INTERRUPTED, ConditionReason.CONTROLLER_LOST)
    assert "before it could say why" in left.message
    with service(place, secret) as second:
        assert second.end()[0] == 0
        assert "going on after step" in second.output
    assert metrics_of(place / "run") == undisturbed


def test_state_at_a_uri_takes_manifest_metrics_and_model_along(place: Path, secret: Secret) -> None:
    write_job(place, steps=6, state={"snapshotEverySteps": 2})
    (place / "reachable.py").write_text(
        "import fsspec\n"
        "from fsspec.implementations.local import LocalFileSystem\n"
        "class Bucket(LocalFileSystem):\n"
        "    protocol = 'bucket'\n"
        "fsspec.register_implementation('bucket', Bucket)\n",
        encoding="utf-8",
    )
    (place / "sitecustomize.py").write_text("import reachable\n", encoding="utf-8")
    variables = {"RLHF_STATE": f"bucket://{place}/bucket", "RLHF_RUN_FOLDER": str(place / "pod-1")}
    with service(place, secret, **variables) as first:
        first.wait_for_step(2)
        first.suspend()
        assert first.end()[1].outcome is EndingOutcome.SUSPENDED
    with service(place, secret, **{**variables, "RLHF_RUN_FOLDER": str(place / "pod-2")}) as second:
        code, ending = second.end()
    assert (code, ending.outcome) == (0, EndingOutcome.COMPLETE), ending.message
    assert (place / "bucket/model/config.json").exists()
    assert [line["step"] for line in metrics_of(place / "pod-2") if "reward" in line] == list(range(1, 7))
    assert metrics_of(place / "bucket/run") == metrics_of(place / "pod-2")
    assert json.loads((place / "bucket/run/manifest.json").read_text())["metadata"]["name"] == "tiny"


@pytest.mark.parametrize(
    ("spec", "variables", "want", "says"),
    [
        pytest.param(
            {"algorithm": {"name": "GRPO", "totalSteps": 0}},
            {},
            ConditionReason.INVALID_SPEC,
            "spec.algorithm.totalSteps",
            id="a job file that this image cannot read",
        ),
        pytest.param(
            {"model": {"path": "nowhere"}},
            {},
            ConditionReason.INVALID_SPEC,
            '`spec.model.path`: there is no folder "nowhere"',
            id="a model that is not there",
        ),
        pytest.param(
            {},
            {"RLHF_STATE": "memory://state"},
            ConditionReason.INVALID_SPEC,
            "`spec.state.location.uri` must be reachable from every pod",
            id="state in one pod alone",
        ),
        pytest.param(
            {},
            {"RLHF_STATE": "s3://bucket/x", "RLHF_CACHE_DIR": "/tmp/rlhf/cache"},
            ConditionReason.INVALID_SPEC,
            "set `spec.cacheVolume`",
            id="a built-in model that no role could read",
        ),
        pytest.param(
            {},
            {"RLHF_STATE": "nosuch://bucket/x"},
            ConditionReason.STATE_UNREACHABLE,
            "`spec.state.location` must be reachable",
            id="a URI without a driver",
        ),
    ],
)
def test_what_can_never_work_fails_for_good_with_a_reason_and_advice(
    place: Path,
    secret: Secret,
    spec: Mapping[str, Any],
    variables: Mapping[str, str],
    want: ConditionReason,
    says: str,
) -> None:
    write_job(place, **spec)
    with service(place, secret, **variables) as running:
        code, ending = running.end()
    assert (code, ending.outcome, ending.reason) == (3, EndingOutcome.FAILED, want)
    assert says in ending.message


def test_a_worker_that_cannot_be_imported(place: Path, secret: Secret) -> None:
    roles = [
        {"name": "actor", "type": "Actor"},
        {"name": "reward", "type": "Rule", "worker": {"className": "no_such_package.judges:Judge"}},
        {"name": "reference", "type": "Reference"},
    ]
    write_job(place, roles=roles)
    with service(place, secret) as running:
        code, ending = running.end()
    assert (code, ending.reason) == (3, ConditionReason.WORKER_IMPORT_FAILED)
    assert "ModuleNotFoundError: No module named 'no_such_package'" in ending.message
    assert ending.message.splitlines()[-1].startswith("The worker image must contain it")


def test_the_same_bug_of_the_control_flow_in_two_pods_is_the_end(place: Path, secret: Secret) -> None:
    (place / "buggy_flow.py").write_text(
        "from rlhf_runtime.algorithms.grpo import GRPOController\n"
        "class Flow(GRPOController):\n"
        "    def _build_dag(self):\n"
        "        return super()._build_dag() if self.iteration < 2 else {}['reward']\n",
        encoding="utf-8",
    )
    algorithm = {
        "name": "Custom",
        "totalSteps": 5,
        "custom": {"controllerClass": "buggy_flow:Flow"},
        "grpo": {"promptsPerStep": 4, "groupSize": 2},
        "generation": {"maxNewTokens": 4},
    }
    write_job(place, algorithm=algorithm)
    with service(place, secret) as first:
        code, ending = first.end()
    assert (code, ending.outcome) == (1, EndingOutcome.INTERRUPTED), ending.message
    assert "KeyError: 'reward'" in ending.message
    with service(place, secret) as second:
        code, ending = second.end()
    assert (code, ending.outcome, ending.reason) == (3, EndingOutcome.FAILED, ConditionReason.REPEATED_EXCEPTION)
    assert ending.progress is not None and ending.progress.step == 2
