"""Changes of the PPO example, and the groups of its RayCluster that each must roll out."""

import copy
from typing import Any

ROLES = ("actor", "critic", "reward", "reference")
EVERYWHERE = ("headgroup", *ROLES)

CHANGES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "one role's image": ({"roles.1.image": {"name": "mine:2"}}, ("critic",)),
    "one role's memory": ({"roles.0.resources": {"cpu": "1", "memory": "4Gi"}}, ("actor",)),
    "one role's pool": ({"roles.2.nodePool": {"nodeSelector": {"pool": "new"}}}, ("reward",)),
    "one role's environment": ({"roles.3.pod": {"env": [{"name": "A", "value": "b"}]}}, ("reference",)),
    "the head's memory": ({"head": {"resources": {"memory": "8Gi"}}}, ("headgroup",)),
    "a Redis for the head": ({"head": {"gcsFaultTolerance": {"redisAddress": "redis:6379"}}}, ("headgroup",)),
    "the image of all": ({"image": {"name": "mine:2"}}, EVERYWHERE),
    "the environment of all roles": ({"env": [{"name": "A", "value": "b"}]}, ROLES),
    "a volume of all roles": ({"volumes": [{"name": "v", "mountPath": "/v", "emptyDir": {}}]}, ROLES),
    "the cache volume": ({"cacheVolume": {"persistentVolumeClaim": {"claimName": "c"}}}, ROLES),
    "a restart policy": ({"roles.0.restartPolicy": {"maxRestarts": 1}}, ()),
    "the controller's memory": ({"controller": {"resources": {"memory": "8Gi"}}}, ()),
    "more replicas": ({"roles.2.replicas": 3}, ()),
    "more steps": ({"algorithm.totalSteps": 80}, ()),
    "suspension": ({"suspend": True}, ()),
    "an empty image, which says nothing": ({"image": {}, "roles.0.pod": {}, "head": {}}, ()),
}


def edited(manifest: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of a manifest with fields of its `spec` set, by dotted path."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        target: Any = result["spec"]
        *parents, last = path.split(".")
        for part in parents:
            target = target[int(part)] if part.isdigit() else target.setdefault(part, {})
        target[last] = copy.deepcopy(value)
    return result
