from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    WAITING_FOR_PLACES: _ClassVar[Phase]
    PREPARING: _ClassVar[Phase]
    STARTING_ROLES: _ClassVar[Phase]
    TRAINING: _ClassVar[Phase]
    STOPPING: _ClassVar[Phase]
PHASE_UNSPECIFIED: Phase
WAITING_FOR_PLACES: Phase
PREPARING: Phase
STARTING_ROLES: Phase
TRAINING: Phase
STOPPING: Phase

class GetReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Report(_message.Message):
    __slots__ = ("epoch", "phase", "message", "progress", "roles", "incidents", "time")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    phase: Phase
    message: str
    progress: Progress
    roles: _containers.RepeatedCompositeFieldContainer[RoleReport]
    incidents: _containers.RepeatedCompositeFieldContainer[Incident]
    time: float
    def __init__(self, epoch: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., message: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., roles: _Optional[_Iterable[_Union[RoleReport, _Mapping]]] = ..., incidents: _Optional[_Iterable[_Union[Incident, _Mapping]]] = ..., time: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("step", "total_steps", "reward", "evaluation", "snapshot_step", "started", "effective_training_time_ratio")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_STEP_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_TRAINING_TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    step: int
    total_steps: int
    reward: float
    evaluation: float
    snapshot_step: int
    started: float
    effective_training_time_ratio: float
    def __init__(self, step: _Optional[int] = ..., total_steps: _Optional[int] = ..., reward: _Optional[float] = ..., evaluation: _Optional[float] = ..., snapshot_step: _Optional[int] = ..., started: _Optional[float] = ..., effective_training_time_ratio: _Optional[float] = ...) -> None: ...

class RoleReport(_message.Message):
    __slots__ = ("name", "desired", "ready", "restarts", "uncounted_restarts", "class_name", "training_engine", "rollout_engine", "last_recovery_milliseconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    TRAINING_ENGINE_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_ENGINE_FIELD_NUMBER: _ClassVar[int]
    LAST_RECOVERY_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    desired: int
    ready: int
    restarts: int
    uncounted_restarts: int
    class_name: str
    training_engine: str
    rollout_engine: str
    last_recovery_milliseconds: int
    def __init__(self, name: _Optional[str] = ..., desired: _Optional[int] = ..., ready: _Optional[int] = ..., restarts: _Optional[int] = ..., uncounted_restarts: _Optional[int] = ..., class_name: _Optional[str] = ..., training_engine: _Optional[str] = ..., rollout_engine: _Optional[str] = ..., last_recovery_milliseconds: _Optional[int] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ("id", "role", "worker", "rank", "reason", "exit_code", "pod", "node", "time", "message", "step", "counted")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    id: str
    role: str
    worker: str
    rank: int
    reason: str
    exit_code: int
    pod: str
    node: str
    time: float
    message: str
    step: int
    counted: bool
    def __init__(self, id: _Optional[str] = ..., role: _Optional[str] = ..., worker: _Optional[str] = ..., rank: _Optional[int] = ..., reason: _Optional[str] = ..., exit_code: _Optional[int] = ..., pod: _Optional[str] = ..., node: _Optional[str] = ..., time: _Optional[float] = ..., message: _Optional[str] = ..., step: _Optional[int] = ..., counted: _Optional[bool] = ...) -> None: ...

class RestartRoleRequest(_message.Message):
    __slots__ = ("role", "reason")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    role: str
    reason: str
    def __init__(self, role: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RestartRoleReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScaleRoleRequest(_message.Message):
    __slots__ = ("role", "replicas")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    role: str
    replicas: int
    def __init__(self, role: _Optional[str] = ..., replicas: _Optional[int] = ...) -> None: ...

class ScaleRoleReply(_message.Message):
    __slots__ = ("idle_pods",)
    IDLE_PODS_FIELD_NUMBER: _ClassVar[int]
    idle_pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, idle_pods: _Optional[_Iterable[str]] = ...) -> None: ...

class ExpectLossRequest(_message.Message):
    __slots__ = ("role", "reason", "seconds")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    role: str
    reason: str
    seconds: float
    def __init__(self, role: _Optional[str] = ..., reason: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class ExpectLossReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SuspendReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
