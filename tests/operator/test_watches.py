"""kopf's thread: that it ends when it is asked to, and that a watch that failed is not waited for without end."""

import asyncio

import pytest
from aiohttp import web
from fake_api_server import FakeApiServer, Request
from kubernetes.aio.client.configuration import Configuration
from operator_builders import job, run, until

from rlhf_operator.handlers import KindGoneError, Watches
from rlhf_operator.kube.kinds import RAY_CLUSTER, RLHF_JOB
from rlhf_operator.kube.store import Store


async def _begin(server: FakeApiServer) -> tuple[Watches, asyncio.Task[None]]:
    async def connection() -> Configuration:
        return server.configuration()

    store = Store()
    server.put(RLHF_JOB, job())
    watches = Watches(store, kinds=(RLHF_JOB, RAY_CLUSTER), namespaces=(), connection=connection)
    running = asyncio.create_task(watches.run())
    await until(lambda: store.all(RLHF_JOB))
    await until(lambda: [r for r in server.asked("GET .*/rayclusters") if "watch" in r.query])
    return watches, running


def test_they_end_when_they_are_asked_to() -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            watches, running = await _begin(server)
            watches.stop()
            async with asyncio.timeout(20):
                await running

    run(scenario())


@pytest.mark.parametrize(("status", "error"), [(404, KindGoneError), (400, Exception)])
def test_a_watch_that_the_api_server_refuses_ends_all_of_them(status: int, error: type[Exception]) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            _, running = await _begin(server)

            async def refuse(request: Request) -> web.StreamResponse | None:
                refused = request.path.endswith("/rayclusters")
                return web.Response(status=status, text="404 page not found\n") if refused else None

            server.fault = refuse
            server.version += 1
            server.forget_history()
            with pytest.raises(error) as raised:
                async with asyncio.timeout(20):
                    await running
            assert not isinstance(raised.value, TimeoutError)

    run(scenario())
