"""What `engine` in a manifest becomes in the workers' settings: nothing is taken and ignored."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rlhf_api.enums import RolloutEngine
from rlhf_api.types import RLHFJob
from rlhf_runtime.engines.adapters import LoRASettings
from rlhf_runtime.engines.rollout import VLLMSettings
from rlhf_runtime.engines.trained import ShardingConfig
from rlhf_runtime.job.roles import actor_settings, flow_settings, make_roles, rollout_engine_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml"
PREPARED: Any = SimpleNamespace(policy="policy", reward_model=lambda: "reward", task=SimpleNamespace(scorer="a:b"))


def job_with(role: str, engine: dict[str, Any], accelerators: int = 0) -> RLHFJob:
    manifest = yaml.safe_load(EXAMPLE.read_text())
    (found,) = [one for one in manifest["spec"]["roles"] if one["name"] == role]
    found |= {"engine": engine, "resources": {"cpu": "1", "accelerators": {"count": accelerators}}}
    return RLHFJob.model_validate(manifest)


def arguments_of(role: str, engine: dict[str, Any]) -> Any:
    roles = make_roles(job_with(role, engine), PREPARED, None)  # type: ignore[arg-type]
    return next(one for one in roles if one.name == role).init_kwargs


@pytest.mark.parametrize("role", ["actor", "critic"])
def test_what_trains_gets_all_of_it(role: str) -> None:
    engine = {
        "precision": "BFloat16",
        "checkpointActivations": True,
        "maxTokensPerPass": 512,
        "lora": {"rank": 4, "alpha": 6, "targetModules": ["q_proj"]},
    }
    settings = arguments_of(role, engine)["settings"]
    assert settings.update.max_tokens == 512
    assert settings.lora == LoRASettings(rank=4, alpha=6, target_modules=("q_proj",))
    assert settings.sharding == ShardingConfig(compute_dtype="bfloat16", checkpoint_activations=True)
    plain = arguments_of(role, {})["settings"]
    assert (plain.update.max_tokens, plain.lora, plain.sharding) == (16_384, None, None)


@pytest.mark.parametrize("role", ["reward", "reference"])
def test_what_only_computes_gets_precision_and_the_size_of_a_pass(role: str) -> None:
    arguments = arguments_of(role, {"precision": "BFloat16", "maxTokensPerPass": 512})
    assert (arguments["dtype"], arguments["max_tokens"]) == ("bfloat16", 512)


def test_vllm_gets_its_options() -> None:
    options = {
        "acceleratorMemoryPercent": 40,
        "cpuCacheMemory": "1500Mi",
        "maxModelLength": 99,
        "maxSequences": 7,
        "sleep": False,
    }
    generation = arguments_of("actor", {"rollout": "VLLM", "vllm": options})["settings"].generation
    assert generation.engine == "vllm"
    assert generation.vllm == VLLMSettings(
        gpu_memory_share=0.4, cpu_kv_cache_gib=2, max_model_length=99, max_sequences=7, sleep=False
    )


@pytest.mark.parametrize(
    ("engine", "accelerators", "want"),
    [("Cached", 1, False), ("HuggingFace", 1, False), ("Auto", 0, False), ("Auto", 1, True), ("VLLM", 0, True)],
)
def test_log_probs_are_computed_again_where_vllm_may_generate(engine: str, accelerators: int, want: bool) -> None:
    flow = flow_settings(job_with("actor", {"rollout": engine}, accelerators))
    assert flow.recomputes_log_probs is want


def test_an_actor_beside_a_rollout_role_starts_no_engine_of_its_own() -> None:
    job = job_with("actor", {}, accelerators=1)
    assert actor_settings(job, job.spec.role("actor")).generation.engine == "auto"
    manifest = job.model_dump(by_alias=True, exclude_unset=True, mode="json")
    manifest["spec"]["roles"].append({"name": "rollout", "type": "Rollout", "engine": {"weightSync": "StateStore"}})
    beside = RLHFJob.model_validate(manifest)
    settings = actor_settings(beside, beside.spec.role("actor"))
    assert (settings.generation.engine, settings.weight_sync) == ("cached", "state")
    assert flow_settings(beside).rollout == "rollout"


def test_what_auto_stands_for_is_what_the_worker_says() -> None:
    actor = job_with("actor", {}).spec.role("actor")
    assert rollout_engine_of(actor, {}) is None
    assert rollout_engine_of(actor, {"rollout": "cached"}) is RolloutEngine.CACHED
    assert rollout_engine_of(actor, {"rollout": "vllm"}) is RolloutEngine.VLLM
    assert rollout_engine_of(job_with("critic", {}).spec.role("critic"), {"rollout": "cached"}) is None
