"""The standard gRPC health service, for the kubelet's probes: without TLS, which the kubelet does not speak.

| service | serving means | what the kubelet does otherwise |
|---|---|---|
| "" | alive: whatever the run waits for, it can still go on | ends the container; another pod goes on |
| `ready` | the run waits for places, starts roles or trains | nothing; people and tests look at it |
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from rlhf_api.in_pod import READY_SERVICE

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthService:
    """Serves from construction on: alive, not ready.

    Raises:
        RuntimeError: The port is taken.
    """

    def __init__(self, port: int) -> None:
        self._servicer = health.HealthServicer()
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=4, thread_name_prefix="rlhf-health"), options=(("grpc.so_reuseport", 0),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        self.port = self._server.add_insecure_port(f"[::]:{port}")
        self.tell(alive=True, ready=False)
        self._server.start()

    def tell(self, *, alive: bool, ready: bool) -> None:
        """Answer so from now on."""
        self._servicer.set("", _SERVING if alive else _NOT_SERVING)
        self._servicer.set(READY_SERVICE, _SERVING if ready else _NOT_SERVING)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.stop(grace=0)
