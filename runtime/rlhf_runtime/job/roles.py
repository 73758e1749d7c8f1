"""The manifest's roles as the runtime's: which worker class computes for each, and with which settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlhf_api.accelerators import gpus_of
from rlhf_api.enums import AlgorithmName, Precision, RoleType, RolloutEngine, WeightSync
from rlhf_api.quantity import parse_quantity
from rlhf_api.types import VLLM, LoRA, RLHFJob
from rlhf_api.types.algorithm import GRPO, PPO, Optimizer
from rlhf_api.types.roles import AUTO
from rlhf_api.types.roles import Role as RoleSpec
from rlhf_runtime.algorithms.on_policy import FlowSettings
from rlhf_runtime.engines.adapters import LoRASettings
from rlhf_runtime.engines.rollout import VLLMSettings
from rlhf_runtime.engines.trained import ShardingConfig
from rlhf_runtime.engines.training import ActorUpdateConfig, CriticUpdateConfig, OptimizerConfig
from rlhf_runtime.job.prepare import Prepared, UnsupportedError, model_source
from rlhf_runtime.job.reporter import Reporter
from rlhf_runtime.job.spread import Spread, spread_of
from rlhf_runtime.role import Role
from rlhf_runtime.workers.actor import ActorSettings, AdvantageSettings
from rlhf_runtime.workers.critic import CriticSettings
from rlhf_runtime.workers.generating import GenerationSettings

_WORKERS = {
    RoleType.ACTOR: "rlhf_runtime.workers.actor:ActorWorker",
    RoleType.CRITIC: "rlhf_runtime.workers.critic:CriticWorker",
    RoleType.REWARD: "rlhf_runtime.workers.reward:RewardWorker",
    RoleType.REFERENCE: "rlhf_runtime.workers.reference:ReferenceWorker",
    RoleType.ROLLOUT: "rlhf_runtime.workers.rollout:RolloutWorker",
    RoleType.RULE: "rlhf_runtime.workers.rule:RuleWorker",
}
_WEIGHT_SYNCS = {
    WeightSync.AUTO: "objects",
    WeightSync.OBJECT_STORE: "objects",
    WeightSync.STATE_STORE: "state",
    WeightSync.COLLECTIVE: "collective",
}
_VLLM_TEMPERATURE = 2.0  # vLLM takes no more
_ENGINES = {
    RolloutEngine.AUTO: "auto",
    RolloutEngine.CACHED: "cached",
    RolloutEngine.HUGGING_FACE: "transformers",
    RolloutEngine.VLLM: "vllm",
}


def make_roles(job: RLHFJob, prepared: Prepared, reporter: Reporter, *, accelerators: bool = True) -> list[Role]:
    """The runtime's roles, in an order in which they can be registered.

    Args:
        job: The manifest.
        prepared: Its data and models.
        reporter: Told of models that a role has for itself.
        accelerators: Whether those that the roles ask for are there.

    Raises:
        UnsupportedError: A role asks for something that this version does not do.
        RlhfError: A role's own model cannot be had.
    """
    roles = []
    for index, spec in enumerate(job.spec.roles):
        field = f"spec.roles[{index}]"
        _refuse_unsupported(job, spec, field)
        spread = spread_of(spec, field, accelerators=accelerators)
        _check_ranks(job, spread, field)
        policy = spec.restart_policy
        roles.append(
            Role(
                name=spec.name,
                role_type=spec.type.value,
                worker_class=spec.worker.class_name if spec.worker.class_name != AUTO else _WORKERS[spec.type],
                init_kwargs=_arguments(job, spec, prepared, reporter, spread.sharding),
                replicas=spread.workers,
                process_group=spread.engine is not None,
                threads=max(1, threads_of(spec) // spread.per_pod),
                gpus=gpus_of(spec.resources) // spread.per_pod,
                per_pod=spread.per_pod,
                colocate_with=spec.colocate_with,
                max_restarts=policy.max_restarts,
                method_timeout=float(policy.method_timeout_seconds),
                start_timeout=float(policy.start_timeout_seconds),
            )
        )
    return sorted(roles, key=lambda role: role.colocate_with is not None)


def flow_settings(job: RLHFJob) -> FlowSettings:
    """What the control flow of PPO or GRPO must know; for a custom one the same, with one prompt per step."""
    spec = job.spec

    def names(*types: RoleType) -> tuple[str, ...]:
        return tuple(role.name for kind in types for role in spec.roles_of(kind))

    settings = hyperparameters(job)
    return FlowSettings(
        prompts_per_step=settings.prompts_per_step if settings else 1,
        samples_per_prompt=settings.group_size if isinstance(settings, GRPO) else 1,
        seed=spec.algorithm.seed,
        actor=(names(RoleType.ACTOR) or ("actor",))[0],
        critic=next(iter(names(RoleType.CRITIC)), None),
        reference=next(iter(names(RoleType.REFERENCE)), None),
        rollout=next(iter(names(RoleType.ROLLOUT)), None),
        rewards=names(RoleType.REWARD, RoleType.RULE),
        recomputes_log_probs=bool(names(RoleType.ROLLOUT))
        or any(_may_use_vllm(role) for role in spec.roles_of(RoleType.ACTOR)),
    )


def hyperparameters(job: RLHFJob) -> PPO | GRPO | None:
    """The section of the algorithm that the job names; None for a custom one."""
    algorithm = job.spec.algorithm
    if algorithm.name is AlgorithmName.PPO:
        return algorithm.ppo or PPO()
    if algorithm.name is AlgorithmName.GRPO:
        return algorithm.grpo or GRPO()
    return algorithm.ppo or algorithm.grpo


def threads_of(spec: RoleSpec) -> int:
    """CPU threads of the role's process: its CPUs, whole ones, at least one."""
    return max(1, math.floor(parse_quantity(spec.resources.cpu))) if spec.resources.cpu else 1


def _arguments(
    job: RLHFJob,
    spec: RoleSpec,
    prepared: Prepared,
    reporter: Reporter,
    sharding: ShardingConfig | None,
) -> Mapping[str, Any]:
    given: dict[str, Any] = dict(spec.worker.arguments)
    if spec.type is RoleType.RULE:
        if spec.worker.class_name != AUTO:
            return given
        function = spec.worker.function or prepared.task.scorer
        return {"function": function, "arguments": given}
    if spec.worker.class_name != AUTO:
        return given
    owner = spec
    if spec.type is RoleType.ROLLOUT:  # it generates with the actor's weights
        owner = next(iter(job.spec.roles_of(RoleType.ACTOR)), spec)
    where = f"spec.roles[{job.spec.roles.index(owner)}].model" if owner.model else "spec.model"
    source = model_source(owner.model, prepared.task, reporter, field=where) if owner.model else prepared.policy
    common = {"model": source, "model_field": where, **given}
    if spec.type is RoleType.ACTOR:
        return common | {"settings": actor_settings(job, spec, sharding)}
    if spec.type is RoleType.CRITIC:
        return common | {"settings": critic_settings(job, spec, sharding)}
    if spec.engine.precision is Precision.BFLOAT16:
        common |= {"dtype": "bfloat16"}
    if spec.type is RoleType.ROLLOUT:
        return common | {"settings": generation_settings(job, spec)}
    common |= {"max_tokens": spec.engine.max_tokens_per_pass}
    if spec.type is RoleType.REWARD:
        trained = source if spec.model is not None and spec.model.builtin is None else prepared.reward_model()
        return common | {"model": trained, "tokenizer": prepared.policy}
    return common


def actor_settings(job: RLHFJob, spec: RoleSpec, sharding: ShardingConfig | None = None) -> ActorSettings:
    """The actor's settings from the manifest's hyperparameters."""
    settings = hyperparameters(job) or PPO()
    through = [role.engine.weight_sync for role in job.spec.roles_of(RoleType.ROLLOUT)]
    generation = generation_settings(job, spec)
    if through and spec.engine.rollout is RolloutEngine.AUTO:
        generation = replace(generation, engine="cached")  # it never generates: no vLLM is started for it
    grouped = isinstance(settings, GRPO)
    return ActorSettings(
        generation=generation,
        optimizer=_optimizer(settings.optimizer, settings.actor_learning_rate),
        update=ActorUpdateConfig(
            epochs=settings.epochs,
            minibatches=settings.mini_batches,
            max_grad_norm=settings.optimizer.max_grad_norm,
            max_tokens=spec.engine.max_tokens_per_pass,
            clip_range=settings.clip_range,
            kl_coefficient=settings.kl_coefficient if grouped else 0.0,
            entropy_coefficient=settings.entropy_coefficient,
        ),
        advantages=_advantages(settings),
        sharding=sharding,
        lora=_lora(spec.engine.lora),
        weight_sync=_WEIGHT_SYNCS[through[0]] if through else "objects",
    )


def generation_settings(job: RLHFJob, spec: RoleSpec) -> GenerationSettings:
    """How a role generates."""
    settings, generation = hyperparameters(job), job.spec.algorithm.generation
    return GenerationSettings(
        max_new_tokens=generation.max_new_tokens,
        temperature=generation.temperature,
        samples_per_prompt=settings.group_size if isinstance(settings, GRPO) else 1,
        engine=_ENGINES[spec.engine.rollout],
        vllm=vllm_settings(spec.engine.vllm or VLLM()),
        max_log_prob_difference=generation.max_log_prob_difference,
    )


def critic_settings(job: RLHFJob, spec: RoleSpec, sharding: ShardingConfig | None = None) -> CriticSettings:
    """The critic's settings from PPO's hyperparameters."""
    ppo = job.spec.algorithm.ppo or PPO()
    return CriticSettings(
        optimizer=_optimizer(ppo.optimizer, ppo.critic_learning_rate),
        update=CriticUpdateConfig(
            epochs=ppo.epochs,
            minibatches=ppo.mini_batches,
            max_grad_norm=ppo.optimizer.max_grad_norm,
            max_tokens=spec.engine.max_tokens_per_pass,
            clip_range=ppo.value_clip_range,
        ),
        sharding=sharding,
        lora=_lora(spec.engine.lora),
    )


def _lora(spec: LoRA | None) -> LoRASettings | None:
    if spec is None:
        return None
    return LoRASettings(rank=spec.rank, alpha=spec.alpha, target_modules=tuple(spec.target_modules))


def vllm_settings(spec: VLLM) -> VLLMSettings:
    """The manifest's options of vLLM as the engine's."""
    return VLLMSettings(
        gpu_memory_share=spec.accelerator_memory_percent / 100,
        cpu_kv_cache_gib=math.ceil(parse_quantity(spec.cpu_cache_memory) / 1024**3),
        tensor_parallel_size=spec.tensor_parallel_size,
        max_model_length=spec.max_model_length or 0,
        max_sequences=spec.max_sequences,
        sleep=spec.sleep,
    )


def rollout_engine_of(spec: RoleSpec, picked: Mapping[str, str]) -> RolloutEngine | None:
    """What generates in a role, given what its worker says that it has picked; None: nothing, or not known yet."""
    if spec.type not in (RoleType.ACTOR, RoleType.ROLLOUT):
        return None
    if spec.engine.rollout is not RolloutEngine.AUTO:
        return spec.engine.rollout
    return next((engine for engine, name in _ENGINES.items() if name == picked.get("rollout")), None)


def _may_use_vllm(spec: RoleSpec) -> bool:
    """Whether another engine than the actor's own may generate; what `Auto` picks is known in the process only."""
    engine = spec.engine.rollout
    return engine is RolloutEngine.VLLM or (engine is RolloutEngine.AUTO and gpus_of(spec.resources) > 0)


def _advantages(settings: PPO | GRPO) -> AdvantageSettings:
    if isinstance(settings, GRPO):
        return AdvantageSettings(group_size=settings.group_size)
    return AdvantageSettings(
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        kl_coefficient=settings.kl_coefficient,
        whiten=settings.whiten_advantages,
    )


def _optimizer(spec: Optimizer, learning_rate: float) -> OptimizerConfig:
    return OptimizerConfig(learning_rate=learning_rate, betas=(spec.beta1, spec.beta2), weight_decay=spec.weight_decay)


def _check_ranks(job: RLHFJob, spread: Spread, field: str) -> None:
    settings = hyperparameters(job)
    if settings is None or spread.engine is None:
        return
    samples = settings.prompts_per_step * (settings.group_size if isinstance(settings, GRPO) else 1)
    if spread.workers > samples:
        raise UnsupportedError(
            f"`{field}` has {spread.workers} ranks (`podsPerReplica` times its accelerators), more than a step's "
            f"{samples} samples: each rank must have one"
        )


def _refuse_unsupported(job: RLHFJob, spec: RoleSpec, field: str) -> None:
    """This version says so, and does not train with something else than was asked for."""
    if spec.type is RoleType.ROLLOUT and spec.model is not None:
        raise UnsupportedError(f"`{field}.model` must not be set: a Rollout role generates with the Actor's weights")
    if spec.type is RoleType.ROLLOUT and spec is not job.spec.roles_of(RoleType.ROLLOUT)[0]:
        raise UnsupportedError(f"`{field}.type` must not be Rollout twice: give the first one more `replicas`")
    if spec.pods_per_replica > 1 and not spec.type.trains:
        raise UnsupportedError(
            f"`{field}.podsPerReplica` must be 1: only an Actor or Critic is spread over several pods; "
            "give the role more `replicas`"
        )
    temperature = job.spec.algorithm.generation.temperature
    if spec.engine.rollout is RolloutEngine.VLLM and temperature > _VLLM_TEMPERATURE:
        raise UnsupportedError(
            f"`spec.algorithm.generation.temperature` must be at most {_VLLM_TEMPERATURE:g} with "
            f"`{field}.engine.rollout` VLLM, not {temperature:g}"
        )
