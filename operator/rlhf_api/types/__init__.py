"""The models of an RLHFJob, one module per part of the manifest."""

from rlhf_api.types.algorithm import (
    GRPO,
    PPO,
    Algorithm,
    CustomAlgorithm,
    Evaluation,
    Generation,
    Optimizer,
)
from rlhf_api.types.base import ApiModel, Rule
from rlhf_api.types.container import Image
from rlhf_api.types.engine import VLLM, EngineSpec, LoRA
from rlhf_api.types.job import ObjectMeta, RLHFJob, RLHFJobSpec
from rlhf_api.types.model import (
    BuiltinModel,
    Data,
    FileData,
    HuggingFaceData,
    HuggingFaceModel,
    Model,
    ProceduralData,
)
from rlhf_api.types.pod import Accelerators, NodePool, PodOverlay, Resources
from rlhf_api.types.restart import Backoff, RestartPolicy, RestartRule
from rlhf_api.types.roles import AUTO, Role, WorkerSpec
from rlhf_api.types.state import Controller, Head, State, StateLocation
from rlhf_api.types.status import Condition, Failure, Progress, RLHFJobStatus, RoleStatus

__all__ = [
    "AUTO",
    "GRPO",
    "PPO",
    "VLLM",
    "Accelerators",
    "Algorithm",
    "ApiModel",
    "Backoff",
    "BuiltinModel",
    "Condition",
    "Controller",
    "CustomAlgorithm",
    "Data",
    "EngineSpec",
    "Evaluation",
    "Failure",
    "FileData",
    "Generation",
    "Head",
    "HuggingFaceData",
    "HuggingFaceModel",
    "Image",
    "LoRA",
    "Model",
    "NodePool",
    "ObjectMeta",
    "Optimizer",
    "PodOverlay",
    "ProceduralData",
    "Progress",
    "RLHFJob",
    "RLHFJobSpec",
    "RLHFJobStatus",
    "Resources",
    "RestartPolicy",
    "RestartRule",
    "Role",
    "RoleStatus",
    "Rule",
    "State",
    "StateLocation",
    "WorkerSpec",
]
