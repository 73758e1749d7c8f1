"""The public names of the runtime, as a script imports them: `from rlhf_runtime.api import Controller, Role`."""

from rlhf_runtime.control.channels import Channels, DataChannel
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.future import DataProtoFuture
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import RlhfError, StepError
from rlhf_runtime.resource_pool import RayResourcePool
from rlhf_runtime.role import Role
from rlhf_runtime.values import Loss, TokenizedText
from rlhf_runtime.worker import BaseWorker, Dispatch, Effect, Worker, WorkerContext, register
from rlhf_runtime.worker_group import RayClassWithInitArgs, RayWorkerGroup, WorkerGroup, default_controller

__all__ = [
    "BaseWorker",
    "Channels",
    "Controller",
    "DataChannel",
    "DataProto",
    "DataProtoFuture",
    "Dispatch",
    "Effect",
    "EngineSettings",
    "Loss",
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "RlhfError",
    "Role",
    "StepError",
    "TokenizedText",
    "Worker",
    "WorkerContext",
    "WorkerGroup",
    "default_controller",
    "register",
]
