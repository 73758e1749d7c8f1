"""`spec.roles`: the members of the job, each with its own nodes, processes and failure domain."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import (
    DegradeMode,
    ExhaustedAction,
    FailureReason,
    Precision,
    RestartAction,
    RestartScope,
    RoleType,
    RolloutEngine,
    TrainingEngine,
)
from rlhf_api.names import DNS_1035_PATTERN, MAX_ROLE_NAME_LENGTH, RESERVED_ROLE_NAMES
from rlhf_api.types.base import (
    ATOMIC,
    IMPORT_PATH,
    IMPORT_PATH_OR_AUTO,
    LIST_SET,
    ApiModel,
    Parameters,
    PositiveSeconds,
    Quantity,
    Rule,
    Seconds,
)
from rlhf_api.types.model import Model
from rlhf_api.types.pod import Image, NodePool, PodOverlay, Resources

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
            cel="!has(self.function) || self.className == 'Auto'",
            message="must not be set together with `className`",
            field="function",
            holds=lambda self: self.function is None or self.class_name == AUTO,
        ),
    )


class EngineSpec(ApiModel):
    """The engines inside a role's processes."""

    training: TrainingEngine = Field(
        default=TrainingEngine.AUTO, description="Auto: FSDP2 with several ranks, else Torch."
    )
    rollout: RolloutEngine = Field(default=RolloutEngine.AUTO, description="Auto: VLLM on accelerators, else Cached.")
    precision: Precision = Field(default=Precision.AUTO, description="Auto: BFloat16 on accelerators, else Float32.")


class Backoff(ApiModel):
    """How long a role waits before it restarts again."""

    initial_seconds: Seconds = Field(default=0, description="Wait before the first restart.")
    base_seconds: Seconds = Field(default=5, description="Wait before the second, doubled each time after.")
    max_seconds: Seconds = Field(default=300, description="The longest wait.")
    reset_after_seconds: PositiveSeconds = Field(
        default=600, description="A role that runs this long starts again with the first wait."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The API server tries the default `{}` before the fields have theirs, hence `has`.
            cel="!has(self.baseSeconds) || !has(self.maxSeconds) || self.baseSeconds <= self.maxSeconds",
            message="must be at least `baseSeconds`",
            field="maxSeconds",
            holds=lambda self: self.base_seconds <= self.max_seconds,
        ),
    )


class RestartRule(ApiModel):
    """What to do about failures of some kind."""

    reasons: tuple[FailureReason, ...] = Field(
        default=(), max_length=20, description="Failure reasons that match.", json_schema_extra=LIST_SET
    )
    exit_codes: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        default=(), max_length=32, description="Exit codes that match.", json_schema_extra=LIST_SET
    )
    action: RestartAction = Field(description="What to do.")
    counted: bool = Field(default=True, description="Whether this uses up one of `maxRestarts`.")
    memory_increase_percent: int | None = Field(
        default=None,
        ge=1,
        le=400,
        description="More memory for the next attempt, in percent of the present limit.",
    )
    max_memory: Quantity | None = Field(default=None, description="The most memory that raises may reach.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.reasons) && self.reasons.size() > 0) || (has(self.exitCodes) && self.exitCodes.size() > 0)",
            message="must have `reasons` or `exitCodes`",
            holds=lambda self: bool(self.reasons or self.exit_codes),
        ),
        Rule(
            cel="has(self.memoryIncreasePercent) == has(self.maxMemory)",
            message="must be set together with `memoryIncreasePercent`",
            field="maxMemory",
            holds=lambda self: (self.memory_increase_percent is None) == (self.max_memory is None),
        ),
    )


class Degrade(ApiModel):
    """How scoring goes on without a role that used up its restarts."""

    mode: DegradeMode = Field(default=DegradeMode.CACHED_SCORES, description="What takes the place of its scores.")
    max_steps: int = Field(
        default=10, ge=1, le=100_000, description="Steps after which the job fails if the role is still gone."
    )


class RestartPolicy(ApiModel):
    """What happens when a part of the role dies; the other roles keep their pods, processes and weights."""

    scope: RestartScope = Field(
        default=RestartScope.AUTO,
        description="Role restarts all ranks together, Replica only the failed one. "
        "Auto: Role for Actor and Critic, Replica for the others.",
    )
    max_restarts: int = Field(
        default=10, ge=0, le=1000, description="Counted restarts after which `onExhausted` applies."
    )
    backoff: Backoff = Field(default_factory=Backoff, description="Waits between restarts.")
    rules: tuple[RestartRule, ...] = Field(
        default=(),
        max_length=16,
        description="The first rule that matches decides. Without a match: a counted restart of `scope`.",
        json_schema_extra=ATOMIC,
    )
    on_exhausted: ExhaustedAction = Field(
        default=ExhaustedAction.FAIL_JOB,
        description="FailJob, RestartJob from the last snapshot, or Degrade (Reward, Rule and Custom roles).",
    )
    degrade: Degrade | None = Field(default=None, description="How Degrade goes on.")
    standbys: int = Field(
        default=0, ge=0, le=64, description="Ready copies that take over at once; not for Actor and Critic."
    )
    start_timeout_seconds: PositiveSeconds = Field(
        default=1800, description="Longest time from a running pod to a loaded model."
    )
    hang_timeout_seconds: PositiveSeconds = Field(
        default=600, description="Longest time without progress inside a method."
    )
    method_timeout_seconds: PositiveSeconds = Field(
        default=7200, description="Longest time of one method, progress or not."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.onExhausted == 'Degrade' || !has(self.degrade)",
            message="must not be set unless `onExhausted` is Degrade",
            field="degrade",
            holds=lambda self: self.on_exhausted == ExhaustedAction.DEGRADE or self.degrade is None,
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

    immutable: ClassVar[tuple[str, ...]] = ("type", "podsPerReplica", "colocateWith", "model")
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
            cel="self.type == 'Rule' || !has(self.worker.function)",
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
            cel="self.restartPolicy.standbys == 0 || !(self.type in ['Actor', 'Critic'])",
            message="must be 0 when the role's `type` is Actor or Critic",
            field="restartPolicy.standbys",
            holds=lambda self: self.restart_policy.standbys == 0 or not self.type.trains,
        ),
    )
