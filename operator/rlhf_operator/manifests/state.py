"""Where a job's state and caches live, as its pods see them.

| `spec.state.location` | state | run folder | models and data, without `cacheVolume` |
|---|---|---|---|
| a claim | `/rlhf/state/PATH/state` | `/rlhf/state/PATH` | on the claim, for all jobs that use it |
| a URI | `URI/NAMESPACE/JOB` | in the pod | in the pod: made or downloaded again by each |
| none | on a claim that the operator makes, and which goes with the job | | on that claim |

PATH is the job's name unless the manifest says otherwise, and the URI is extended in the same spirit: two jobs made
from one template must not write over each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_api import names
from rlhf_api.in_pod import SCRATCH_FOLDER, STATE_MOUNT
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests.objects import Manifest, manifest, namespace_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePlace:
    """The answer to "where", for one job.

    Attributes:
        problem: Why the job cannot run so, and what to do; empty when it can. The rest is empty then.
        claim: The claim that is mounted at `STATE_MOUNT`; empty when state is at a URI.
        made: Whether the operator makes the claim.
        state: What the state store is given: a folder or a URI.
        run_folder: Logs, the manifest and the final model.
        cache: Models and data of the runtime.
        hugging_face_cache: Those of the Hugging Face libraries.
    """

    problem: str = ""
    claim: str = ""
    made: bool = False
    state: str = ""
    run_folder: str = ""
    cache: str = ""
    hugging_face_cache: str = ""


def state_place(job: RLHFJob, settings: Settings) -> StatePlace:
    """Where a job's state and caches live, or why there is no place for them."""
    location = job.spec.state.location
    if problem := _cache_problem(job):
        return StatePlace(problem=problem)
    if location is not None and location.uri is not None:
        uri = f"{location.uri.rstrip('/')}/{namespace_of(job)}/{job.name}"
        return _place(job, state=uri, run_folder=f"{SCRATCH_FOLDER}/run", cache_root=f"{SCRATCH_FOLDER}/cache")
    if location is None and settings.state_storage_class is None:
        return StatePlace(
            problem="`spec.state.location` must be set to a claim or a URI: this operator makes no claims for jobs. "
            "Whoever installed it can change that with a storage class for claims of jobs."
        )
    named = location.persistent_volume_claim if location is not None else None
    folder = f"{STATE_MOUNT}/{(named and named.path) or job.name}"
    return _place(
        job,
        claim=named.claim_name if named else names.state_claim(job.name),
        made=named is None,
        state=f"{folder}/state",
        run_folder=folder,
        cache_root=f"{STATE_MOUNT}/.cache",
    )


def state_claim(job: RLHFJob, settings: Settings) -> Manifest:
    """The claim that the operator makes.

    Apply it only when it is not there: nearly all of a claim is immutable, and settings change.
    """
    spec = {
        "accessModes": [settings.state_access_mode],
        "storageClassName": settings.state_storage_class,
        "resources": {"requests": {"storage": settings.state_size}},
    }
    return manifest("v1", "PersistentVolumeClaim", names.state_claim(job.name), job=job, spec=spec)


def _place(
    job: RLHFJob, *, state: str, run_folder: str, cache_root: str, claim: str = "", made: bool = False
) -> StatePlace:
    if job.spec.cache_volume is not None:
        cache_root = job.spec.cache_volume.mount_path.rstrip("/")
    return StatePlace(
        claim=claim,
        made=made,
        state=state,
        run_folder=run_folder,
        cache=f"{cache_root}/rlhf",
        hugging_face_cache=f"{cache_root}/huggingface",
    )


def _cache_problem(job: RLHFJob) -> str:
    """A built-in model is made once, and found by all pods in the cache; so they must share it."""
    models = {"`spec.model`": job.spec.model}
    models |= {f'`model` of role "{role.name}"': role.model for role in job.spec.roles if role.model is not None}
    built_in = [where for where, model in models.items() if model.builtin is not None]
    cache, location = job.spec.cache_volume, job.spec.state.location
    if cache is not None:
        is_shared = cache.persistent_volume_claim is not None or cache.host_path is not None
    else:
        is_shared = location is None or location.uri is None
    if is_shared or not built_in:
        return ""
    return (
        f"`spec.cacheVolume` must be a claim that all pods share, since {' and '.join(built_in)} is built in: "
        "it is made once, and the pods must find the same weights"
        + ("" if cache is not None else "; or keep state on a claim in place of a URI")
        + "."
    )
