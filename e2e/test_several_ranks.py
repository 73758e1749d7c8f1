"""A model that is trained by two pods on two nodes: one process group, one failure domain."""

from collections.abc import Iterator

import pytest

from e2e.jobs import Job, apply, quick, with_role
from e2e.lab import Lab
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

OTHERS = ("reward", "reference", "head", "controller")


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    manifest = with_role(quick("ranks", steps=5000), "actor", podsPerReplica=2)
    job = apply(module_lab, manifest)
    job.wait_step(2)
    yield job
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


def test_two_pods_on_two_nodes_train_one_model(job: Job) -> None:
    pods = job.pods("actor")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert job.status["rolesReady"] == "3/3"
    assert job.role("actor")["trainingEngine"] == "FSDP2"
    logs = [job.lab.kubectl("logs", pod["metadata"]["name"]) for pod in pods]
    updates = [[f"actor-worker-{rank:03d} update" in log for rank in range(2)] for log in logs]
    assert sorted(updates) == [[False, True], [True, False]], logs


def test_a_pod_that_is_deleted_is_replaced_and_nobody_elses(job: Job) -> None:
    before, actors = job.uids(*OTHERS), job.uids("actor")["actor"]
    lost = job.pods("actor")[1]["metadata"]
    step = job.step
    job.lab.kubectl("delete", "pod", lost["name"], "--wait=false")
    job.lab.wait(
        "the pod is replaced, the other kept",
        lambda: len(now := job.uids("actor")["actor"]) == 2 and len(set(now) & set(actors)) == 1,
        timeout=180,
    )
    job.wait_step(step + 10, timeout=180)
    assert job.uids(*OTHERS) == before
    assert lost["uid"] not in job.uids("actor")["actor"]
    status = job.role("actor")
    assert int(status.get("restarts", 0)) + int(status.get("uncountedRestarts", 0)) == 1, "the loss counts once"
