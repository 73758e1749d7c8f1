"""A job's life: suspend and resume, change while it trains, deadlines, the time after the end, and deletion.

Some of it is asked for with kubectl, some with `rlhf`, whose waiting is tested by looking at once when it has ended.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.jobs import START_SECONDS, Job, apply, quick, with_role
from e2e.lab import Lab
from e2e.manifests import GPU_TOLERATION
from e2e.operator import Operator
from e2e.rlhf import Running, rlhf, running

pytestmark = pytest.mark.timeout(900)

ROLES = ("actor", "reward", "reference")
GONE_SECONDS = 90


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    """A job that trains for longer than the tests take."""
    job = apply(module_lab, quick("long", steps=5000))
    job.wait_step(2)
    yield job
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


@pytest.fixture(scope="module")
def watch(job: Job, module_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`rlhf status --watch` of that job, until it is deleted."""
    with running(module_lab, tmp_path_factory.mktemp("watch"), "status", job.name, "--watch") as watch:
        yield watch


def test_a_change_of_one_role_rolls_that_role_alone_and_is_not_counted(job: Job, watch: Running) -> None:
    before = job.uids(*ROLES, "head", "controller")
    _patch(job, _on_role(job, "reference", "pod", {"env": [{"name": "NOTE", "value": "changed"}]}))
    job.wait_for("reference has a new pod", lambda _: _new(job, "reference", before))
    step = job.step
    job.wait_step(step + 3)
    after = job.uids(*ROLES, "head", "controller")
    assert {role: after[role] == before[role] for role in before} == {role: role != "reference" for role in before}
    assert {role["name"]: role.get("restarts", 0) for role in job.status["roles"]} == dict.fromkeys(ROLES, 0)


def test_scaling_a_role_while_training_adds_and_removes_its_pods_alone(job: Job) -> None:
    before = job.uids("actor", "reference", "head", "controller")
    assert "from 1 to 2" in rlhf(job.lab, "scale", job.name, "reward", "2", "--wait", timeout=START_SECONDS)
    assert job.role("reward")["ready"] == 2
    job.wait_step(job.step + 3)
    _patch(job, _on_role(job, "reward", "replicas", 1))
    job.wait_for("one reward pod is left", lambda _: len(job.pods("reward")) == 1)
    job.wait_step(job.step + 3)
    assert job.uids("actor", "reference", "head", "controller") == before
    assert [role.get("restarts", 0) for role in job.status["roles"]] == [0, 0, 0]


def test_suspend_frees_every_pod_and_resume_goes_on_from_that_step(job: Job) -> None:
    rlhf(job.lab, "suspend", job.name, "--wait", timeout=150)
    assert job.condition("Suspended")["status"] == "True"
    assert job.all_pods() == []
    done = job.step
    assert done > 5
    rlhf(job.lab, "resume", job.name, "--wait", timeout=START_SECONDS)
    assert job.condition("Running")["status"] == "True"
    assert job.condition("Suspended")["status"] == "False"
    job.wait_step(done + 1)
    first = re.search(r"[Gg]oing on after step (\d+)", job.logs("controller"))
    assert first and int(first.group(1)) >= done, job.logs("controller")[-2000:]


def test_a_job_is_deleted_whole_also_while_the_operator_is_down(job: Job, watch: Running, operator: Operator) -> None:
    operator.scale(0)
    try:
        job.lab.kubectl("delete", "rlhfjob", job.name, "--wait=true", "--timeout=30s")
        kinds = "pods,jobs.batch,rayclusters,services,configmaps,secrets,persistentvolumeclaims,networkpolicies"
        selector = f"--selector=rlhf.dev/job={job.name}"
        job.lab.wait(
            "nothing is left",
            lambda: not job.lab.kubectl("get", kinds, selector, "--output=name").strip(),
            timeout=GONE_SECONDS,
        )
    finally:
        operator.scale(1)
    assert watch.ended() == 1
    states = re.findall(r"^\S+ +(\w+) +step ", watch.text, re.MULTILINE)
    assert {"Training", "Suspended"} <= set(states), watch.text
    assert "deleted" in watch.text.splitlines()[-1]


def test_a_job_that_runs_too_long_fails_and_frees_its_gpus(operator: Operator, lab: Lab) -> None:
    job = apply(lab, quick("late", steps=5000, activeDeadlineSeconds=20))
    message = job.wait("Failed", reason="DeadlineExceeded")
    assert "activeDeadlineSeconds" in message
    lab.wait("no role pod is left", lambda: not job.pods("actor"), timeout=60)
    assert "RLHFJob/late is gone" in rlhf(lab, "delete", job.name, "--yes", "--wait")
    assert lab.find("rlhfjob", job.name) is None
    assert job.all_pods() == []


def test_jobs_of_one_name_in_two_namespaces_complete_and_one_goes_after_its_time(
    operator: Operator, lab: Lab, second_lab: Lab, tmp_path: Path
) -> None:
    job = apply(lab, quick("short", steps=2, ttlSecondsAfterFinished=20))
    manifest = with_role(quick("short", steps=3), "reference", pod={"env": [{"name": "NOTE", "value": "ключ 😀"}]})
    # The one node for CPUs has no room for all pods of both that need no GPU.
    elsewhere = {"nodeSelector": {"pool": "gpu-a"}, "tolerations": [GPU_TOLERATION]}
    twin = apply(second_lab, with_role(manifest, "reward", nodePool=elsewhere))
    with (
        running(lab, tmp_path, "status", job.name, "--watch") as watch,
        running(lab, tmp_path, "logs", job.name, "--follow") as logs,
    ):
        assert (watch.ended(timeout=START_SECONDS), logs.ended()) == (0, 0), watch.text + logs.text
    assert "RLHFJob/short is complete" in watch.text
    assert re.search(r"\bstep 2/2\b", logs.text), logs.text
    lab.wait("the job is gone", lambda: lab.find("rlhfjob", job.name) is None, timeout=60)
    twin.wait("Complete")
    assert twin.step == 3
    assert [role.get("restarts", 0) for role in twin.status["roles"]] == [0, 0, 0]


def _patch(job: Job, patch: str) -> None:
    job.lab.kubectl("patch", "rlhfjob", job.name, "--type=json", f"--patch={patch}")


def _on_role(job: Job, role: str, field: str, value: object) -> str:
    index = [item["name"] for item in job.get()["spec"]["roles"]].index(role)
    return json.dumps([{"op": "add", "path": f"/spec/roles/{index}/{field}", "value": value}])


def _new(job: Job, role: str, before: dict[str, list[str]]) -> bool:
    now = job.uids(role)[role]
    return bool(now) and not set(now) & set(before[role])
