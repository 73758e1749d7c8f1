"""Jobs as an API server gives them, in the states that users meet."""

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
EXAMPLE = Path(__file__).parent / "golden" / "job.yaml"
NOW = datetime(2026, 11, 30, 12, 4, 32, tzinfo=UTC)
MANIFEST: Object = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))


def condition(kind: str, status: str, reason: str, message: str = "", at: str = "12:01:00") -> Object:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": f"2026-11-30T{at}Z", "observedGeneration": 1,
    }  # fmt: skip


def job(name: str = "ppo-spelling", *, namespace: str = "ml", suspend: bool = False, **status: Any) -> Object:
    made = copy.deepcopy(MANIFEST)
    made["metadata"] = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1, "resourceVersion": "5",
        "creationTimestamp": "2026-11-30T12:00:00Z",
    }  # fmt: skip
    if suspend:
        made["spec"]["suspend"] = True
    if status:
        made["status"] = status
    return made


def role(name: str, kind: str, **fields: Any) -> Object:
    return {"name": name, "type": kind, "desired": 1, "ready": 1, "restarts": 0, "uncountedRestarts": 0, **fields}


ROLES = [role("actor", "Actor"), role("critic", "Critic"), role("reward", "Reward"), role("reference", "Reference")]
PROGRESS = {
    "step": 12, "totalSteps": 40, "reward": "0.531", "evaluation": "0.31", "snapshotStep": 10,
    "effectiveTrainingTimeRatio": "0.97", "time": "2026-11-30T12:04:25Z",
}  # fmt: skip
KILLED = {
    "reason": "Killed", "exitCode": 137, "rank": 0, "pod": "ppo-spelling-critic-worker-x7k2p", "node": "a100-1",
    "time": "2026-11-30T12:02:30Z", "message": "step 7 critic.update\nKilled",
}  # fmt: skip


def training(name: str = "ppo-spelling") -> Object:
    critic = role("critic", "Critic", restarts=1, uncountedRestarts=1, lastFailure=KILLED)
    return job(
        name,
        summary="Training",
        rolesReady="4/4",
        restarts=1,
        roles=[ROLES[0], critic, *ROLES[2:]],
        progress=PROGRESS,
        observedGeneration=1,
        conditions=[
            condition("ClusterReady", "True", "ClusterReady"),
            condition("RolesReady", "True", "RolesReady"),
            condition("Running", "True", "Training", "Step 13 of 40."),
        ],
    )


def waiting() -> Object:
    message = (
        'role "critic": 0 of 1 pods are placed: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu. It asks for '
        "1 nvidia.com/gpu on nodes with pool=critic: add such a node, or change `nodePool` or `resources` of the role"
    )
    failed = {
        **KILLED,
        "reason": "CUDAOutOfMemory",
        "exitCode": 1,
        "message": "torch.OutOfMemoryError: CUDA out of memory",
    }
    critic = role("critic", "Critic", ready=0, lastFailure=failed, nextRestartTime="2026-11-30T12:05:12Z")
    return job(
        summary="Starting",
        rolesReady="3/4",
        roles=[ROLES[0], critic, *ROLES[2:]],
        observedGeneration=1,
        conditions=[
            condition("ClusterReady", "True", "ClusterReady"),
            condition("RolesReady", "False", "Unschedulable", message),
            condition("Running", "False", "NotStarted"),
        ],
    )


def complete() -> Object:
    return job(
        summary="Complete",
        rolesReady="0/4",
        roles=[role(found["name"], found["type"], ready=0, desired=0) for found in ROLES],
        progress={**PROGRESS, "step": 40, "evaluation": "0.945", "snapshotStep": 40},
        observedGeneration=1,
        conditions=[
            condition("Running", "False", "Finished"),
            condition("Complete", "True", "AllStepsDone", "All 40 steps are done.", at="12:04:00"),
        ],
    )


def failed() -> Object:
    cause = "role \"reward\": my_rewards:length: ModuleNotFoundError: No module named 'my_rewards'"
    return job(
        summary="Failed",
        rolesReady="0/4",
        roles=[role(found["name"], found["type"], ready=0, desired=0) for found in ROLES],
        observedGeneration=1,
        conditions=[condition("Failed", "True", "WorkerImportFailed", cause, at="12:04:00")],
    )


def suspended() -> Object:
    return job(
        suspend=True,
        summary="Suspended",
        rolesReady="0/4",
        roles=[role(found["name"], found["type"], ready=0, desired=0) for found in ROLES],
        progress=PROGRESS,
        observedGeneration=1,
        conditions=[condition("Suspended", "True", "Suspended", "Saved after step 12; no pods are left.")],
    )


def event(reason: str, message: str, at: str, kind: str = "Normal", **fields: Any) -> Object:
    return {
        "metadata": {"namespace": "ml", "name": f"e-{at}"}, "type": kind, "reason": reason, "message": message,
        "lastTimestamp": f"2026-11-30T{at}Z",
        "involvedObject": {"kind": "RLHFJob", "name": "ppo-spelling", "uid": "uid-ppo-spelling"}, **fields,
    }  # fmt: skip


EVENTS = [
    event("TrainingStarted", "The first step began.", "12:01:00"),
    event("RoleRestarted", "critic rank 0 in pod ppo-spelling-critic-worker-x7k2p on node a100-1 was killed at step 7 "
          "(exit code 137); restarted alone", "12:02:30", "Warning"),
    event("RolesReady", "All 4 roles are ready.", "12:00:55"),
]  # fmt: skip
