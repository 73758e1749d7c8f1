"""Volumes of a pod, each together with where its container sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlhf_api.in_pod import STATE_MOUNT
from rlhf_api.types.container import VolumeSource
from rlhf_operator.manifests.objects import without_empty
from rlhf_operator.manifests.parts import Part

SHARED_MEMORY_PATH = "/dev/shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """A volume and its mount."""

    volume: dict[str, Any]
    mount: dict[str, Any]


def mounted(name: str, path: str, *, read_only: bool = False, sub_path: str | None = None, **source: Any) -> Mounted:
    """A volume of one kind, such as `secret={...}`, at a path."""
    mount: dict[str, Any] = {"name": name, "mountPath": path}
    if sub_path:
        mount["subPath"] = sub_path
    if read_only:
        mount["readOnly"] = True
    return Mounted(volume={"name": name, **source}, mount=mount)


def shared_memory(size: str) -> Mounted:
    """Memory at /dev/shm, for Ray's object store and NCCL. KubeRay's own would be as large as the whole pod."""
    return mounted("rlhf-shared-memory", SHARED_MEMORY_PATH, emptyDir={"medium": "Memory", "sizeLimit": size})


def state_and_cache(part: Part, *, claim: str) -> Iterable[Mounted]:
    """The claim that holds state, and the cache volume, where there is one."""
    if claim:
        yield mounted("rlhf-state", STATE_MOUNT, persistentVolumeClaim={"claimName": claim})
    if part.cache_volume is not None:
        yield _of(part.cache_volume, name="rlhf-cache", path=part.cache_volume.mount_path)


def of_user(part: Part) -> Iterable[Mounted]:
    """The volumes of the manifest."""
    for volume in part.volumes:
        yield _of(volume, name=volume.name, path=volume.mount_path, sub_path=volume.sub_path)


def _of(source: VolumeSource, *, name: str, path: str, sub_path: str | None = None) -> Mounted:
    read_only = source.persistent_volume_claim is not None and source.persistent_volume_claim.read_only
    return mounted(name, path, read_only=read_only, sub_path=sub_path, **_source(source))


def _source(source: VolumeSource) -> dict[str, Any]:
    if claim := source.persistent_volume_claim:
        read_only = {"readOnly": True} if claim.read_only else {}
        return {"persistentVolumeClaim": {"claimName": claim.claim_name, **read_only}}
    if source.empty_dir:
        return {
            "emptyDir": without_empty({"medium": source.empty_dir.medium, "sizeLimit": source.empty_dir.size_limit})
        }
    for field, reference, key in (
        ("secret", source.secret, "secretName"),
        ("configMap", source.config_map, "name"),
    ):
        if reference:
            return {field: {key: reference.name, **({"optional": True} if reference.optional else {})}}
    assert source.host_path, "a volume has a source"
    return {"hostPath": {"path": source.host_path.path}}
