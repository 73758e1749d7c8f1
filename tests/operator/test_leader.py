"""Only the holder of the lease works, and it knows in time when it is not."""

import asyncio

import pytest
from aiohttp import web
from fake_api_server import FakeApiServer, Request, refusal
from operator_builders import run, until
from reconciling import Clock

from rlhf_operator.config import ProcessSettings
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import LostLeaseError
from rlhf_operator.kube.kinds import LEASE
from rlhf_operator.kube.leader import LEASE_NAME, Leader


def replica(server: FakeApiServer, name: str, clock: Clock | None = None) -> Leader:
    settings = ProcessSettings(identity=name, lease_seconds=4, renew_seconds=2, retry_seconds=1)
    loop = asyncio.get_running_loop()
    return Leader(KubeClient(server.configuration()), namespace="op", settings=settings, clock=clock or loop.time)


def holder(server: FakeApiServer) -> str | None:
    lease = server.get(LEASE, "op", LEASE_NAME)
    return lease["spec"].get("holderIdentity") if lease else None


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_one_of_two_leads_and_the_other_follows_at_once_when_the_lease_is_released() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            first, second = replica(server, "first"), replica(server, "second")
            running = asyncio.create_task(first.run())
            await until(first.leading.is_set)
            standing_by = asyncio.create_task(second.run())
            await asyncio.sleep(1.5)
            assert first.sure() and not second.sure() and not second.leading.is_set()
            await ended(running)
            await first.release()
            assert not first.sure() and holder(server) is None
            await asyncio.wait_for(second.leading.wait(), 2.5)  # less than the lease's four seconds
            assert holder(server) == "second"
            await ended(standing_by)
            await first.close()
            await second.close()

    run(test())


@pytest.mark.parametrize("trouble", ["refused", "hung"])
def test_a_leader_that_cannot_renew_gives_up_within_the_limit(trouble: str) -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            leader = replica(server, "first")
            running = asyncio.create_task(leader.run())
            await until(leader.leading.is_set)

            async def fail(request: Request) -> web.Response | None:
                if trouble == "hung":
                    await asyncio.sleep(30)
                return refusal(500, "InternalError", "no")

            server.fault = fail
            with pytest.raises(LostLeaseError, match="could not be renewed"):
                await asyncio.wait_for(running, 6)
            await leader.close()

    run(test())


def test_a_lease_that_another_took_is_lost() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            leader = replica(server, "first")
            running = asyncio.create_task(leader.run())
            await until(leader.leading.is_set)
            lease = server.get(LEASE, "op", LEASE_NAME)
            assert lease is not None
            server.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "second"}})
            with pytest.raises(LostLeaseError):
                await asyncio.wait_for(running, 6)
            await leader.close()

    run(test())


def test_a_process_that_was_stopped_for_longer_than_the_lease_is_not_sure_any_more() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            clock = Clock()
            leader = replica(server, "first", clock)
            running = asyncio.create_task(leader.run())
            await until(leader.leading.is_set)
            assert leader.sure()
            clock.seconds += 4
            assert not leader.sure()
            await ended(running)
            await leader.close()

    run(test())
