"""Calls a job's controller: gRPC over TLS that trusts exactly the job's certificate, with the job's token.

A controller is called by its pod's address, since the Service's name may still lead to its predecessor. What the
certificate and the token are follows from the operator's key and the job's UID, so nothing has to be read for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from rlhf_api.in_pod import CONTROL_PORT
from rlhf_api.job_control import messages, stubs
from rlhf_api.types import RLHFJob
from rlhf_operator.control.reports import report_of
from rlhf_operator.planning.plan import Call, ExpectLoss, RestartRole, ScaleRole
from rlhf_operator.planning.snapshot import Object, Report
from rlhf_operator.telemetry.logging import log

REPORT_SECONDS = 2.0
CALL_SECONDS = 10.0
_AWAY_SECONDS = 5.0
"""After a controller did not answer, it is not asked for its report for so long: each time costs `REPORT_SECONDS`."""


class Credentials(Protocol):
    """What `rlhf_operator.manifests.secret.credentials` gives."""

    @property
    def control_token(self) -> str:
        """Sent with every call."""

    @property
    def certificate_pem(self) -> bytes:
        """The one certificate that is trusted."""

    @property
    def server_name(self) -> str:
        """The name in it."""


class ControlError(Exception):
    """A controller could not be called, or refuses.

    Attributes:
        kind: One word for metrics.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class _Connection:
    pod: str
    channel: grpc.aio.Channel
    stub: Any
    metadata: tuple[tuple[str, str], ...]
    away_until: float = 0.0
    silent: bool = False
    idle_pods: dict[str, tuple[str, ...]] = field(default_factory=dict)


class ControlClient:
    """Calls controllers; one connection for each, kept while its pod is the one to call.

    Args:
        credentials: Of a job.
        clock: Of this process, seconds.
        port: Where controllers listen.
    """

    def __init__(
        self,
        credentials: Callable[[RLHFJob], Credentials],
        *,
        clock: Callable[[], float],
        port: int = CONTROL_PORT,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._port = port
        self._connections: dict[str, _Connection] = {}

    async def report(self, job: RLHFJob, pod: Object | None) -> Report | None:
        """What the controller in a pod says; None if there is no pod, or it does not answer in time."""
        if pod is None:
            await self.forget(_key(job))
            return None
        connection = await self._connect(job, pod)
        if self._clock() < connection.away_until:
            return None
        try:
            reply = await connection.stub.GetReport(
                messages.GetReportRequest(), timeout=REPORT_SECONDS, metadata=connection.metadata
            )
        except grpc.aio.AioRpcError as error:
            connection.away_until = self._clock() + _AWAY_SECONDS
            level = "debug" if connection.silent else "warning"
            log("the controller gives no report", job=_key(job), pod=connection.pod, error=_said(error), level=level)
            connection.silent = True
            return None
        connection.silent = False
        return report_of(reply)

    async def call(self, job: RLHFJob, pod: Object | None, call: Call) -> None:
        """Tell a controller something.

        Raises:
            ControlError: There is none, it does not answer, or it refuses.
        """
        if pod is None:
            raise ControlError("no controller runs that could be told", kind="NoController")
        connection = await self._connect(job, pod)
        method, request = _request(connection.stub, call)
        try:
            reply = await method(request, timeout=CALL_SECONDS, metadata=connection.metadata)
        except grpc.aio.AioRpcError as error:
            message = f"the controller does not take {type(call).__name__}: {_said(error)}"
            raise ControlError(message, kind=error.code().name) from error
        if isinstance(call, ScaleRole):
            connection.idle_pods[call.role] = tuple(reply.idle_pods)

    def idle_pods(self, job: RLHFJob) -> Mapping[str, Sequence[str]]:
        """By role, the pods that hold no replica any more, as the controller answered to the last `ScaleRole`."""
        connection = self._connections.get(_key(job))
        return dict(connection.idle_pods) if connection is not None else {}

    async def forget(self, key: str) -> None:
        """Close the connection to the controller of a job, `NAMESPACE/NAME`."""
        connection = self._connections.pop(key, None)
        if connection is not None:
            await connection.channel.close()

    async def close(self) -> None:
        """Close all connections."""
        for key in list(self._connections):
            await self.forget(key)

    async def _connect(self, job: RLHFJob, pod: Object) -> _Connection:
        key = _key(job)
        pod_uid = f"{pod['metadata']['uid']}/{pod['status']['podIP']}"
        known = self._connections.get(key)
        if known is not None and known.pod == pod_uid:
            return known
        await self.forget(key)
        credentials = await asyncio.to_thread(self._credentials, job)
        address = pod["status"]["podIP"]
        target = f"[{address}]:{self._port}" if ":" in address else f"{address}:{self._port}"
        channel = grpc.aio.secure_channel(
            target,
            grpc.ssl_channel_credentials(root_certificates=credentials.certificate_pem),
            options=(
                ("grpc.ssl_target_name_override", credentials.server_name),
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_reconnect_backoff_ms", 5000),
                ("grpc.initial_reconnect_backoff_ms", 500),
                ("grpc.use_local_subchannel_pool", 1),
            ),
        )
        metadata = (("authorization", f"Bearer {credentials.control_token}"),)
        made = _Connection(pod_uid, channel, stubs.JobControlStub(channel), metadata)
        self._connections[key] = made
        return made


def _key(job: RLHFJob) -> str:
    return f"{job.metadata.namespace}/{job.name}"


def _request(stub: Any, call: Call) -> tuple[Any, Any]:
    if isinstance(call, ScaleRole):
        return stub.ScaleRole, messages.ScaleRoleRequest(role=call.role, replicas=call.replicas)
    if isinstance(call, ExpectLoss):
        request = messages.ExpectLossRequest(role=call.role, reason=call.reason, seconds=call.seconds)
        return stub.ExpectLoss, request
    if isinstance(call, RestartRole):
        return stub.RestartRole, messages.RestartRoleRequest(role=call.role, reason=call.reason)
    return stub.Suspend, messages.SuspendRequest()


def _said(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details() or 'no details'}"
