"""Pod templates of the head, the roles and the controller, under the restricted pod security standard.

- The root file system stays writable: Ray puts its session, sockets and logs in /tmp, and packages at run time in the
  home folder.
- No pod gets a token for the API server unless the user names a service account: nothing in a job calls it.
- `fsGroup` makes a new claim writable for a user that is not root; 1000 is the group of the worker image.
- Variables in Docker-link style are off: a Service that is called `ray` would set `RAY_PORT`, which Ray reads.
- Threads (`OMP_NUM_THREADS`) are the runtime's business, which knows what a process does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_api import in_pod, names
from rlhf_api.types import RLHFJob
from rlhf_api.types.pod import SecurityContext, TopologySpread
from rlhf_operator.config import Settings
from rlhf_operator.manifests import volumes
from rlhf_operator.manifests.objects import plain, without_empty
from rlhf_operator.manifests.parts import Part, spec_hash
from rlhf_operator.manifests.state import state_place

_GROUP_OF_THE_WORKER_IMAGE = 1000
_FOREIGN_DOMAINS = ("rlhf.dev", "ray.io", "kueue.x-k8s.io")
"""Labels and annotations of these are not the user's to set: they steer the operator, KubeRay, and Kueue, for which a
labelled pod would be a workload of its own."""
_REFUSED_ON_HEADS = ("RAY_REDIS_ADDRESS", "REDIS_USERNAME", "REDIS_PASSWORD", "RAY_enable_autoscaler_v2")
"""KubeRay refuses a RayCluster whose head has one of them; `gcsFaultTolerance` is the way to a Redis."""


def pod_template(
    job: RLHFJob,
    settings: Settings,
    part: Part,
    *,
    container: Mapping[str, Any],
    resources: Mapping[str, Any],
    shared_memory: str,
    env: Mapping[str, str] | None = None,
    extra_volumes: Sequence[volumes.Mounted] = (),
    annotations: Mapping[str, str] | None = None,
    grace_seconds: int | None = None,
) -> dict[str, Any]:
    """The template of one kind of pod.

    Args:
        job: The job.
        settings: The operator's settings.
        part: What the user wrote about it.
        container: Fields of its only container beyond what all have; `name` at least.
        resources: The container's resources.
        shared_memory: The size of /dev/shm.
        env: Variables beyond what all pods have; these win over the user's.
        extra_volumes: Volumes beyond what all pods have.
        annotations: Annotations beyond what all pods have.
        grace_seconds: Time to end, unless the user chose another; None leaves it to Kubernetes.
    """
    overlay = part.overlay
    works = part.component != names.HEAD_COMPONENT
    mounted = [volumes.shared_memory(shared_memory), *extra_volumes]
    if works:
        mounted += volumes.state_and_cache(part, claim=state_place(job, settings).claim)
    mounted += volumes.of_user(part)
    return {
        "metadata": {
            "labels": {**_users(overlay.labels), **labels_of(job, part)},
            "annotations": {
                **_users(overlay.annotations),
                names.SPEC_HASH_ANNOTATION: spec_hash(part),
                **(annotations or {}),
            },
        },
        "spec": without_empty(
            {
                "restartPolicy": "Never",
                "automountServiceAccountToken": None if overlay.service_account_name else False,
                "enableServiceLinks": False,
                "serviceAccountName": overlay.service_account_name,
                "imagePullSecrets": [{"name": name} for name in part.image.pull_secrets],
                "priorityClassName": overlay.priority_class_name,
                "schedulerName": overlay.scheduler_name,
                "runtimeClassName": overlay.runtime_class_name,
                "terminationGracePeriodSeconds": grace_seconds
                if overlay.termination_grace_period_seconds is None
                else overlay.termination_grace_period_seconds,
                "securityContext": _pod_security(overlay.security_context or SecurityContext()),
                "nodeSelector": dict(part.node_pool.node_selector),
                "tolerations": _tolerations(part),
                "topologySpreadConstraints": _spread(job, part),
                "containers": [
                    without_empty(
                        {
                            **container,
                            **_image(part, settings),
                            "env": _env(job, settings, part, env or {}),
                            "envFrom": [plain(source, exclude_defaults=True) for source in part.env_from],
                            "resources": resources,
                            "securityContext": _container_security(overlay.security_context or SecurityContext()),
                            "volumeMounts": [each.mount for each in mounted],
                        }
                    )
                ],
                "volumes": [each.volume for each in mounted],
            }
        ),
    }


def labels_of(job: RLHFJob, part: Part) -> dict[str, str]:
    """The labels by which pods of a part are found."""
    labels = names.role_labels(job.name, part.role) if part.role else names.job_labels(job.name)
    return {**labels, names.COMPONENT_LABEL: part.component}


def _env(job: RLHFJob, settings: Settings, part: Part, more: Mapping[str, str]) -> list[dict[str, Any]]:
    """Ours come first, so that the user's can refer to them (`$(RLHF_POD)`); where both name one, reserved ones win."""
    ray = {
        "RAY_AUTH_MODE": {"value": "token"},
        "RAY_AUTH_TOKEN": _secret_key(names.token_secret(job.name), in_pod.RAY_TOKEN_KEY),
        "RAY_USAGE_STATS_ENABLED": {"value": "0"},
    }
    ours: dict[str, dict[str, Any]] = dict(ray)
    if part.component == names.HEAD_COMPONENT:
        users = [variable for variable in part.env if variable.name not in _REFUSED_ON_HEADS]
    else:
        users = list(part.env)
        place = state_place(job, settings)
        ours |= {
            in_pod.JOB_VARIABLE: {"value": job.name},
            in_pod.NAMESPACE_VARIABLE: _field("metadata.namespace"),
            in_pod.POD_VARIABLE: _field("metadata.name"),
            in_pod.NODE_VARIABLE: _field("spec.nodeName"),
            in_pod.RUN_FOLDER_VARIABLE: {"value": place.run_folder},
            in_pod.STATE_VARIABLE: {"value": place.state},
            in_pod.CACHE_VARIABLE: {"value": place.cache},
            in_pod.HUGGING_FACE_CACHE_VARIABLE: {"value": place.hugging_face_cache},
        }
    if part.role:
        ours[in_pod.ROLE_VARIABLE] = {"value": part.role}
    given = {variable.name: _without_name(plain(variable, exclude_defaults=True)) for variable in users}
    merged = {**ours, **given, **{name: {"value": value} for name, value in more.items()}}
    return [{"name": name, **value} for name, value in merged.items()]


def _without_name(variable: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in variable.items() if field != "name"}


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _secret_key(name: str, key: str) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _image(part: Part, settings: Settings) -> dict[str, str]:
    """The operator's pull policy belongs to the operator's image; the user's image has the user's, or Kubernetes'."""
    default = settings.worker_pull_policy if part.image.name is None else ""
    policy = str(part.image.pull_policy or default)
    return {"image": part.image.name or settings.worker_image, **({"imagePullPolicy": policy} if policy else {})}


def _pod_security(context: SecurityContext) -> dict[str, Any]:
    group = _GROUP_OF_THE_WORKER_IMAGE if context.fs_group is None else context.fs_group
    ids = {"runAsUser": context.run_as_user, "runAsGroup": context.run_as_group}
    return {
        # Root only where the user wrote 0; whether it is allowed is the namespace's to say.
        "runAsNonRoot": context.run_as_user != 0,
        **{name: value for name, value in ids.items() if value is not None},
        "fsGroup": group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security(context: SecurityContext) -> dict[str, Any]:
    added = {"add": list(context.add_capabilities)} if context.add_capabilities else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **added}}


def _tolerations(part: Part) -> list[dict[str, Any]]:
    """Nodes with accelerators are tainted with their name by custom, to keep others away."""
    accelerators = part.resources.accelerators
    own = [{"key": accelerators.name, "operator": "Exists"}] if accelerators.count else []
    return own + [plain(toleration) for toleration in part.node_pool.tolerations]


def _spread(job: RLHFJob, part: Part) -> list[dict[str, Any]]:
    """Roles only: of the others there is one pod."""
    if not part.role:
        return []
    selector = {"matchLabels": names.role_labels(job.name, part.role)}
    return [{**plain(part.node_pool.topology_spread or TopologySpread()), "labelSelector": selector}]


def _users(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if not _is_foreign(key)}


def _is_foreign(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return any(domain == foreign or domain.endswith(f".{foreign}") for foreign in _FOREIGN_DOMAINS)
