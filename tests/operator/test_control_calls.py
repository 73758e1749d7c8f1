"""Calls to a controller: a real gRPC server with the TLS key and token of the job's own Secret."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from operator_builders import controller_pod, job, run

from rlhf_api.job_control import messages, stubs
from rlhf_operator.config import Settings
from rlhf_operator.control.client import ControlClient, ControlError
from rlhf_operator.kube.gather import read_job
from rlhf_operator.manifests.secret import credentials, token_secret
from rlhf_operator.planning.plan import ExpectLoss, RestartRole, ScaleRole, Suspend

SETTINGS = Settings(worker_image="worker:1", key=b"k" * 32)
JOB = read_job(job())


class Controller(stubs.JobControlServicer):
    """What a controller says, and what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.slow = False

    async def GetReport(self, request: Any, context: Any) -> messages.Report:  # noqa: N802
        if ("authorization", f"Bearer {credentials(JOB, SETTINGS).control_token}") not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        if self.slow:
            await asyncio.sleep(60)
        return messages.Report(
            epoch=7,
            phase=messages.TRAINING,
            time=1_800_000_000.5,
            progress=messages.Progress(step=12, total_steps=40, reward=0.0),
            roles=[messages.RoleReport(name="actor", desired=1, ready=1, restarts=2)],
            incidents=[messages.Incident(id="i-1", role="actor", reason="HostOutOfMemory", exit_code=137, time=5)],
        )

    async def ScaleRole(self, request: Any, context: Any) -> messages.ScaleRoleReply:  # noqa: N802
        self.told.append(request)
        if request.role != "reward":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "training roles have one replica")
        return messages.ScaleRoleReply()

    async def ExpectLoss(self, request: Any, context: Any) -> messages.ExpectLossReply:  # noqa: N802
        self.told.append(request)
        return messages.ExpectLossReply()

    async def RestartRole(self, request: Any, context: Any) -> messages.RestartRoleReply:  # noqa: N802
        self.told.append(request)
        return messages.RestartRoleReply()

    async def Suspend(self, request: Any, context: Any) -> messages.SuspendReply:  # noqa: N802
        self.told.append(request)
        return messages.SuspendReply()


@asynccontextmanager
async def serving(controller: Controller, settings: Settings = SETTINGS) -> AsyncIterator[int]:
    data = token_secret(JOB, settings)["data"]
    key, certificate = base64.b64decode(data["tls.key"]), base64.b64decode(data["tls.crt"])
    server = grpc.aio.server()
    stubs.add_JobControlServicer_to_server(controller, server)  # type: ignore[no-untyped-call]
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def calling(port: int, clock: list[float] | None = None) -> AsyncIterator[ControlClient]:
    times = clock or [0.0]
    client = ControlClient(lambda its: credentials(its, SETTINGS), clock=lambda: times[-1], port=port)
    try:
        yield client
    finally:
        await client.close()


def test_a_report_comes_over_tls_with_the_jobs_token() -> None:
    async def test() -> None:
        async with serving(Controller()) as port, calling(port) as client:
            report = await client.report(JOB, controller_pod())
            assert report is not None
            assert (report.epoch, report.phase, report.step, report.total_steps) == (7, "TRAINING", 12, 40)
            assert report.reward == 0.0 and report.evaluation is None and report.snapshot_step is None
            assert report.time.timestamp() == 1_800_000_000.5
            assert [(role.name, role.ready, role.restarts) for role in report.roles] == [("actor", 1, 2)]
            assert [(incident.id, incident.exit_code) for incident in report.incidents] == [("i-1", 137)]

    run(test())


def test_each_call_of_a_plan_arrives() -> None:
    async def test() -> None:
        controller = Controller()
        async with serving(controller) as port, calling(port) as client:
            for call in (
                ScaleRole(role="reward", replicas=3),
                ExpectLoss(role="actor", reason="RolledOut", seconds=60),
                RestartRole(role="critic", reason="asked for"),
                Suspend(),
            ):
                await client.call(JOB, controller_pod(), call)
            assert [type(told).__name__ for told in controller.told] == [
                "ScaleRoleRequest",
                "ExpectLossRequest",
                "RestartRoleRequest",
                "SuspendRequest",
            ]
            assert controller.told[0].replicas == 3 and controller.told[1].seconds == 60

    run(test())


def test_a_refusal_is_told_with_its_reason() -> None:
    async def test() -> None:
        async with serving(Controller()) as port, calling(port) as client:
            with pytest.raises(ControlError, match="training roles have one replica") as caught:
                await client.call(JOB, controller_pod(), ScaleRole(role="actor", replicas=2))
            assert caught.value.kind == "FAILED_PRECONDITION"

    run(test())


def test_a_controller_with_another_certificate_is_not_talked_to() -> None:
    async def test() -> None:
        controller = Controller()
        impostor = Settings(worker_image="worker:1", key=b"x" * 32)
        async with serving(controller, impostor) as port, calling(port) as client:
            assert await client.report(JOB, controller_pod()) is None
            with pytest.raises(ControlError):
                await client.call(JOB, controller_pod(), Suspend())
            assert controller.told == []

    run(test())


def test_a_controller_that_hangs_costs_little_time_and_is_not_asked_again_at_once() -> None:
    async def test() -> None:
        controller, clock = Controller(), [0.0]
        controller.slow = True
        loop = asyncio.get_running_loop()
        async with serving(controller) as port, calling(port, clock) as client:
            began = loop.time()
            assert await client.report(JOB, controller_pod()) is None
            assert loop.time() - began < 5
            controller.slow = False
            assert await client.report(JOB, controller_pod()) is None  # not asked
            clock.append(6.0)
            assert await client.report(JOB, controller_pod()) is not None

    run(test())


def test_no_pod_is_no_report_and_a_call_says_so() -> None:
    async def test() -> None:
        async with calling(1) as client:
            assert await client.report(JOB, None) is None
            with pytest.raises(ControlError, match="no controller runs"):
                await client.call(JOB, None, Suspend())

    run(test())


def test_the_connection_is_kept_for_one_pod_and_closed_with_it() -> None:
    async def test() -> None:
        async with serving(Controller()) as port, calling(port) as client:
            first, second = controller_pod(), controller_pod()
            second["metadata"]["uid"] = "another"
            await client.report(JOB, first)
            channel = client._connections["team/ppo"].channel
            await client.report(JOB, first)
            assert client._connections["team/ppo"].channel is channel
            await client.report(JOB, second)
            assert client._connections["team/ppo"].channel is not channel
            assert channel.get_state() == grpc.ChannelConnectivity.SHUTDOWN
            await client.report(JOB, None)
            assert client._connections == {}

    run(test())


def test_a_newer_controllers_phase_is_no_error() -> None:
    from rlhf_operator.control.reports import report_of

    reply = messages.Report()
    reply.MergeFromString(b"\x10\x63")  # field 2, phase 99
    assert report_of(reply).phase == "PHASE_UNSPECIFIED"
