"""The audit finds what the watches did not bring, puts it right, and tells liveness of a deaf watch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fake_api_server import FakeApiServer
from operator_builders import child, job, run
from reconciling import Clock

from rlhf_operator.kube.audit import Audit
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.kinds import POD, RLHF_JOB
from rlhf_operator.kube.store import JobKey, Store


@asynccontextmanager
async def auditing() -> AsyncIterator[tuple[FakeApiServer, Store, Audit, Clock, list[JobKey]]]:
    woken: list[JobKey] = []
    async with FakeApiServer() as server:
        client, clock, store = KubeClient(server.configuration()), Clock(), Store(woken.append)
        yield server, store, Audit(client=client, store=store, namespaces=(), clock=clock), clock, woken
        await client.close()


def test_a_store_that_has_everything_is_left_alone() -> None:
    async def test() -> None:
        async with auditing() as (server, store, audit, _, woken):
            store.put(POD, server.put(POD, child("ppo", "a")))
            woken.clear()
            assert await audit.audit(POD) == 0
            assert woken == [] and POD in audit.agreed_once
            assert audit.deaf([POD], since=0) == []

    run(test())


def test_an_object_that_was_deleted_unseen_is_forgotten_at_once() -> None:
    async def test() -> None:
        async with auditing() as (server, store, audit, _, woken):
            store.put(POD, server.put(POD, child("ppo", "a")))
            server.remove(POD, "team", "a")
            woken.clear()
            assert await audit.audit(POD) == 1
            assert store.count(POD) == 0
            assert woken == [JobKey("team", "ppo")]

    run(test())


def test_what_is_new_may_be_on_its_way_but_not_for_two_audits() -> None:
    async def test() -> None:
        async with auditing() as (server, store, audit, clock, woken):
            await audit.audit(RLHF_JOB)
            server.put(RLHF_JOB, job())
            clock.seconds = 100
            assert await audit.audit(RLHF_JOB) == 0
            assert store.jobs() == []
            clock.seconds = 200
            assert await audit.audit(RLHF_JOB) == 1
            assert store.jobs() == [JobKey("team", "ppo")] and woken == [JobKey("team", "ppo")]
            assert audit.deaf([RLHF_JOB], since=150) == [RLHF_JOB]
            assert audit.deaf([RLHF_JOB], since=300) == []
            clock.seconds = 300
            assert await audit.audit(RLHF_JOB) == 0
            assert audit.deaf([RLHF_JOB], since=0) == []

    run(test())


def test_an_older_version_never_replaces_a_newer_one() -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            store = Store()
            old = server.put(POD, child("ppo", "a", status={"phase": "Pending"}))
            new = server.put(POD, child("ppo", "a", status={"phase": "Running"}))
            store.put(POD, new)
            store.put(POD, old)
            store.remove(POD, "team", "a", uid="another")
            (kept,) = store.of_job(JobKey("team", "ppo"), POD)
            assert kept["status"]["phase"] == "Running"

    run(test())


def test_an_object_whose_label_changes_moves_to_the_other_job() -> None:
    store = Store()
    store.put(POD, {"metadata": {**child("ppo", "a")["metadata"], "uid": "u", "resourceVersion": "1"}})
    store.put(POD, {"metadata": {**child("grpo", "a")["metadata"], "uid": "u", "resourceVersion": "2"}})
    assert store.of_job(JobKey("team", "ppo"), POD) == []
    assert len(store.of_job(JobKey("team", "grpo"), POD)) == 1
