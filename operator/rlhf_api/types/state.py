"""`spec.state`, `spec.head`, `spec.controller`: where state lives, and what the job has beside roles."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.types.base import ApiModel, Rule, Transition, immutable, one_of
from rlhf_api.types.container import Image, KeySelector
from rlhf_api.types.pod import NodePool, PodOverlay, Resources
from rlhf_api.types.scalars import URI, ObjectName, RelativePath, ShortText, Text


class StateClaim(ApiModel):
    """A folder of a PersistentVolumeClaim; roles on several nodes need access mode ReadWriteMany."""

    claim_name: ObjectName = Field(description="The name of the claim.")
    path: RelativePath | None = Field(default=None, description="The folder in it. Default: the job's name.")


class StateLocation(ApiModel):
    """Where state is kept; exactly one of the fields."""

    persistent_volume_claim: StateClaim | None = Field(default=None, description="A folder of a claim.")
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=URI)] | None = Field(
        default=None, description="An fsspec URI, `s3://bucket/folder`, reachable from every pod of the job."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (one_of("persistent_volume_claim", "uri"),)


class State(ApiModel):
    """Snapshots, the log of updates, and the models at the end."""

    location: StateLocation | None = Field(
        default=None,
        description="Where state is kept. Default: a claim `<job>-state` of the operator's, which goes with the job.",
    )
    snapshot_every_steps: int = Field(default=10, ge=1, le=100_000, description="Steps between snapshots.")
    keep: int = Field(default=3, ge=1, le=100, description="Snapshots kept; older ones are deleted.")

    transitions: ClassVar[tuple[Transition, ...]] = immutable("location")


class GCSFaultTolerance(ApiModel):
    """A Redis that keeps Ray's cluster state, so that a lost head costs no role its processes."""

    redis_address: Text = Field(description="`host:port` of the Redis.")
    password: KeySelector | None = Field(default=None, description="The Secret key with its password.")
    namespace: ShortText | None = Field(
        default=None, description="Where in the Redis this job's keys are. Default: the job's UID."
    )


class Head(ApiModel):
    """The pod of Ray's head, which does no RL work."""

    resources: Resources = Field(default_factory=Resources, description="What the pod gets.")
    node_pool: NodePool | None = Field(default=None, description="The nodes on which it may run.")
    image: Image | None = Field(default=None, description="Another image than the job's.")
    pod: PodOverlay | None = Field(default=None, description="What the pod has besides.")
    gcs_fault_tolerance: GCSFaultTolerance | None = Field(
        default=None, description="A Redis that lets the job outlive its head."
    )


class Controller(ApiModel):
    """The pod that runs the algorithm's control flow."""

    resources: Resources = Field(default_factory=Resources, description="What the pod gets.")
    node_pool: NodePool | None = Field(default=None, description="The nodes on which it may run.")
    image: Image | None = Field(default=None, description="Another image than the job's.")
    pod: PodOverlay | None = Field(default=None, description="What the pod has besides.")
    max_restarts: int = Field(
        default=10, ge=0, le=1000, description="Lost controller pods that are replaced before the job fails."
    )
