"""Stand-ins for the controllers of many jobs, for `operator_scale.py`: the real JobControl server, and no Ray under it.

Behind the controllers' pods on fake nodes there is no process. This one listens at the addresses of all of them, each
with its own job's token and certificate, and reports a training that does a step every few seconds.

    python -m bench.stand_in_controllers NAMESPACE SECONDS_PER_STEP
"""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from e2e.cluster import api
from rlhf_api import in_pod, names
from rlhf_api.job_control import messages
from rlhf_api.types import RLHFJob
from rlhf_runtime.service.board import Board, RoleState
from rlhf_runtime.service.server import ControlServer, Credentials, JobControl

_CONTROLLERS = f"labelSelector={names.COMPONENT_LABEL}%3D{names.CONTROLLER_COMPONENT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Controller:
    board: Board
    server: ControlServer  # which stops when nobody holds it
    address: str
    began: float


def main(namespace: str, seconds: float) -> None:
    """Serve until killed."""
    serving: dict[str, _Controller] = {}
    while True:
        for pod in api.call(f"/api/v1/namespaces/{namespace}/pods?{_CONTROLLERS}")["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            name, address = pod["metadata"]["labels"][names.JOB_LABEL], pod["status"].get("podIP")
            held = serving.get(name)
            if address and (held is None or held.address != address):
                if held is not None:
                    serving.pop(name).server.stop(grace=0)  # the pod was replaced; its address may be another's now
                if address in {other.address for other in serving.values()}:
                    # KWOK gives a few addresses twice; the pod that comes in its place gets another.
                    api.call(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", method="DELETE")
                    continue
                serving[name] = _serve(namespace, name, address)
        started = time.monotonic()
        for controller in serving.values():
            # Spread over the time of a step, as jobs that know nothing of each other are.
            delay = seconds * random.random()
            threading.Timer(delay, _step, (controller, seconds)).start()
        time.sleep(max(0.0, seconds - (time.monotonic() - started)))


def _serve(namespace: str, name: str, address: str) -> _Controller:
    path = f"/apis/rlhf.dev/v1alpha1/namespaces/{namespace}/rlhfjobs/{name}"
    job = RLHFJob.model_validate_json(json.dumps(api.call(path)), strict=True, by_alias=True, by_name=False)
    board = Board()
    board.begin(job)
    board.taken_over(1, [], [])
    for role in job.spec.roles:
        board.role(RoleState(name=role.name, desired=role.replicas, ready=role.replicas))
    board.tell(messages.TRAINING, "Training.")
    service = JobControl(board=board, engine=lambda: None, suspend=lambda: None, log=lambda text: None)
    secret = api.call(f"/api/v1/namespaces/{namespace}/secrets/{names.token_secret(name)}")["data"]
    server = ControlServer(service, _credentials(secret), port=in_pod.CONTROL_PORT, host=address)
    return _Controller(board=board, server=server, address=address, began=time.time())


def _credentials(data: dict[str, Any]) -> Credentials:
    value = {key: base64.b64decode(text) for key, text in data.items()}
    return Credentials(
        token=value[in_pod.CONTROL_TOKEN_KEY].decode(),
        certificate=value[in_pod.TLS_CERTIFICATE_KEY],
        key=value[in_pod.TLS_KEY_KEY],
    )


def _step(controller: _Controller, seconds: float) -> None:
    step = controller.board.last_step + 1
    metrics = {"reward": 1 - 0.99**step}
    ended = controller.began + step * seconds
    controller.board.step(step, metrics=metrics, evaluation={}, ended=ended, seconds=seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
