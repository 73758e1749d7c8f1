"""Places that only one pod can reach, refused before anything is made there."""

from __future__ import annotations

from rlhf_api.types import RLHFJob
from rlhf_runtime.job.prepare import UnsupportedError
from rlhf_runtime.service.settings import ServiceSettings


def refuse_what_no_pod_can_reach(job: RLHFJob, settings: ServiceSettings) -> None:
    """Refuse state and built-in models in a place that ends with this pod.

    Raises:
        UnsupportedError: The message names the field and what would be right.
    """
    if settings.state_ends_with_the_pod:
        raise UnsupportedError(
            f'`spec.state.location.uri` must be reachable from every pod; "{settings.state}" is in one pod alone and '
            "would end with it: use a claim, or a URI such as `s3://bucket/folder`"
        )
    models = [("spec.model", job.spec.model)]
    models += [(f"spec.roles[{index}].model", role.model) for index, role in enumerate(job.spec.roles) if role.model]
    made = [field for field, model in models if model.builtin is not None]
    if made and settings.cache_ends_with_the_pod:
        raise UnsupportedError(
            f"`{made[0]}.builtin` is made by the controller and read by the roles, and must be on a volume that they "
            "share: with `spec.state.location.uri` set `spec.cacheVolume` to such a claim, or name a model with "
            "`huggingFace` or `path`"
        )
