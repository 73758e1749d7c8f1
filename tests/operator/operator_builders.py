"""Jobs and other objects as the API server gives them, for tests of the operator's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import yaml

from rlhf_api.names import COMPONENT_LABEL, CONTROLLER_COMPONENT, JOB_LABEL

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml"


def job(name: str = "ppo", *, namespace: str = "team", uid: str = "job-uid", **spec: Any) -> dict[str, Any]:
    """The example, under another name."""
    manifest: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    manifest["metadata"] = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-30T00:00:00Z",
    }
    manifest["spec"].update(spec)
    return manifest


def child(job_name: str, name: str, *, namespace: str = "team", **fields: Any) -> dict[str, Any]:
    """Something that belongs to a job."""
    return {"metadata": {"name": name, "namespace": namespace, "labels": {JOB_LABEL: job_name}}, **fields}


def controller_pod(job_name: str = "ppo", *, address: str = "127.0.0.1", **status: Any) -> dict[str, Any]:
    """The pod of a controller that runs."""
    pod = child(job_name, f"{job_name}-controller-x", status={"phase": "Running", "podIP": address, **status})
    pod["metadata"]["labels"][COMPONENT_LABEL] = CONTROLLER_COMPONENT
    pod["metadata"]["uid"] = "controller-pod-uid"
    return pod


def run(test: Coroutine[Any, Any, None], *, seconds: float = 30) -> None:
    """Run a test, which must end."""
    asyncio.run(asyncio.wait_for(test, seconds))


async def until(condition: Callable[[], Any], *, seconds: float = 10) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
