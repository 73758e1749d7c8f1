"""What is changed or deleted by hand is repaired, and nothing that happens to the operator harms a running job."""

from collections.abc import Iterator

import pytest

from e2e.cluster.api import is_ready
from e2e.jobs import Job, apply, quick
from e2e.lab import Lab
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

ROLES = ("actor", "reward", "reference")
EVERYTHING = (*ROLES, "head", "controller")


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    job = apply(module_lab, quick("robust", steps=5000))
    job.wait_step(2)
    yield job
    operator.install()
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


@pytest.mark.parametrize("kind", ["configmap", "service", "networkpolicy", "secret"])
def test_a_child_that_is_deleted_by_hand_comes_back(job: Job, kind: str) -> None:
    children = job.lab.get(kind, f"--selector=rlhf.dev/job={job.name}")["items"]
    assert children
    name, uid = children[0]["metadata"]["name"], children[0]["metadata"]["uid"]
    job.lab.kubectl("delete", kind, name)
    job.lab.wait(
        f"the {kind} is back",
        lambda: (found := job.lab.find(kind, name)) and found["metadata"]["uid"] != uid,
        timeout=330 if kind == "secret" else 30,  # secrets are not watched: the operator may not read them
    )


def test_a_ray_cluster_that_is_changed_by_hand_is_as_before(job: Job) -> None:
    before = job.uids(*EVERYTHING)
    patch = '[{"op": "replace", "path": "/spec/workerGroupSpecs/1/replicas", "value": 3}]'
    job.lab.kubectl("patch", "raycluster", job.name, "--type=json", f"--patch={patch}")

    def replicas() -> list[int]:
        groups = job.lab.get("raycluster", job.name)["spec"]["workerGroupSpecs"]
        return [group["replicas"] for group in groups]

    job.lab.wait("the number of pods is what the job says", lambda: replicas() == [1, 1, 1], timeout=30)
    job.lab.wait("no pod is left over", lambda: job.uids(*EVERYTHING) == before, timeout=60)


def test_a_job_trains_on_while_the_operator_is_away(job: Job, operator: Operator) -> None:
    before = job.uids(*EVERYTHING)
    step = job.step
    operator.scale(0)
    log = job.logs("controller")
    job.lab.wait("steps go on", lambda: len(job.logs("controller")) > len(log), timeout=60)
    operator.scale(1)
    job.wait_step(step + 3, timeout=90)
    assert job.uids(*EVERYTHING) == before


def test_an_upgrade_that_renders_pods_differently_leaves_running_jobs_alone(job: Job, operator: Operator) -> None:
    before = job.uids(*EVERYTHING)
    operator.install(worker={"image": {"tag": "next", "pullPolicy": "Always"}}, jobs={"networkPolicies": False})
    job.wait_step(job.step + 3, timeout=90)
    assert job.uids(*EVERYTHING) == before
    assert {p["spec"]["containers"][0]["image"] for p in job.pods("actor")} == {"localhost/rlhf-worker:dev"}


def test_uninstalling_leaves_running_jobs_alone(job: Job, operator: Operator) -> None:
    before = job.uids(*EVERYTHING)
    operator.uninstall()
    log = job.logs("controller")
    job.lab.wait("steps go on", lambda: len(job.logs("controller")) > len(log), timeout=60)
    assert job.uids(*EVERYTHING) == before
    operator.install()
    job.wait_step(job.step + 3, timeout=90)
    assert job.uids(*EVERYTHING) == before


def test_the_operator_goes_on_after_an_api_server_restart(job: Job, operator: Operator) -> None:
    before = job.uids(*EVERYTHING)
    job.lab.faults.restart_api_server()
    job.wait_step(job.step + 3, timeout=120)
    assert job.uids(*EVERYTHING) == before
    job.lab.wait("the operator is ready", lambda: all(is_ready(pod) for pod in operator.pods()), timeout=60)


def test_of_two_replicas_one_works_and_the_other_takes_over(job: Job, operator: Operator) -> None:
    operator.install(replicas=2)
    job.lab.wait("two are ready", lambda: sum(map(is_ready, operator.pods())) == 2, timeout=90)
    # The one before them has given up the lease when it was replaced.
    holder = job.lab.wait("one leads", operator.leader, timeout=60)
    operator.kubectl("delete", "pod", holder, "--grace-period=0", "--force")
    job.lab.wait("another leads", lambda: operator.leader() not in ("", holder), timeout=90)
    job.wait_step(job.step + 3, timeout=90)


def test_the_operator_never_asked_for_what_it_may_not_have(job: Job, operator: Operator) -> None:
    text = operator.logs()
    assert "forbidden" not in text.lower(), text[-3000:]
