"""The public names of the runtime, as a script imports them: `from rlhf_runtime.api import Controller, Role`."""

from rlhf_runtime.control.channels import Channels, DataChannel
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import RlhfError, StepError
from rlhf_runtime.role import Role
from rlhf_runtime.values import Loss, TokenizedText
from rlhf_runtime.worker import BaseWorker, Dispatch, Effect, Worker, WorkerContext, register

__all__ = [
    "BaseWorker",
    "Channels",
    "Controller",
    "DataChannel",
    "DataProto",
    "Dispatch",
    "Effect",
    "EngineSettings",
    "Loss",
    "RlhfError",
    "Role",
    "StepError",
    "TokenizedText",
    "Worker",
    "WorkerContext",
    "register",
]
