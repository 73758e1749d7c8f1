"""What the client makes of the API server's answers."""

import asyncio

import pytest
from aiohttp import web
from fake_api_server import FakeApiServer, Request, refusal
from operator_builders import child, run

from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError, LostLeaseError, Unreachable
from rlhf_operator.kube.kinds import CONFIG_MAP, POD, RAY_CLUSTER

FORBIDDEN = (
    'rayclusters.ray.io "ppo" is forbidden: User "system:serviceaccount:rlhf-operator:rlhf-operator" cannot patch'
    ' resource "rayclusters" in API group "ray.io" in the namespace "team"'
)


def answering(answer: web.Response) -> FakeApiServer:
    async def fault(request: Request) -> web.Response:
        return answer

    return FakeApiServer(fault=fault)


def test_a_missing_right_is_named() -> None:
    async def test() -> None:
        async with answering(refusal(403, "Forbidden", FORBIDDEN)) as server:
            client = KubeClient(server.configuration())
            with pytest.raises(ApiError) as caught:
                await client.apply(child("ppo", "ppo"), RAY_CLUSTER)
            assert 'cannot patch resource "rayclusters"' in str(caught.value)
            assert "the operator's Role or ClusterRole must allow this" in str(caught.value)
            assert (caught.value.status, caught.value.kind, caught.value.refused) == (403, "Forbidden", True)
            await client.close()

    run(test())


def test_a_quota_is_not_called_a_missing_right() -> None:
    async def test() -> None:
        text = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4'
        async with answering(refusal(403, "Forbidden", text)) as server:
            client = KubeClient(server.configuration())
            with pytest.raises(ApiError) as caught:
                await client.create(child("ppo", "x"), POD)
            assert "ClusterRole" not in str(caught.value)
            await client.close()

    run(test())


def test_an_answer_that_no_api_server_gave_is_still_told() -> None:
    async def test() -> None:
        async with answering(web.Response(status=502, text="<html>bad gateway</html>")) as server:
            client = KubeClient(server.configuration())
            with pytest.raises(ApiError, match=r"502: <html>bad gateway") as caught:
                await client.get(POD, "team", "x")
            assert not caught.value.refused
            await client.close()

    run(test())


def test_no_answer_in_time_is_unreachable() -> None:
    async def test() -> None:
        async def hang(request: Request) -> None:
            await asyncio.sleep(1)

        async with FakeApiServer(fault=hang) as server:
            client = KubeClient(server.configuration())
            with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
                await client.request("GET", "/api/v1/pods", seconds=0.1)
            await client.close()

    run(test())


def test_a_closed_port_is_unreachable() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            configuration = server.configuration()
        client = KubeClient(configuration)
        with pytest.raises(Unreachable, match="the API server cannot be reached"):
            await client.get(POD, "team", "x")
        await client.close()

    run(test())


def test_a_delete_spares_another_object_of_the_name_and_takes_a_missing_one_as_done() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            server.put(POD, child("ppo", "x"))
            client = KubeClient(server.configuration())
            assert await client.delete(POD, "team", "x", uid="another") is None
            assert server.get(POD, "team", "x") is not None
            assert await client.delete(POD, "team", "y", uid="any") is None
            await client.close()

    run(test())


def test_a_replica_that_may_not_be_the_leader_changes_nothing() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            client = KubeClient(server.configuration(), may_write=lambda: False)
            with pytest.raises(LostLeaseError):
                await client.apply(child("ppo", "x"), CONFIG_MAP)
            assert await client.get(CONFIG_MAP, "team", "x") is None
            assert not server.asked("PATCH")
            await client.close()

    run(test())


@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
def test_a_kind_is_looked_for_in_discovery(there: bool) -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            if not there:
                server.served.remove(RAY_CLUSTER)
            client = KubeClient(server.configuration())
            assert await client.serves(RAY_CLUSTER) is there
            await client.close()

    run(test())
