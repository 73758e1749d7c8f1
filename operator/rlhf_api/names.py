"""Names: what a user may choose, and what the children and labels of a job are called.

KubeRay cuts pod names, so pods are found by label and never by name. The limits below keep every other name
whole: a RayCluster name has at most 53 characters, a group's name is the role's.
"""

import re

from rlhf_api import GROUP

MANAGER = f"{GROUP}/rlhf-operator"
"""The value of `spec.managedBy` that means this operator, as its absence does."""

MAX_JOB_NAME_LENGTH = 40
MAX_JOB_AND_ROLE_NAME_LENGTH = 49
MAX_ROLE_NAME_LENGTH = MAX_JOB_AND_ROLE_NAME_LENGTH - 1
RESERVED_ROLE_NAMES = ("head", "headgroup", "controller")

DNS_1035_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

JOB_LABEL = f"{GROUP}/job"
ROLE_LABEL = f"{GROUP}/role"
ATTEMPT_LABEL = f"{GROUP}/attempt"
COMPONENT_LABEL = f"{GROUP}/component"
SPEC_HASH_ANNOTATION = f"{GROUP}/spec-hash"
"""Of what the user wrote for a child; what a new version of the operator would render from it does not matter."""
RESTART_ANNOTATION = f"{GROUP}/restart"
"""On an RLHFJob: `ROLE=ANYTHING[,ROLE=...]`; a role is restarted whenever its text here changes."""

HEAD_COMPONENT = "head"
ROLE_COMPONENT = "role"
CONTROLLER_COMPONENT = "controller"
"""The values of `COMPONENT_LABEL` on pods."""

RAY_CLUSTER_LABEL = "ray.io/cluster"
RAY_GROUP_LABEL = "ray.io/group"


def is_dns_1035(name: str) -> bool:
    """Whether a name is a DNS-1035 label, apart from its length."""
    return re.fullmatch(DNS_1035_PATTERN, name) is not None


def ray_cluster(job: str) -> str:
    """The name of a job's RayCluster."""
    return job


def controller(job: str) -> str:
    """The name of the Job that runs the control flow, and of its Service."""
    return f"{job}-controller"


def token_secret(job: str) -> str:
    """The name of the Secret that holds the job's token."""
    return f"{job}-token"


def runtime_config(job: str) -> str:
    """The name of the ConfigMap that holds the runtime's configuration."""
    return f"{job}-config"


def state_claim(job: str) -> str:
    """The name of the claim that the operator makes for a job whose manifest names no place for its state."""
    return f"{job}-state"


def network_policy(job: str) -> str:
    """The name of the job's NetworkPolicy, and of its PodMonitor."""
    return job


def head_service(job: str) -> str:
    """The name of the Service that KubeRay makes for the head."""
    return f"{ray_cluster(job)}-head-svc"


def ray_resource(role: str) -> str:
    """The custom Ray resource that pins a role's actors to the role's pods."""
    return f"role-{role}"


def job_labels(job: str) -> dict[str, str]:
    """The labels of everything that belongs to a job."""
    return {JOB_LABEL: job}


def role_labels(job: str, role: str) -> dict[str, str]:
    """The labels of everything that belongs to one role of a job."""
    return {JOB_LABEL: job, ROLE_LABEL: role}
