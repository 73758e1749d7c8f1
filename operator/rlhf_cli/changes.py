"""Changes of a living job, each safe against somebody else who changes it at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlhf_api import KIND
from rlhf_api.names import RESTART_ANNOTATION
from rlhf_cli import terminal
from rlhf_cli.cluster.errors import ClusterError, ConflictError, RefusedError
from rlhf_cli.refusals import refusal_lines
from rlhf_cli.roles import must_not_have_ended, must_run, role_index

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object

_TRIES = 5


def ask_for_restart(cluster: Cluster, name: str, role: str) -> Object:
    """Give a role a new text in the annotation; gives the job as it was before.

    Raises:
        ClusterError: There is no such role, the job does not run, or the API server refuses.
    """
    for _ in range(_TRIES):
        job = cluster.job(name)
        role_index(job, role)
        must_run(job)
        metadata = job["metadata"]
        old = (metadata.get("annotations") or {}).get(RESTART_ANNOTATION, "")
        text = with_restart(old, role, f"{terminal.now():%Y-%m-%dT%H:%M:%S.%fZ}")
        # The version makes the server refuse where another role's text came between.
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {RESTART_ANNOTATION: text}}
        }
        try:
            cluster.patch(name, patch)
        except ConflictError:
            continue
        return job
    raise _too_busy(name)


def with_restart(old: str, role: str, text: str) -> str:
    """The annotation's value with a new text for one role; those of other roles stay, or they would restart too."""
    texts = dict(part.split("=", 1) for part in old.split(",") if "=" in part)
    return ",".join(f"{name.strip()}={value}" for name, value in {**texts, role: text}.items())


def set_replicas(cluster: Cluster, name: str, role: str, replicas: int) -> tuple[int, Object | None]:
    """Change a role's replicas; gives the number before, and the changed job or None where nothing had to change.

    Raises:
        ClusterError: There is no such role, it cannot be scaled, the job has ended, or the API server refuses.
    """
    for _ in range(_TRIES):
        job = cluster.job(name)
        index = role_index(job, role)
        must_not_have_ended(job)
        found = job["spec"]["roles"][index]
        before = int(found.get("replicas", 1))
        if before == replicas:
            return before, None
        _must_scale(found, index, replicas)
        place = f"/spec/roles/{index}"
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{place}/name", "value": role},  # roles may have moved meanwhile
            {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]},
            {"op": "add", "path": f"{place}/replicas", "value": replicas},
        ]
        try:
            return before, cluster.patch(name, patch)
        except ConflictError:
            continue
        except RefusedError as error:
            if not error.causes:  # a test of the patch did not hold
                continue
            raise ClusterError("\n".join(refusal_lines(error, None, f"{KIND}/{name}"))) from error
    raise _too_busy(name)


def _must_scale(role: Object, index: int, replicas: int) -> None:
    from rlhf_api.enums import RoleType
    from rlhf_api.errors import FieldError
    from rlhf_api.types.roles import Role

    if replicas != 1 and RoleType(role["type"]).trains:
        rule = next(rule for rule in Role.invariants if rule.field == "replicas")
        error = FieldError(
            path=("spec", "roles", index, "replicas"), message=rule.message, value=replicas, role=role["name"]
        )
        raise ClusterError(str(error))


def set_suspended(cluster: Cluster, name: str, suspended: bool) -> bool:
    """Suspend or resume; gives whether anything had to change.

    Raises:
        ClusterError: The job has ended, or the API server refuses.
    """
    job = cluster.job(name)
    must_not_have_ended(job)
    if bool(job["spec"].get("suspend")) == suspended:
        return False
    cluster.patch(name, {"metadata": {"uid": job["metadata"]["uid"]}, "spec": {"suspend": suspended}})
    return True


def _too_busy(name: str) -> ClusterError:
    return ClusterError(f"{KIND}/{name} changes all the time or refuses the change; run the command again")
