"""`RLHFJob`: the object that a user applies."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rlhf_api.enums import AlgorithmName, RoleType
from rlhf_api.errors import Path
from rlhf_api.names import DNS_1035_PATTERN, MAX_JOB_AND_ROLE_NAME_LENGTH, MAX_JOB_NAME_LENGTH
from rlhf_api.types.algorithm import Algorithm
from rlhf_api.types.base import ApiModel, Rule, Transition, immutable, list_map
from rlhf_api.types.container import CacheVolume, Env, EnvFromList, Image, Volumes
from rlhf_api.types.model import Data, Model
from rlhf_api.types.roles import Role
from rlhf_api.types.scalars import PositiveSeconds, Seconds, Text
from rlhf_api.types.state import Controller, Head, State
from rlhf_api.types.status import RLHFJobStatus

MAX_ROLES = 16


class ObjectMeta(BaseModel):
    """Kubernetes' object metadata, as far as this project reads it; the rest is let through unread."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid", frozen=True
    )

    name: Annotated[str, Field(min_length=1, max_length=MAX_JOB_NAME_LENGTH, pattern=DNS_1035_PATTERN)]
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, Any], ...] = ()
    managed_fields: tuple[dict[str, Any], ...] = ()
    self_link: str | None = None


def _broken_colocations(spec: "RLHFJobSpec") -> Iterator[Path]:
    hosts = {role.name for role in spec.roles if role.colocate_with is None}
    for index, role in enumerate(spec.roles):
        if role.colocate_with is not None and role.colocate_with not in hosts:
            yield ("roles", index, "colocateWith")


def _repeated_mount_paths(spec: "RLHFJobSpec") -> Iterator[Path]:
    seen = {spec.cache_volume.mount_path} if spec.cache_volume else set()
    for index, volume in enumerate(spec.volumes):
        if volume.mount_path in seen:
            yield ("volumes", index, "mountPath")
        seen.add(volume.mount_path)


def _roles_over_mount_paths_of_the_job(spec: "RLHFJobSpec") -> Iterator[Path]:
    """A pod has the volumes of both lists, and Kubernetes takes each mount path once."""
    cache = spec.cache_volume and spec.cache_volume.mount_path
    for index, role in enumerate(spec.roles):
        for place, volume in enumerate(role.pod.volumes if role.pod else ()):
            others = {other.mount_path for other in spec.volumes if other.name != volume.name}
            if volume.mount_path in others or volume.mount_path == cache:
                yield ("roles", index, "pod", "volumes", place, "mountPath")


def _roles_of(kind: RoleType) -> str:
    return f"self.roles.filter(r, r.type == '{kind}').size()"


class RLHFJobSpec(ApiModel):
    """What the user wants."""

    algorithm: Algorithm = Field(description="Which algorithm runs, for how long, and its hyperparameters.")
    model: Model = Field(description="The model that is trained; a role may have another.")
    data: Data = Field(description="Where prompts come from.")
    image: Image | None = Field(default=None, description="The worker image; a role may have another.")
    env: Env = Field(default=(), description="Environment variables of every role.")
    env_from: EnvFromList = Field(
        default=(), description="Objects whose keys all become variables of every role, such as tokens."
    )
    volumes: Volumes = Field(default=(), description="Volumes of every role.")
    cache_volume: CacheVolume | None = Field(default=None, description="Where downloaded weights are kept.")
    roles: tuple[Role, ...] = Field(
        min_length=1,
        max_length=MAX_ROLES,
        description="The members of the job, each a worker group and a failure domain of its own.",
        json_schema_extra=list_map("name"),
    )
    head: Head = Field(default_factory=Head, description="The pod of Ray's head.")
    controller: Controller = Field(default_factory=Controller, description="The pod of the control flow.")
    state: State = Field(default_factory=State, description="Snapshots and other state that survives.")
    suspend: bool = Field(
        default=False, description="True saves a snapshot and frees every pod; false goes on from there."
    )
    start_deadline_seconds: PositiveSeconds | None = Field(
        default=None, description="Pods that are not all placed by then are freed and tried again later."
    )
    active_deadline_seconds: PositiveSeconds | None = Field(
        default=None, description="Running time after which the job fails."
    )
    suspend_grace_period_seconds: Seconds = Field(
        default=300, description="Longest time for the snapshot on suspension."
    )
    ttl_seconds_after_finished: Seconds | None = Field(
        default=None, description="Time after the end at which the job is deleted; absent means never."
    )
    managed_by: Text | None = Field(
        default=None, description="Another controller that takes care of this job instead of rlhf-operator."
    )

    transitions: ClassVar[tuple[Transition, ...]] = (
        *immutable("model", "data", "managed_by"),
        Transition(
            cel="self.roles.size() == oldSelf.roles.size()"
            " && self.roles.all(r, oldSelf.roles.exists(o, o.name == r.name))",
            message="the set of roles is immutable: roles must not be added, removed or renamed; make another job",
            field="roles",
            holds=lambda before, after: {role.name for role in before.roles} == {role.name for role in after.roles},
        ),
    )
    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.algorithm.name == 'Custom' || {_roles_of(RoleType.ACTOR)} == 1",
            message="must have exactly one role of type Actor for PPO and GRPO",
            field="roles",
            holds=lambda self: self.algorithm.name == AlgorithmName.CUSTOM or len(self.roles_of(RoleType.ACTOR)) == 1,
        ),
        Rule(
            cel=f"self.algorithm.name != 'PPO' || {_roles_of(RoleType.CRITIC)} == 1",
            message="must have exactly one role of type Critic for PPO",
            field="roles",
            holds=lambda self: self.algorithm.name != AlgorithmName.PPO or len(self.roles_of(RoleType.CRITIC)) == 1,
        ),
        Rule(
            cel=f"self.algorithm.name != 'GRPO' || {_roles_of(RoleType.CRITIC)} == 0",
            message="must not have a role of type Critic for GRPO, which needs none",
            field="roles",
            holds=lambda self: self.algorithm.name != AlgorithmName.GRPO or not self.roles_of(RoleType.CRITIC),
        ),
        Rule(
            cel="self.algorithm.name == 'Custom' || self.roles.exists(r, r.type in ['Reward', 'Rule'])",
            message="must have a role of type Reward or Rule for PPO and GRPO",
            field="roles",
            holds=lambda self: (
                self.algorithm.name == AlgorithmName.CUSTOM or any(role.type.rewards for role in self.roles)
            ),
        ),
        Rule(
            cel=f"self.algorithm.name == 'Custom' || {_roles_of(RoleType.REFERENCE)} <= 1",
            message="must have at most one role of type Reference for PPO and GRPO",
            field="roles",
            holds=lambda self: (
                self.algorithm.name == AlgorithmName.CUSTOM or len(self.roles_of(RoleType.REFERENCE)) <= 1
            ),
        ),
        Rule(
            cel="self.algorithm.name == 'Custom'"
            " || (has(self.algorithm.ppo) && self.algorithm.ppo.klCoefficient == 0.0)"
            " || (has(self.algorithm.grpo) && self.algorithm.grpo.klCoefficient == 0.0)"
            " || self.roles.exists(r, r.type == 'Reference')",
            message="must have a role of type Reference unless `klCoefficient` is 0",
            field="roles",
            holds=lambda self: not self.algorithm.needs_reference or bool(self.roles_of(RoleType.REFERENCE)),
        ),
        Rule(
            cel="self.roles.all(r, !has(r.colocateWith)"
            " || self.roles.exists(h, h.name == r.colocateWith && !has(h.colocateWith)))",
            message="`colocateWith` must name another role that is not colocated itself",
            field="roles",
            holds=lambda self: not any(_broken_colocations(self)),
            culprits=_broken_colocations,
        ),
        Rule(
            cel="!has(self.volumes) || self.volumes.all(v,"
            " self.volumes.exists_one(other, other.mountPath == v.mountPath)"
            " && !(has(self.cacheVolume) && self.cacheVolume.mountPath == v.mountPath))",
            message="`mountPath` must be unique among `volumes` and `cacheVolume`",
            field="volumes",
            holds=lambda self: not any(_repeated_mount_paths(self)),
            culprits=_repeated_mount_paths,
        ),
        Rule(
            cel="self.roles.all(r, !has(r.pod) || !has(r.pod.volumes) || r.pod.volumes.all(v,"
            " !(has(self.cacheVolume) && self.cacheVolume.mountPath == v.mountPath)"
            " && !(has(self.volumes)"
            " && self.volumes.exists(other, other.name != v.name && other.mountPath == v.mountPath))))",
            message="`mountPath` of a volume of a role's `pod` must not be that of another volume of the job",
            field="roles",
            holds=lambda self: not any(_roles_over_mount_paths_of_the_job(self)),
            culprits=_roles_over_mount_paths_of_the_job,
        ),
    )

    def role(self, name: str) -> Role:
        """The role of a name.

        Raises:
            KeyError: There is no such role.
        """
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def roles_of(self, kind: RoleType) -> tuple[Role, ...]:
        """The roles of one type, in the order of the manifest."""
        return tuple(role for role in self.roles if role.type == kind)


def _long_names(job: "RLHFJob") -> Iterator[Path]:
    for index, role in enumerate(job.spec.roles):
        if len(job.metadata.name) + len(role.name) > MAX_JOB_AND_ROLE_NAME_LENGTH:
            yield ("spec", "roles", index, "name")


class RLHFJob(ApiModel):
    """A post-training job: an algorithm and the roles it runs on, each with its own nodes and failures."""

    api_version: Literal["rlhf.dev/v1alpha1"] = Field(description="The version of this schema.")
    kind: Literal["RLHFJob"] = Field(description="The kind of this object.")
    metadata: ObjectMeta = Field(description="Kubernetes' object metadata.")
    spec: RLHFJobSpec = Field(description="What the user wants.")
    status: RLHFJobStatus | None = Field(default=None, description="What the operator reports.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.spec.roles.all(r, size(self.metadata.name) + size(r.name) <= {MAX_JOB_AND_ROLE_NAME_LENGTH})",
            message="the names of the job and a role must together have at most"
            f" {MAX_JOB_AND_ROLE_NAME_LENGTH} characters",
            field="spec.roles",
            holds=lambda self: not any(_long_names(self)),
            culprits=_long_names,
        ),
    )

    @property
    def name(self) -> str:
        """The job's name."""
        return self.metadata.name

    def to_manifest(self) -> dict[str, Any]:
        """The job as a manifest: camelCase, plain values, nothing that is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
