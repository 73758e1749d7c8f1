"""The CamelCase reasons of a job's conditions.

A reason is part of the API: scripts match on it. The message beside it is for people and says what to do.
"""

from enum import StrEnum


class ConditionReason(StrEnum):
    """Why a condition has its status."""

    # ClusterReady
    CLUSTER_CREATING = "ClusterCreating"
    CLUSTER_READY = "ClusterReady"
    CLUSTER_INVALID = "ClusterInvalid"
    KUBERAY_MISSING = "KubeRayMissing"
    HEAD_LOST = "HeadLost"
    HEAD_NOT_READY = "HeadNotReady"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    NAME_TAKEN = "NameTaken"
    OBJECT_REFUSED = "ObjectRefused"

    # RolesReady
    ROLES_READY = "RolesReady"
    WAITING_FOR_PODS = "WaitingForPods"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    VOLUME_MISSING = "VolumeMissing"
    REFERENCE_MISSING = "ReferenceMissing"
    PODS_REFUSED = "PodsRefused"
    PODS_FAILING = "PodsFailing"
    LOADING_MODELS = "LoadingModels"
    RECOVERING = "Recovering"
    SCALING = "Scaling"
    BACKING_OFF = "BackingOff"

    # Running
    TRAINING = "Training"
    NOT_STARTED = "NotStarted"
    CONTROLLER_LOST = "ControllerLost"
    FINISHED = "Finished"

    # Degraded
    ALL_ROLES_WHOLE = "AllRolesWhole"
    ROLE_DEGRADED = "RoleDegraded"

    # Suspended
    NOT_SUSPENDED = "NotSuspended"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"

    # Complete and Failed
    ALL_STEPS_DONE = "AllStepsDone"
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    FAILURE_RULE = "FailureRule"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    CONTROLLER_FAILED = "ControllerFailed"
    REPEATED_EXCEPTION = "RepeatedException"
    WORKER_IMPORT_FAILED = "WorkerImportFailed"
    WORKER_EXCEPTION = "WorkerException"
    STATE_UNREACHABLE = "StateUnreachable"
    INVALID_SPEC = "InvalidSpec"
