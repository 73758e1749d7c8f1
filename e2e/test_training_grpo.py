"""GRPO with a rule for a reward, in two replicas, driven by the `rlhf` command as a researcher would."""

from collections.abc import Iterator

import pytest

from e2e.jobs import EXAMPLES, Job
from e2e.lab import Lab
from e2e.operator import Operator
from e2e.rlhf import rlhf

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

TRAIN_SECONDS = 900


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    said = rlhf(module_lab, "submit", str(EXAMPLES / "grpo-spelling.yaml"))
    assert "RLHFJob/grpo-spelling created" in said and "rlhf status grpo-spelling --watch" in said
    yield Job(module_lab, "grpo-spelling")
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


def test_both_replicas_of_the_reward_score_every_step(job: Job) -> None:
    job.wait_step(3)
    for name in ("reward-worker-000", "reward-worker-001"):
        texts = [job.lab.kubectl("logs", pod["metadata"]["name"], "--tail=-1") for pod in job.pods("reward")]
        assert sum(f"{name} compute_scores" in text for text in texts) == 1, texts
    assert "step" in rlhf(job.lab, "logs", job.name, "--role", "reward", "--tail", "4")


def test_a_role_is_restarted_by_hand_alone_and_it_is_not_counted(job: Job) -> None:
    before = job.uids("actor", "reward", "reference")
    rlhf(job.lab, "restart", job.name, "reference", timeout=180)
    row = job.role("reference")
    assert row["uncountedRestarts"] >= 1 and row.get("restarts", 0) == 0
    assert job.uids("actor", "reward", "reference") == before
    job.wait_step(job.step + 2)


def test_it_completes_and_has_learned(job: Job) -> None:
    job.wait("Complete", timeout=TRAIN_SECONDS)
    assert float(job.status["progress"]["evaluation"]) >= 0.85
    assert "grpo-spelling" in rlhf(job.lab, "status")
