"""JobControl and health as the operator and the kubelet call them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rlhf_api.job_control import messages, stubs

CALL_SECONDS = 30.0


class ControlClient:
    """Trusts one certificate and carries one token; the other way for tests that must be refused."""

    def __init__(self, port: int, *, certificate: bytes, token: str | None, host: str) -> None:
        credentials = grpc.ssl_channel_credentials(certificate)
        options = (("grpc.ssl_target_name_override", host),)
        self.channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self.stub: Any = stubs.JobControlStub(self.channel)
        self.metadata: Sequence[tuple[str, str]] = () if token is None else (("authorization", f"Bearer {token}"),)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def call(self, method: str, request: Any) -> Any:
        return getattr(self.stub, method)(request, metadata=self.metadata, timeout=CALL_SECONDS)

    def report(self) -> messages.Report:
        return self.call("GetReport", messages.GetReportRequest())

    def refusal(self, method: str, request: Any) -> tuple[grpc.StatusCode, str]:
        """The status of a call that must not succeed."""
        try:
            answer = self.call(method, request)
            list(answer) if method == "WatchReports" else None
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"{method} was answered: {answer}")


def health_of(port: int, service: str = "") -> str:
    """SERVING or NOT_SERVING."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=CALL_SECONDS, wait_for_ready=True)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))
