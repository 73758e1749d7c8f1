"""`status`: what the operator reports.

Fractions are text (`"0.91"`): floats do not survive every client unchanged, and these are for reading.
Numbers that change fast are metrics, not status.
"""

from typing import Annotated

from pydantic import Field

from rlhf_api.enums import (
    ConditionStatus,
    FailureReason,
    RestartScope,
    RoleType,
    RolloutEngine,
    TrainingEngine,
)
from rlhf_api.types.algorithm import MAX_STEPS
from rlhf_api.types.base import LIST_SET, ApiModel, list_map
from rlhf_api.types.roles import RoleName
from rlhf_api.types.scalars import Count, Decimal, LongText, ObjectName, Quantity, Text, Timestamp

Step = Annotated[int, Field(ge=0, le=MAX_STEPS)]
# A larger bound, read by a JSON parser as a float, is no int64 any more, and the API server refuses each write.
Generation = Annotated[int, Field(ge=0, le=2**53 - 1)]


class Condition(ApiModel):
    """One condition, as the API conventions have it."""

    type: str = Field(
        min_length=1,
        max_length=316,
        description="ClusterReady, RolesReady, Running, Degraded, Suspended, Complete or Failed.",
    )
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: str = Field(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, in one CamelCase word.",
    )
    message: Annotated[str, Field(max_length=32768)] = Field(description="Why, for people, and what to do.")
    last_transition_time: Timestamp = Field(description="When `status` last changed.")
    observed_generation: Generation | None = Field(
        default=None, description="The generation of the spec that this is about."
    )


class Failure(ApiModel):
    """How a part of a role ended."""

    reason: FailureReason = Field(description="The kind of failure.")
    exit_code: int | None = Field(default=None, ge=0, le=255, description="The exit code, where known.")
    rank: int | None = Field(default=None, ge=0, le=1_000_000, description="The rank that ended first.")
    pod: ObjectName | None = Field(default=None, description="The pod.")
    node: ObjectName | None = Field(default=None, description="The node.")
    time: Timestamp | None = Field(default=None, description="When it was seen.")
    message: LongText | None = Field(default=None, description="The last lines that the role wrote.")


class RoleStatus(ApiModel):
    """One role as it is now."""

    name: RoleName = Field(description="The role's name.")
    type: RoleType | None = Field(default=None, description="The role's type.")
    scope: RestartScope | None = Field(default=None, description="The restart scope that Auto stands for.")
    class_name: Text | None = Field(default=None, description="The worker class that Auto stands for.")
    training_engine: TrainingEngine | None = Field(
        default=None, description="The training engine that Auto stands for."
    )
    rollout_engine: RolloutEngine | None = Field(default=None, description="The rollout engine that Auto stands for.")
    desired: Count = Field(default=0, description="Pods that the role should have.")
    ready: Count = Field(default=0, description="Pods that take part in training.")
    restarts: Count = Field(default=0, description="Restarts that count against `maxRestarts`.")
    uncounted_restarts: Count = Field(default=0, description="Restarts that do not count.")
    effective_memory: Quantity | None = Field(
        default=None, description="The memory limit after raises; the spec says where it began."
    )
    avoided_nodes: tuple[ObjectName, ...] = Field(
        default=(),
        max_length=64,
        description="Nodes that failed this role repeatedly.",
        json_schema_extra=LIST_SET,
    )
    next_restart_time: Timestamp | None = Field(default=None, description="When the back-off ends.")
    last_failure: Failure | None = Field(default=None, description="How the role last failed.")
    last_recovery_milliseconds: int | None = Field(
        default=None, ge=0, le=2**53, description="From the last failure to the role's next result."
    )


class Progress(ApiModel):
    """How far training is; written at most every ten seconds."""

    step: Step = Field(default=0, description="Steps that are done.")
    total_steps: Step | None = Field(default=None, description="Steps after which the job is complete.")
    reward: Decimal | None = Field(default=None, description="Mean reward of the last step.")
    evaluation: Decimal | None = Field(default=None, description="Accuracy on the held-out problems.")
    snapshot_step: Step | None = Field(default=None, description="The step of the newest snapshot.")
    effective_training_time_ratio: Decimal | None = Field(
        default=None, description="Share of the time since the start that went into steps that count."
    )
    time: Timestamp | None = Field(default=None, description="When this was written.")


class RLHFJobStatus(ApiModel):
    """What the operator reports about a job."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=16, description="The job's conditions.", json_schema_extra=list_map("type")
    )
    summary: Annotated[str, Field(max_length=16)] | None = Field(
        default=None, description="The state in one word, for `kubectl get`."
    )
    roles_ready: Annotated[str, Field(max_length=5)] | None = Field(
        default=None, description="Roles that are ready of all roles, `4/4`."
    )
    restarts: Count = Field(default=0, description="Counted restarts of all roles together.")
    roles: tuple[RoleStatus, ...] = Field(
        default=(), max_length=16, description="Each role as it is now.", json_schema_extra=list_map("name")
    )
    progress: Progress | None = Field(default=None, description="How far training is.")
    start_time: Timestamp | None = Field(default=None, description="When the job first began to train.")
    completion_time: Timestamp | None = Field(default=None, description="When the job ended.")
    ray_cluster_name: ObjectName | None = Field(default=None, description="The job's RayCluster.")
    observed_generation: Generation | None = Field(
        default=None, description="The generation of the spec that the operator last acted on."
    )
