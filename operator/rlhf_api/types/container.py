"""What a container is given: image, environment and volumes, with secrets by reference only."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import ImagePullPolicy
from rlhf_api.in_pod import RESERVED_MOUNTS, RESERVED_VARIABLES
from rlhf_api.types.base import ATOMIC, LIST_SET, ApiModel, Rule, list_map, one_of
from rlhf_api.types.scalars import (
    ENV_NAME,
    AbsolutePath,
    LongText,
    Name,
    ObjectName,
    Quantity,
    RelativePath,
    ShortText,
    Text,
)


class Image(ApiModel):
    """A container image and how it is pulled."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="The image, best by digest. Default: the worker image of the operator's release.",
    )
    pull_policy: ImagePullPolicy | None = Field(default=None, description="When to pull, as in a pod.")
    pull_secrets: tuple[ObjectName, ...] = Field(
        default=(), max_length=8, description="Names of pull Secrets.", json_schema_extra=LIST_SET
    )


class KeySelector(ApiModel):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: ObjectName = Field(description="The name of the object.")
    key: Text = Field(description="The key in it.")
    optional: bool = Field(default=False, description="Whether the pod may start without it.")


class EnvSource(ApiModel):
    """Where the value of a variable comes from; exactly one of the fields."""

    secret_key_ref: KeySelector | None = Field(default=None, description="A key of a Secret.")
    config_map_key_ref: KeySelector | None = Field(default=None, description="A key of a ConfigMap.")

    invariants: ClassVar[tuple[Rule, ...]] = (one_of("secret_key_ref", "config_map_key_ref"),)


class EnvVar(ApiModel):
    """An environment variable."""

    name: str = Field(min_length=1, max_length=253, pattern=ENV_NAME, description="The name of the variable.")
    value: LongText | None = Field(default=None, description="Its value; secrets belong in `valueFrom`.")
    value_from: EnvSource | None = Field(default=None, description="Where its value comes from.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        one_of("value", "value_from", optional=True),
        Rule(
            cel=f"!(self.name in {list(RESERVED_VARIABLES)})",
            message=f"must not be one of {', '.join(RESERVED_VARIABLES)}, which the operator sets",
            field="name",
            holds=lambda self: self.name not in RESERVED_VARIABLES,
        ),
    )


class ObjectReference(ApiModel):
    """A Secret or ConfigMap in the job's namespace."""

    name: ObjectName = Field(description="The name of the object.")
    optional: bool = Field(default=False, description="Whether the pod may start without it.")


class EnvFrom(ApiModel):
    """An object whose keys all become variables; exactly one of the references."""

    prefix: ShortText | None = Field(default=None, description="Put before each name.")
    secret_ref: ObjectReference | None = Field(default=None, description="A Secret.")
    config_map_ref: ObjectReference | None = Field(default=None, description="A ConfigMap.")

    invariants: ClassVar[tuple[Rule, ...]] = (one_of("secret_ref", "config_map_ref"),)


Env = Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=list_map("name"))]
EnvFromList = Annotated[tuple[EnvFrom, ...], Field(max_length=16, json_schema_extra=ATOMIC)]


class Claim(ApiModel):
    """A PersistentVolumeClaim in the job's namespace."""

    claim_name: ObjectName = Field(description="The name of the claim.")
    read_only: bool = Field(default=False, description="Whether the claim is mounted read-only.")


class EmptyDir(ApiModel):
    """A folder that lives as long as its pod."""

    medium: Annotated[str, Field(max_length=32)] = Field(
        default="", description="`Memory` for a folder in memory, empty for the node's disk."
    )
    size_limit: Quantity | None = Field(default=None, description="The pod is evicted above this size.")


class HostPath(ApiModel):
    """A folder of the node; most clusters forbid it to users."""

    path: AbsolutePath = Field(description="The folder on the node.")


class VolumeSource(ApiModel):
    """What a volume holds; exactly one of the fields."""

    persistent_volume_claim: Claim | None = Field(default=None, description="A PersistentVolumeClaim.")
    empty_dir: EmptyDir | None = Field(default=None, description="A folder that lives as long as its pod.")
    secret: ObjectReference | None = Field(default=None, description="A Secret, one file per key.")
    config_map: ObjectReference | None = Field(default=None, description="A ConfigMap, one file per key.")
    host_path: HostPath | None = Field(default=None, description="A folder of the node.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        one_of("persistent_volume_claim", "empty_dir", "secret", "config_map", "host_path"),
    )


def _around_or_within(mounts: Iterable[str]) -> str:
    """A pattern of every path that is one of these mounts, holds one or lies in one."""
    around = sorted({str(parent) for mount in mounts for parent in PurePosixPath(mount).parents})
    return f"/*({_any_of(around)})/*|/+({_any_of(mounts)})(/.*)?"


def _any_of(paths: Iterable[str]) -> str:
    return "|".join(path.strip("/").replace("/", "/+") for path in paths)


_TAKEN = re.compile(_around_or_within(RESERVED_MOUNTS))
_FREE_MOUNT_PATH = Rule(
    cel=f"!self.mountPath.matches('^({_TAKEN.pattern})$')",
    message=f"must not be, hold or lie in one of {', '.join(RESERVED_MOUNTS)}, which the job mounts itself",
    field="mountPath",
    holds=lambda self: _TAKEN.fullmatch(self.mount_path) is None,
)


class Volume(VolumeSource):
    """A volume and where it is mounted."""

    name: Name = Field(description="The name of the volume, unique in its list.")
    mount_path: AbsolutePath = Field(description="Where the container sees it.")
    sub_path: RelativePath | None = Field(default=None, description="The folder in the volume to mount.")

    invariants: ClassVar[tuple[Rule, ...]] = (*VolumeSource.invariants, _FREE_MOUNT_PATH)


Volumes = Annotated[tuple[Volume, ...], Field(max_length=32, json_schema_extra=list_map("name"))]


class CacheVolume(VolumeSource):
    """Where downloaded weights are kept; without it each restart downloads them again."""

    mount_path: AbsolutePath = Field(default="/cache", description="Where the container sees it.")

    invariants: ClassVar[tuple[Rule, ...]] = (*VolumeSource.invariants, _FREE_MOUNT_PATH)
