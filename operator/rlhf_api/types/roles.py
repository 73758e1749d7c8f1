"""`spec.roles`: the members of the job, each with its own nodes, processes and failure domain."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import (
    ExhaustedAction,
    RoleType,
)
from rlhf_api.names import DNS_1035_PATTERN, MAX_ROLE_NAME_LENGTH, RESERVED_ROLE_NAMES
from rlhf_api.types.base import ApiModel, Rule, Transition, immutable
from rlhf_api.types.container import Image
from rlhf_api.types.engine import EngineSpec
from rlhf_api.types.model import Model
from rlhf_api.types.pod import NodePool, PodOverlay, Resources
from rlhf_api.types.restart import RestartPolicy
from rlhf_api.types.scalars import IMPORT_PATH, IMPORT_PATH_OR_AUTO, Parameters

AUTO = "Auto"

RoleName = Annotated[str, Field(min_length=1, max_length=MAX_ROLE_NAME_LENGTH, pattern=DNS_1035_PATTERN)]


class WorkerSpec(ApiModel):
    """The code that a role runs."""

    class_name: str = Field(
        default=AUTO,
        min_length=1,
        max_length=253,
        pattern=IMPORT_PATH_OR_AUTO,
        description="`package.module:Class`. Auto: the worker of the role's type; for Rule the verifier.",
    )
    function: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=IMPORT_PATH,
        description="For a Rule role, a plain reward function as `package.module:function`.",
    )
    arguments: Parameters = Field(
        default_factory=dict, description="Arguments of the class or function: numbers, strings, booleans."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.__function__) || self.className == 'Auto'",  # a word of CEL, hence the underscores
            message="must not be set together with `className`",
            field="function",
            holds=lambda self: self.function is None or self.class_name == AUTO,
        ),
    )


class Role(ApiModel):
    """One member of the job: a worker group on nodes of its own, and one failure domain."""

    name: RoleName = Field(
        description="The role's name, also in pod names and labels; not head, headgroup or controller."
    )
    type: RoleType = Field(description="What the role does in the algorithm.")
    replicas: int = Field(default=1, ge=1, le=1024, description="Independent copies; always 1 for Actor and Critic.")
    pods_per_replica: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Pods over which one model is spread; the world size is pods times accelerators.",
    )
    resources: Resources = Field(default_factory=Resources, description="What each pod gets.")
    colocate_with: RoleName | None = Field(
        default=None, description="Another role, whose processes, pods, nodes and fate this one shares."
    )
    node_pool: NodePool | None = Field(default=None, description="The nodes of the role's pods.")
    image: Image | None = Field(default=None, description="Another image than the job's.")
    model: Model | None = Field(default=None, description="Another model than the job's.")
    worker: WorkerSpec = Field(default_factory=WorkerSpec, description="The code that the role runs.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="The engines inside the role.")
    pod: PodOverlay | None = Field(default=None, description="What the role's pods have besides.")
    restart_policy: RestartPolicy = Field(
        default_factory=RestartPolicy, description="What happens when a part of the role dies."
    )

    transitions: ClassVar[tuple[Transition, ...]] = immutable(
        "type", "pods_per_replica", "colocate_with", "model", "worker", "engine"
    )
    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_ROLE_NAMES)})",
            message="must not be head, headgroup or controller, which name other parts of the job",
            field="name",
            holds=lambda self: self.name not in RESERVED_ROLE_NAMES,
        ),
        Rule(
            cel="!(self.type in ['Actor', 'Critic']) || self.replicas == 1",
            message="must be 1 for an Actor or Critic; give it more pods with `podsPerReplica`",
            field="replicas",
            holds=lambda self: not self.type.trains or self.replicas == 1,
        ),
        Rule(
            cel="self.type != 'Custom' || self.worker.className != 'Auto'",
            message="must be `package.module:Class` when the role's `type` is Custom",
            field="worker.className",
            holds=lambda self: self.type != RoleType.CUSTOM or self.worker.class_name != AUTO,
        ),
        Rule(
            cel="self.type == 'Rule' || !has(self.worker.__function__)",
            message="must not be set unless the role's `type` is Rule",
            field="worker.function",
            holds=lambda self: self.type == RoleType.RULE or self.worker.function is None,
        ),
        Rule(
            cel="!has(self.colocateWith) || !(has(self.nodePool) || has(self.image) || has(self.pod))",
            message="must not be set with `nodePool`, `image` or `pod`: those of the other role count",
            field="colocateWith",
            holds=lambda self: (
                self.colocate_with is None or (self.node_pool is None and self.image is None and self.pod is None)
            ),
        ),
        Rule(
            cel="self.restartPolicy.onExhausted != 'Degrade' || self.type in ['Reward', 'Rule', 'Custom']",
            message="must not be Degrade unless the role's `type` is Reward, Rule or Custom",
            field="restartPolicy.onExhausted",
            holds=lambda self: (
                self.restart_policy.on_exhausted != ExhaustedAction.DEGRADE
                or self.type in (RoleType.REWARD, RoleType.RULE, RoleType.CUSTOM)
            ),
        ),
        Rule(
            cel="!has(self.engine.lora) || self.type in ['Actor', 'Critic']",
            message="must not be set unless the role's `type` is Actor or Critic",
            field="engine.lora",
            holds=lambda self: self.engine.lora is None or self.type.trains,
        ),
        Rule(
            cel="!has(self.engine.vllm) || self.type in ['Actor', 'Rollout']",
            message="must not be set unless the role's `type` is Actor or Rollout",
            field="engine.vllm",
            holds=lambda self: self.engine.vllm is None or self.type in (RoleType.ACTOR, RoleType.ROLLOUT),
        ),
        Rule(
            cel="!has(self.engine.vllm) || self.engine.vllm.tensorParallelSize == 1 || (self.type == 'Rollout' "
            "&& self.engine.vllm.tensorParallelSize <= self.resources.accelerators.count)",
            message="must be at most the accelerators of the role's pods, and 1 unless its `type` is Rollout",
            field="engine.vllm.tensorParallelSize",
            holds=lambda self: (
                self.engine.vllm is None
                or self.engine.vllm.tensor_parallel_size == 1
                or (
                    self.type is RoleType.ROLLOUT
                    and self.engine.vllm.tensor_parallel_size <= self.resources.accelerators.count
                )
            ),
        ),
        Rule(
            cel="self.restartPolicy.standbys == 0 || !(self.type in ['Actor', 'Critic'])",
            message="must be 0 when the role's `type` is Actor or Critic",
            field="restartPolicy.standbys",
            holds=lambda self: self.restart_policy.standbys == 0 or not self.type.trains,
        ),
    )
