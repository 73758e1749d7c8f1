"""A job's life: suspend and resume, change while it trains, deadlines, the time after the end, and deletion."""

import json
import re
from collections.abc import Iterator

import pytest

from e2e.jobs import Job, apply, quick
from e2e.lab import Lab
from e2e.operator import Operator

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


def test_a_change_of_one_role_rolls_that_role_alone_and_is_not_counted(job: Job) -> None:
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
    _patch(job, _on_role(job, "reward", "replicas", 2))
    job.wait_for("two rewards take part", lambda status: _role(status, "reward").get("ready") == 2)
    job.wait_step(job.step + 3)
    _patch(job, _on_role(job, "reward", "replicas", 1))
    job.wait_for("one reward pod is left", lambda _: len(job.pods("reward")) == 1)
    job.wait_step(job.step + 3)
    assert job.uids("actor", "reference", "head", "controller") == before
    assert [role.get("restarts", 0) for role in job.status["roles"]] == [0, 0, 0]


def test_suspend_frees_every_pod_and_resume_goes_on_from_that_step(job: Job) -> None:
    job.suspend(True)
    job.wait("Suspended", timeout=120)
    assert job.all_pods() == []
    done = job.step
    assert done > 5
    job.suspend(False)
    job.wait_step(done + 1)
    first = re.search(r"[Gg]oing on after step (\d+)", job.logs("controller"))
    assert first and int(first.group(1)) >= done, job.logs("controller")[-2000:]
    assert job.condition("Suspended")["status"] == "False"


def test_a_job_is_deleted_whole_also_while_the_operator_is_down(job: Job, operator: Operator) -> None:
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


def test_a_job_that_runs_too_long_fails_and_frees_its_gpus(operator: Operator, lab: Lab) -> None:
    job = apply(lab, quick("late", steps=5000, activeDeadlineSeconds=20))
    message = job.wait("Failed", reason="DeadlineExceeded")
    assert "activeDeadlineSeconds" in message
    lab.wait("no role pod is left", lambda: not job.pods("actor"), timeout=60)


def test_a_finished_job_is_deleted_after_its_time(operator: Operator, lab: Lab) -> None:
    job = apply(lab, quick("short", steps=2, ttlSecondsAfterFinished=10))
    job.wait("Complete")
    lab.wait("the job is gone", lambda: lab.find("rlhfjob", job.name) is None, timeout=60)


def _patch(job: Job, patch: str) -> None:
    job.lab.kubectl("patch", "rlhfjob", job.name, "--type=json", f"--patch={patch}")


def _on_role(job: Job, role: str, field: str, value: object) -> str:
    index = [item["name"] for item in job.get()["spec"]["roles"]].index(role)
    return json.dumps([{"op": "add", "path": f"/spec/roles/{index}/{field}", "value": value}])


def _new(job: Job, role: str, before: dict[str, list[str]]) -> bool:
    now = job.uids(role)[role]
    return bool(now) and not set(now) & set(before[role])


def _role(status: dict[str, list[dict[str, object]]], name: str) -> dict[str, object]:
    return next((role for role in status.get("roles", []) if role["name"] == name), {})
