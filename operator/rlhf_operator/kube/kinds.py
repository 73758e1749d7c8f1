"""The kinds of objects that the operator handles, and the addresses of these on the API server."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_api import API_VERSION, KIND
from rlhf_api.names import JOB_LABEL
from rlhf_operator.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind.

    Attributes:
        api_version: Such as `batch/v1`.
        kind: Such as `Job`.
        plural: Such as `jobs`.
        optional: Whether a cluster may lack it.
    """

    api_version: str
    kind: str
    plural: str
    optional: bool = False

    @property
    def group(self) -> str:
        """The API group; "" is the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"

    def path(self, namespace: str | None, name: str | None = None, *, subresource: str = "") -> str:
        """The path of an object, or of the list of them in one namespace or in all."""
        parts = [self.root]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


RLHF_JOB = Kind(api_version=API_VERSION, kind=KIND, plural="rlhfjobs")
RAY_CLUSTER = Kind(api_version="ray.io/v1", kind="RayCluster", plural="rayclusters", optional=True)
POD = Kind(api_version="v1", kind="Pod", plural="pods")
JOB = Kind(api_version="batch/v1", kind="Job", plural="jobs")
CONFIG_MAP = Kind(api_version="v1", kind="ConfigMap", plural="configmaps")
SERVICE = Kind(api_version="v1", kind="Service", plural="services")
CLAIM = Kind(api_version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
NETWORK_POLICY = Kind(api_version="networking.k8s.io/v1", kind="NetworkPolicy", plural="networkpolicies")
POD_MONITOR = Kind(api_version="monitoring.coreos.com/v1", kind="PodMonitor", plural="podmonitors", optional=True)
SECRET = Kind(api_version="v1", kind="Secret", plural="secrets")
EVENT = Kind(api_version="v1", kind="Event", plural="events")
LEASE = Kind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")

ALL = (
    RLHF_JOB,
    RAY_CLUSTER,
    POD,
    JOB,
    CONFIG_MAP,
    SERVICE,
    CLAIM,
    NETWORK_POLICY,
    POD_MONITOR,
    SECRET,
    EVENT,
    LEASE,
)
CHILDREN = (CONFIG_MAP, SERVICE, CLAIM, NETWORK_POLICY, POD_MONITOR)
"""What a job has besides its RayCluster, its controller's Job and its pods. Its Secret may not be read."""

SELECTOR = JOB_LABEL
"""Selects what belongs to a job of ours, by having the label at all; for all kinds but RLHFJob."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}


def watched(settings: Settings) -> tuple[Kind, ...]:
    """The kinds of which the operator keeps a copy of all that is labelled as a job's."""
    kinds = [RLHF_JOB, RAY_CLUSTER, POD, JOB, CONFIG_MAP, SERVICE, CLAIM]
    if settings.network_policies:
        kinds.append(NETWORK_POLICY)
    if settings.pod_monitors:
        kinds.append(POD_MONITOR)
    return tuple(kinds)


def of(api_version: str, kind: str) -> Kind:
    """The kind of these names.

    Raises:
        KeyError: The operator does not handle it.
    """
    return _BY_NAME[api_version, kind]
