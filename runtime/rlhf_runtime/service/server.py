"""JobControl: what the operator asks of the controller, over TLS and with the job's token.

Every call answers at once: what takes time (a restart, a scaling, the way to a suspension) is seen in the reports that
follow. Calls that change roles go straight to the engine, which takes its own lock.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from rlhf_api import in_pod
from rlhf_api.enums import FailureReason
from rlhf_api.job_control import messages, stubs
from rlhf_runtime.errors import RlhfError, ScalingRefusedError, UnknownRoleError
from rlhf_runtime.service.board import Board

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine

_THREADS = 16
_SECONDS_BETWEEN_REPORTS = 1.0
_PATIENCE = 5.0  # after which a watcher that hears nothing is looked at: is it still there


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a caller must have, and what it may trust: files of the job's Secret."""

    token: str
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, folder: Path) -> Credentials:
        """From the mounted Secret.

        Raises:
            OSError: A file is not there.
        """
        return cls(
            token=(folder / in_pod.CONTROL_TOKEN_KEY).read_text(encoding="utf-8").strip(),
            certificate=(folder / in_pod.TLS_CERTIFICATE_KEY).read_bytes(),
            key=(folder / in_pod.TLS_KEY_KEY).read_bytes(),
        )


class JobControl(stubs.JobControlServicer):
    """Answers the calls.

    Args:
        board: What is known of the run.
        engine: The run's engine, once there is one and while it serves.
        suspend: Asks the run to stop; returns at once.
        log: Told of each call that changes something.
    """

    def __init__(
        self,
        *,
        board: Board,
        engine: Callable[[], Engine | None],
        suspend: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._board = board
        self._engine = engine
        self._suspend = suspend
        self._log = log

    def GetReport(self, request: messages.GetReportRequest, context: grpc.ServicerContext) -> messages.Report:  # noqa: N802
        """The board."""
        return self._board.report()

    def WatchReports(  # noqa: N802
        self, request: messages.GetReportRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.Report]:
        """The board, now and after each change."""
        seen = self._board.wait(-1, timeout=0.0)
        yield self._board.report()
        while context.is_active():
            told = time.monotonic()
            newest = self._board.wait(seen, timeout=_PATIENCE)
            if newest == seen:
                continue
            wait = _SECONDS_BETWEEN_REPORTS - (time.monotonic() - told)
            if wait > 0:
                time.sleep(wait)  # what changes meanwhile comes with the same report
            seen = self._board.wait(-1, timeout=0.0)
            yield self._board.report()

    def RestartRole(  # noqa: N802
        self, request: messages.RestartRoleRequest, context: grpc.ServicerContext
    ) -> messages.RestartRoleReply:
        """End a role's processes and start them anew."""
        reason = request.reason or "asked for"
        self._log(f'restart of role "{request.role}": {reason}')
        self._change_roles(context, lambda engine: engine.restart_role(request.role, reason=reason))
        return messages.RestartRoleReply()

    def ScaleRole(  # noqa: N802
        self, request: messages.ScaleRoleRequest, context: grpc.ServicerContext
    ) -> messages.ScaleRoleReply:
        """Change the number of a role's replicas."""
        self._log(f'role "{request.role}" is to have {request.replicas} replicas')
        pods = self._change_roles(context, lambda engine: engine.scale_role(request.role, request.replicas))
        return messages.ScaleRoleReply(idle_pods=pods)

    def ExpectLoss(  # noqa: N802
        self, request: messages.ExpectLossRequest, context: grpc.ServicerContext
    ) -> messages.ExpectLossReply:
        """Deaths that are about to come are not counted."""
        try:
            reason = FailureReason(request.reason)
        except ValueError:
            words = ", ".join(reason.value for reason in FailureReason)
            _refuse(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                f'`reason` must be one of {words}; got "{request.reason}"',
            )
        self._log(f'pods of role "{request.role}" will be replaced: {reason.value}')
        self._change_roles(
            context, lambda engine: engine.expect_loss(request.role, reason=reason, seconds=request.seconds)
        )
        return messages.ExpectLossReply()

    def Suspend(self, request: messages.SuspendRequest, context: grpc.ServicerContext) -> messages.SuspendReply:  # noqa: N802
        """Ask for the end; asking again changes nothing."""
        self._suspend()
        return messages.SuspendReply()

    def _change_roles(self, context: grpc.ServicerContext, change: Callable[[Engine], Any]) -> Any:
        engine = self._engine()
        if engine is None or engine.closed:
            phase = messages.Phase.Name(self._board.phase)
            _refuse(
                context,
                grpc.StatusCode.UNAVAILABLE,
                f"the controller has no roles at the moment (phase {phase}): try again when they are started",
            )
        try:
            return change(engine)
        except UnknownRoleError as error:
            _refuse(context, grpc.StatusCode.NOT_FOUND, str(error))
        except ScalingRefusedError as error:
            _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except RlhfError as error:
            _refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))


class _TokenCheck(grpc.ServerInterceptor):
    """Lets nobody in who does not have the token, whatever is called."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], details: grpc.HandlerCallDetails
    ) -> Any:
        """Replace the method of a caller without the token."""
        given = [value for name, value in details.invocation_metadata or () if name == "authorization"]
        sent = given[0] if len(given) == 1 else ""
        if hmac.compare_digest(sent.encode() if isinstance(sent, str) else sent, self._expected):
            return continuation(details)
        handler = continuation(details)
        if handler is not None and handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_unauthenticated)
        return grpc.unary_unary_rpc_method_handler(_unauthenticated)


def _unauthenticated(request: object, context: grpc.ServicerContext) -> NoReturn:
    _refuse(
        context,
        grpc.StatusCode.UNAUTHENTICATED,
        "the call must carry the job's token as metadata, `authorization: Bearer TOKEN`",
    )


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
    context.abort(code, message)
    raise AssertionError("`abort` raises")


class ControlServer:
    """Serves JobControl from construction on.

    Raises:
        RuntimeError: The port is taken.
    """

    def __init__(self, service: JobControl, credentials: Credentials, *, port: int, host: str = "[::]") -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="rlhf-control"),
            interceptors=[_TokenCheck(credentials.token)],
            options=(("grpc.so_reuseport", 0),),
        )
        stubs.add_JobControlServicer_to_server(service, self._server)
        tls = grpc.ssl_server_credentials([(credentials.key, credentials.certificate)])
        self.port = self._server.add_secure_port(f"{host}:{port}", tls)
        self._server.start()

    def stop(self, *, grace: float) -> None:
        """Take no more calls; those that run may take `grace` seconds to end."""
        self._server.stop(grace).wait()
