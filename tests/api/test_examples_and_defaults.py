import re
from pathlib import Path

import pytest
from manifest_cases import CUSTOM, GRPO, PPO, Case

from rlhf_api import types
from rlhf_api.accelerators import gpus_of
from rlhf_api.enums import AlgorithmName, RoleType, Schedule
from rlhf_api.types import RLHFJob
from rlhf_api.validation import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> RLHFJob:
    path = EXAMPLES / f"{name}.yaml"
    return load_job(path.read_text(encoding="utf-8"), source=str(path))


def job(manifest: dict[str, object]) -> RLHFJob:
    return load_job(Case(id="", base=manifest).text, source="job.yaml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_valid_and_named_after_its_file(path: Path) -> None:
    assert example(path.stem).name == path.stem


def test_every_example_is_in_the_list_of_examples() -> None:
    listed = re.findall(r"^\| \[(.*?)\]\(\1\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_says_what_it_shows_and_names_pools_that_the_cluster_for_trying_has(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert max(len(line) for line in text.splitlines()) <= 120
    pools = {role.name: role.node_pool.node_selector for role in example(path.stem).spec.roles if role.node_pool}
    wanted = {"pool": "cpu"}, {"pool": "gpu-a"}, {"pool": "gpu-b"}
    assert pools and all(selector in wanted for selector in pools.values())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_role_of_an_example_asks_for_a_gpu_where_its_pool_has_them(path: Path) -> None:
    """GPU nodes are tainted, and the operator tolerates that for pods that ask for a GPU."""
    for role in example(path.stem).spec.roles:
        if role.node_pool:
            on_gpus = role.node_pool.node_selector["pool"].startswith("gpu")
            assert (gpus_of(role.resources) > 0) == on_gpus, role.name


def test_the_ppo_example_is_short_and_has_four_roles_on_three_pools() -> None:
    found = example("ppo-spelling")
    assert [role.type for role in found.spec.roles] == ["Actor", "Critic", "Reward", "Reference"]
    pools = [role.node_pool.node_selector["pool"] for role in found.spec.roles if role.node_pool]
    assert pools == ["gpu-a", "gpu-b", "cpu", "gpu-a"]
    assert len((EXAMPLES / "ppo-spelling.yaml").read_text(encoding="utf-8").splitlines()) < 45


def test_the_grpo_example_scores_with_the_verifier_and_has_no_critic() -> None:
    found = example("grpo-spelling")
    assert [role.type for role in found.spec.roles] == ["Actor", "Rule", "Reference"]
    assert found.spec.role("reward").worker.class_name == types.AUTO
    assert found.spec.role("reward").replicas == 2


def test_ppo_defaults_are_those_that_learn() -> None:
    assert job(PPO).spec.algorithm.parameters == types.PPO(
        prompts_per_step=256,
        epochs=2,
        mini_batches=2,
        actor_learning_rate=2e-4,
        critic_learning_rate=1e-3,
        clip_range=0.2,
        value_clip_range=0.2,
        gamma=1,
        gae_lambda=0.95,
        kl_coefficient=0.05,
        entropy_coefficient=0,
        whiten_advantages=True,
        optimizer=types.Optimizer(beta1=0.9, beta2=0.95, weight_decay=0, max_grad_norm=1),
    )


def test_grpo_defaults_are_those_that_learn() -> None:
    assert job(GRPO).spec.algorithm.parameters == types.GRPO(
        prompts_per_step=64,
        group_size=8,
        epochs=1,
        mini_batches=2,
        actor_learning_rate=1e-4,
        clip_range=0.2,
        kl_coefficient=0.05,
        entropy_coefficient=0,
    )


def test_parameters_of_a_custom_algorithm_are_its_own() -> None:
    found = job(CUSTOM).spec.algorithm
    assert found.name == AlgorithmName.CUSTOM
    assert isinstance(found.parameters, types.CustomAlgorithm)
    assert not found.needs_reference


def test_a_job_that_says_nothing_else_runs_in_step_and_is_evaluated_at_both_ends() -> None:
    spec = job(PPO).spec
    assert spec.algorithm.schedule == Schedule.SYNCHRONOUS
    assert spec.algorithm.evaluation.every_steps == 0
    assert (spec.state.snapshot_every_steps, spec.state.keep) == (10, 3)
    assert not spec.suspend


def test_roles_are_found_by_name_and_type() -> None:
    spec = job(PPO).spec
    assert spec.role("critic").type == RoleType.CRITIC
    assert [role.name for role in spec.roles_of(RoleType.ACTOR)] == ["actor"]
    with pytest.raises(KeyError):
        spec.role("nobody")


def test_an_object_is_read_as_the_api_server_gives_it() -> None:
    found = RLHFJob.model_validate(
        PPO
        | {
            "metadata": {
                "name": "job",
                "namespace": "team",
                "uid": "6f1d",
                "resourceVersion": "12",
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
            },
            "status": {
                "summary": "Training",
                "rolesReady": "4/4",
                "conditions": [
                    {
                        "type": "Running",
                        "status": "True",
                        "reason": "Training",
                        "message": "step 12 of 40",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ],
                "roles": [{"name": "critic", "restarts": 1, "lastFailure": {"reason": "HostOutOfMemory"}}],
                "progress": {"step": 12, "totalSteps": 40, "reward": "0.81"},
            },
        }
    )
    assert found.metadata.generation == 3
    assert found.status is not None
    assert found.status.progress is not None
    assert found.status.progress.step == 12
