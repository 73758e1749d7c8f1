"""Every closed set of words in the API. The values are what a user writes and what status shows."""

from enum import StrEnum


class AlgorithmName(StrEnum):
    """The control flow that drives a job."""

    PPO = "PPO"
    GRPO = "GRPO"
    CUSTOM = "Custom"


class Schedule(StrEnum):
    """How far generation may run ahead of learning."""

    SYNCHRONOUS = "Synchronous"
    ONE_STEP_OFF = "OneStepOff"


class RoleType(StrEnum):
    """What a role does in the algorithm."""

    ACTOR = "Actor"
    CRITIC = "Critic"
    REWARD = "Reward"
    REFERENCE = "Reference"
    ROLLOUT = "Rollout"
    RULE = "Rule"
    CUSTOM = "Custom"

    @property
    def trains(self) -> bool:
        """Whether the role changes its own weights, which fixes it at one replica."""
        return self in (RoleType.ACTOR, RoleType.CRITIC)

    @property
    def rewards(self) -> bool:
        """Whether the role scores samples with a reward."""
        return self in (RoleType.REWARD, RoleType.RULE)


class RestartScope(StrEnum):
    """How much of a role restarts when a part of it dies."""

    AUTO = "Auto"
    ROLE = "Role"
    REPLICA = "Replica"


class RestartAction(StrEnum):
    """What to do about one failure."""

    RESTART_ROLE = "RestartRole"
    RESTART_REPLICA = "RestartReplica"
    RESTART_JOB = "RestartJob"
    FAIL_JOB = "FailJob"


class ExhaustedAction(StrEnum):
    """What to do when a role has used up its restarts."""

    FAIL_JOB = "FailJob"
    RESTART_JOB = "RestartJob"
    DEGRADE = "Degrade"


class DegradeMode(StrEnum):
    """What takes the place of the scores of a role that is gone."""

    CACHED_SCORES = "CachedScores"
    MASK_SAMPLES = "MaskSamples"


class FailureReason(StrEnum):
    """Why a process or pod of a role ended."""

    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    CUDA_OUT_OF_MEMORY = "CUDAOutOfMemory"
    EXCEPTION = "Exception"
    SEGMENTATION_FAULT = "SegmentationFault"
    ABORTED = "Aborted"
    KILLED = "Killed"
    EXITED = "Exited"
    START_TIMEOUT = "StartTimeout"
    HANG = "Hang"
    METHOD_TIMEOUT = "MethodTimeout"
    NODE_LOST = "NodeLost"
    NODE_DRAINED = "NodeDrained"
    PREEMPTED = "Preempted"
    EVICTED = "Evicted"
    DELETED_BY_USER = "DeletedByUser"
    DEVICE_ERROR = "DeviceError"
    UNKNOWN = "Unknown"


class TrainingEngine(StrEnum):
    """What runs a role's forward and backward passes."""

    AUTO = "Auto"
    TORCH = "Torch"
    FSDP2 = "FSDP2"


class RolloutEngine(StrEnum):
    """What generates a role's tokens."""

    AUTO = "Auto"
    CACHED = "Cached"
    HUGGING_FACE = "HuggingFace"
    VLLM = "VLLM"


class WeightSync(StrEnum):
    """How the Actor's weights reach a Rollout role."""

    AUTO = "Auto"
    OBJECT_STORE = "ObjectStore"
    STATE_STORE = "StateStore"
    COLLECTIVE = "Collective"


class Precision(StrEnum):
    """The number format of a role's weights and activations."""

    AUTO = "Auto"
    FLOAT32 = "Float32"
    BFLOAT16 = "BFloat16"


class FileFormat(StrEnum):
    """The format of data files."""

    JSONL = "JSONL"
    PARQUET = "Parquet"


class BuiltinModelName(StrEnum):
    """Models that the runtime makes by itself."""

    SPELLING_TINY = "spelling-tiny"


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls an image, as in a pod."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class TolerationOperator(StrEnum):
    """How a toleration compares a taint's value, as in a pod."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """The taint effect that a toleration covers, as in a pod."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class SpreadPolicy(StrEnum):
    """Whether a spread that cannot be had keeps pods from being scheduled."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class ConditionType(StrEnum):
    """The conditions of a job; `Complete` and `Failed` end it."""

    CLUSTER_READY = "ClusterReady"
    ROLES_READY = "RolesReady"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class ConditionStatus(StrEnum):
    """The state of a condition, as everywhere in Kubernetes."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
