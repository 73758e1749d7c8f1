"""JobControl over a real socket, with TLS, against a stand-in for the engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from control_client import ControlClient
from job_secret import HOST, Secret, make_secret

from rlhf_api.enums import FailureReason
from rlhf_api.job_control import messages
from rlhf_runtime.errors import InterruptedRunError, RlhfError, ScalingRefusedError, UnknownRoleError
from rlhf_runtime.service.board import Board, RoleState
from rlhf_runtime.service.server import ControlServer, Credentials, JobControl

ALL_CALLS = [
    ("GetReport", messages.GetReportRequest()),
    ("WatchReports", messages.GetReportRequest()),
    ("RestartRole", messages.RestartRoleRequest(role="actor")),
    ("ScaleRole", messages.ScaleRoleRequest(role="reward", replicas=2)),
    ("ExpectLoss", messages.ExpectLossRequest(role="actor", reason="NodeDrained", seconds=30)),
    ("Suspend", messages.SuspendRequest()),
]


class FakeEngine:
    """Takes calls down; raises what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.raises: Exception | None = None
        self.closed = False

    def _taken(self, *call: Any) -> None:
        self.calls.append(call)
        if self.raises is not None:
            raise self.raises

    def restart_role(self, name: str, *, reason: str) -> None:
        self._taken("restart", name, reason)

    def scale_role(self, name: str, replicas: int) -> list[str]:
        self._taken("scale", name, replicas)
        return ["tiny-reward-worker-x7k2p"]

    def expect_loss(self, name: str, *, reason: FailureReason, seconds: float) -> None:
        self._taken("expect", name, reason, seconds)


@dataclass
class Served:
    """A server and what it stands on."""

    board: Board
    engine: FakeEngine
    port: int
    secret: Secret
    has_engine: bool = True
    suspended: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def client(self, token: str | None = None, certificate: bytes | None = None) -> ControlClient:
        return ControlClient(
            self.port,
            certificate=certificate or self.secret.certificate,
            token=self.secret.token if token is None else token,
            host=HOST,
        )


@pytest.fixture
def served(secret: Secret) -> Iterator[Served]:
    it = Served(board=Board(), engine=FakeEngine(), port=0, secret=secret)
    service = JobControl(
        board=it.board,
        engine=lambda: it.engine if it.has_engine else None,  # type: ignore[arg-type, return-value]
        suspend=lambda: it.suspended.append("asked"),
        log=it.lines.append,
    )
    server = ControlServer(service, Credentials.read(secret.folder), port=0)
    it.port = server.port
    yield it
    server.stop(grace=0)


class TestWhoMayCall:
    @pytest.mark.parametrize(("method", "request_"), ALL_CALLS, ids=[name for name, _ in ALL_CALLS])
    @pytest.mark.parametrize("token", ["", "another-token"], ids=["an empty token", "a wrong token"])
    def test_nobody_without_the_token(self, served: Served, method: str, request_: Any, token: str) -> None:
        with served.client(token=token) as client:
            code, details = client.refusal(method, request_)
        assert (code, details) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "the call must carry the job's token as metadata, `authorization: Bearer TOKEN`",
        )
        assert (served.engine.calls, served.suspended) == ([], [])

    def test_a_caller_who_trusts_another_jobs_certificate_does_not_get_through(
        self, served: Served, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        other = make_secret(tmp_path_factory.mktemp("other"))
        with served.client(certificate=other.certificate) as client:
            assert client.refusal("GetReport", messages.GetReportRequest())[0] == grpc.StatusCode.UNAVAILABLE

    def test_nor_one_without_tls(self, served: Served) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary("/rlhf.v1alpha1.JobControl/GetReport")(b"", timeout=10.0)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


class TestReports:
    def test_one(self, served: Served) -> None:
        served.board.role(RoleState(name="critic", desired=1))
        served.board.tell(messages.WAITING_FOR_PLACES, 'role "critic" waits for its pod')
        with served.client() as client:
            report = client.report()
        assert (report.phase, report.message) == (messages.WAITING_FOR_PLACES, 'role "critic" waits for its pod')
        assert [(role.name, role.desired, role.ready) for role in report.roles] == [("critic", 1, 0)]

    def test_a_watcher_gets_one_at_once_and_one_after_each_change(self, served: Served) -> None:
        with served.client() as client:
            reports = client.call("WatchReports", messages.GetReportRequest())
            assert next(reports).phase == messages.PREPARING
            served.board.tell(messages.TRAINING, "")
            assert next(reports).phase == messages.TRAINING
            served.board.snapshot(7)
            assert next(reports).progress.snapshot_step == 7
            reports.cancel()

    def test_watchers_do_not_keep_the_server_from_ending(self, secret: Secret) -> None:
        service = JobControl(board=Board(), engine=lambda: None, suspend=lambda: None, log=lambda line: None)
        server = ControlServer(service, Credentials.read(secret.folder), port=0)
        with ControlClient(server.port, certificate=secret.certificate, token=secret.token, host=HOST) as client:
            reports = client.call("WatchReports", messages.GetReportRequest())
            next(reports)
            ended = threading.Thread(target=server.stop, kwargs={"grace": 0.1})
            ended.start()
            ended.join(20.0)
            assert not ended.is_alive()
            with pytest.raises(grpc.RpcError):
                next(reports)


class TestChanges:
    def test_what_is_asked_reaches_the_engine(self, served: Served) -> None:
        with served.client() as client:
            client.call("RestartRole", messages.RestartRoleRequest(role="critic", reason="asked by ann"))
            scaled = client.call("ScaleRole", messages.ScaleRoleRequest(role="reward", replicas=3))
            client.call("ExpectLoss", messages.ExpectLossRequest(role="actor", reason="NodeDrained", seconds=30))
            client.call("Suspend", messages.SuspendRequest())
            client.call("Suspend", messages.SuspendRequest())
        assert served.engine.calls == [
            ("restart", "critic", "asked by ann"),
            ("scale", "reward", 3),
            ("expect", "actor", FailureReason.NODE_DRAINED, 30.0),
        ]
        assert list(scaled.idle_pods) == ["tiny-reward-worker-x7k2p"]
        assert served.suspended == ["asked", "asked"]
        assert 'restart of role "critic": asked by ann' in served.lines

    @pytest.mark.parametrize(
        ("raised", "want"),
        [
            pytest.param(UnknownRoleError('there is no role "x"'), grpc.StatusCode.NOT_FOUND, id="no such role"),
            pytest.param(
                ScalingRefusedError("it has state"), grpc.StatusCode.FAILED_PRECONDITION, id="a role with state"
            ),
            pytest.param(InterruptedRunError("closed"), grpc.StatusCode.UNAVAILABLE, id="the run has just ended"),
            pytest.param(RlhfError("it has failed"), grpc.StatusCode.UNAVAILABLE, id="the role failed for good"),
        ],
    )
    def test_what_the_engine_refuses(self, served: Served, raised: Exception, want: grpc.StatusCode) -> None:
        served.engine.raises = raised
        with served.client() as client:
            assert client.refusal("ScaleRole", messages.ScaleRoleRequest(role="x", replicas=3)) == (want, str(raised))

    @pytest.mark.parametrize("state", ["no engine yet", "closed"])
    def test_without_roles_the_caller_is_told_to_come_back(self, served: Served, state: str) -> None:
        served.has_engine = state == "closed"
        served.engine.closed = state == "closed"
        with served.client() as client:
            code, details = client.refusal("RestartRole", messages.RestartRoleRequest(role="actor"))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "no roles at the moment (phase PREPARING): try again when they are started" in details
        assert served.engine.calls == []

    def test_an_unknown_reason_for_a_loss(self, served: Served) -> None:
        with served.client() as client:
            code, details = client.refusal("ExpectLoss", messages.ExpectLossRequest(role="actor", reason="Bored"))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "`reason` must be one of HostOutOfMemory, " in details and 'got "Bored"' in details
