"""The parts of a pod that a user may set: a curated, typed overlay instead of a whole PodTemplateSpec."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import SpreadPolicy, TaintEffect, TolerationOperator
from rlhf_api.types.base import ATOMIC, LIST_SET, ApiModel, Rule
from rlhf_api.types.container import Env, EnvFromList, Volumes
from rlhf_api.types.scalars import (
    LabelMap,
    LongText,
    ObjectName,
    QualifiedName,
    Quantity,
    QuantityMap,
    Seconds,
    ShortText,
)

Identity = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Toleration(ApiModel):
    """A taint that the role's pods put up with, as in a pod."""

    key: QualifiedName | None = Field(default=None, description="The taint's key; absent matches every key.")
    operator: TolerationOperator = Field(default=TolerationOperator.EQUAL, description="Whether the value counts.")
    value: Annotated[str, Field(max_length=63)] | None = Field(default=None, description="The taint's value.")
    effect: TaintEffect | None = Field(default=None, description="The taint's effect; absent matches every effect.")
    toleration_seconds: Seconds | None = Field(
        default=None, description="How long a NoExecute taint is put up with; absent means for ever."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.key) || self.operator == 'Exists'",
            message="must be Exists when `key` is absent",
            field="operator",
            holds=lambda self: self.key is not None or self.operator == TolerationOperator.EXISTS,
        ),
    )


class TopologySpread(ApiModel):
    """How the role's pods are spread over the cluster."""

    topology_key: QualifiedName = Field(default="kubernetes.io/hostname", description="The node label to spread over.")
    max_skew: int = Field(default=1, ge=1, le=1000, description="By how much two places may differ.")
    when_unsatisfiable: SpreadPolicy = Field(
        default=SpreadPolicy.SCHEDULE_ANYWAY, description="Whether pods wait for a better place."
    )


class NodePool(ApiModel):
    """The nodes on which pods may run. `rlhf run` on one machine ignores it."""

    node_selector: LabelMap = Field(default_factory=dict, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] = Field(
        default=(), max_length=16, description="Taints that are put up with.", json_schema_extra=ATOMIC
    )
    topology_spread: TopologySpread | None = Field(
        default=None, description="How pods are spread. Default: over nodes, where it can be had."
    )


class SecurityContext(ApiModel):
    """Who the container runs as. Everything else follows the restricted pod security standard."""

    run_as_user: Identity | None = Field(default=None, description="The user id.")
    run_as_group: Identity | None = Field(default=None, description="The group id.")
    fs_group: Identity | None = Field(default=None, description="The group that owns mounted volumes.")
    add_capabilities: tuple[ShortText, ...] = Field(
        default=(),
        max_length=8,
        description="Capabilities to add, such as IPC_LOCK for RDMA; the namespace must allow them.",
        json_schema_extra=LIST_SET,
    )


class PodOverlay(ApiModel):
    """What a role's pods have beyond what the operator gives them."""

    labels: LabelMap = Field(default_factory=dict, description="Labels to add.")
    annotations: Annotated[dict[str, LongText], Field(max_length=64)] = Field(
        default_factory=dict, description="Annotations to add."
    )
    env: Env = Field(default=(), description="Variables; these win over `spec.env`.")
    env_from: EnvFromList = Field(default=(), description="Objects whose keys all become variables.")
    volumes: Volumes = Field(
        default=(), description="Volumes; these take the place of those of `spec.volumes` with the same name."
    )
    service_account_name: ObjectName | None = Field(default=None, description="The pods' service account.")
    priority_class_name: ObjectName | None = Field(default=None, description="The pods' priority class.")
    scheduler_name: ObjectName | None = Field(default=None, description="The scheduler that places the pods.")
    runtime_class_name: ObjectName | None = Field(default=None, description="The pods' runtime class.")
    termination_grace_period_seconds: Seconds | None = Field(
        default=None, description="Time between SIGTERM and SIGKILL; a role uses it for a snapshot."
    )
    security_context: SecurityContext | None = Field(default=None, description="Who the container runs as.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.volumes)"
            " || self.volumes.all(v, self.volumes.exists_one(other, other.mountPath == v.mountPath))",
            message="`mountPath` must be unique among `volumes`",
            field="volumes",
            holds=lambda self: len({volume.mount_path for volume in self.volumes}) == len(self.volumes),
        ),
    )


class Accelerators(ApiModel):
    """The accelerators of one pod."""

    name: QualifiedName = Field(
        default="nvidia.com/gpu", description="Any extended resource, a MIG profile for instance."
    )
    count: int = Field(default=0, ge=0, le=64, description="How many each pod gets.")


class Resources(ApiModel):
    """What one pod gets, as request and as limit."""

    cpu: Quantity | None = Field(
        default=None, description="CPU cores. With `rlhf run` it sets the threads of the role's process."
    )
    memory: Quantity | None = Field(default=None, description="Memory, its part of the object store included.")
    accelerators: Accelerators = Field(default_factory=Accelerators, description="The pod's accelerators.")
    shared_memory: Quantity | None = Field(
        default=None, description="Size of /dev/shm, which counts as memory. Default: half of `memory`."
    )
    extended: QuantityMap = Field(
        default_factory=dict, description="Other extended resources by name, such as RDMA devices."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.extended) || !('cpu' in self.extended || 'memory' in self.extended)",
            message="must not have `cpu` or `memory`, which are fields of their own",
            field="extended",
            holds=lambda self: not {"cpu", "memory"} & set(self.extended),
        ),
    )
