"""The objects of a job beside its RayCluster and the controller's Job, which need them to be there first."""

from __future__ import annotations

import json

from rlhf_api import in_pod, names
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests.monitoring import pod_monitor
from rlhf_operator.manifests.network import controller_service, network_policy
from rlhf_operator.manifests.objects import Manifest, manifest, plain
from rlhf_operator.manifests.secret import token_secret
from rlhf_operator.manifests.state import state_claim, state_place


def children(job: RLHFJob, settings: Settings) -> list[Manifest]:
    """These objects, in the order in which to apply them. A claim that exists must not be applied again."""
    made = [token_secret(job, settings), runtime_config(job)]
    if state_place(job, settings).made:
        made.append(state_claim(job, settings))
    made.append(controller_service(job))
    if settings.network_policies:
        made.append(network_policy(job, settings))
    if settings.pod_monitors:
        made.append(pod_monitor(job, settings))
    return made


def runtime_config(job: RLHFJob) -> Manifest:
    """The ConfigMap with the job as the runtime reads it: what identifies it, and its `spec`.

    Fields that have their default are left out: a newer operator's job is then no riddle to the older runtime of a job
    that runs already, as long as it uses none of the new fields.
    """
    document = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "metadata": plain(job.metadata, include={"name", "namespace", "uid", "generation", "creation_timestamp"}),
        "spec": plain(job.spec, exclude_defaults=True),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return manifest("v1", "ConfigMap", names.runtime_config(job.name), job=job, data={in_pod.JOB_FILE_KEY: text})
