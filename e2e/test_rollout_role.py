"""Two pods train one model, two others generate with its weights (vLLM), and one of these may go at any time."""

from collections.abc import Iterator

import pytest

from e2e.jobs import QUICK_MODEL, Job, apply, example
from e2e.lab import Lab
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

OTHERS = ("actor", "reward", "reference", "head", "controller")


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    job = apply(module_lab, example("grpo-rollout-role", algorithm={"totalSteps": 5000}, model=QUICK_MODEL))
    job.wait_step(2)
    yield job
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


def test_the_status_says_what_trains_and_what_generates(job: Job) -> None:
    assert job.status["rolesReady"] == "4/4"
    assert job.role("actor")["trainingEngine"] == "FSDP2"
    assert job.role("rollout")["rolloutEngine"] == "VLLM"
    assert len({pod["spec"]["nodeName"] for pod in job.pods("actor")}) == 2
    logs = [job.lab.kubectl("logs", pod["metadata"]["name"]) for pod in job.pods("rollout")]
    assert len(logs) == 2
    assert all(", rollout vllm" in log and " generate " in log for log in logs)


def test_the_loss_of_a_replica_holds_up_nobody(job: Job) -> None:
    before, replicas = job.uids(*OTHERS), job.uids("rollout")["rollout"]
    lost = job.pods("rollout")[0]["metadata"]
    step = job.step
    job.lab.kubectl("delete", "pod", lost["name"], "--wait=false")
    job.wait_step(step + 5, timeout=120)
    job.lab.wait(
        "the replica is replaced, the other kept",
        lambda: len(now := job.uids("rollout")["rollout"]) == 2 and len(set(now) & set(replicas)) == 1,
        timeout=180,
    )
    job.lab.wait("all replicas generate again", lambda: job.status["rolesReady"] == "4/4", timeout=240)
    assert job.uids(*OTHERS) == before
    job.wait_step(job.step + 3, timeout=120)
