"""What is sent for a plan, and what is not."""

import dataclasses
from typing import Any

import pytest
from aiohttp import web
from fake_api_server import Request, refusal
from operator_builders import child, job, run
from reconciling import KEY, SETTINGS, looking

from rlhf_api.types import RLHFJobStatus
from rlhf_operator.kube.applied import Applied
from rlhf_operator.kube.execute import IncompleteError
from rlhf_operator.kube.kinds import CONFIG_MAP, EVENT, POD, RAY_CLUSTER, RLHF_JOB, SECRET
from rlhf_operator.planning.plan import Delete, Event, Plan, RestartRole, ScaleRole

CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    **child("ppo", "ppo-config", data={"job.json": "{}"}),
}
TOKEN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    **child("ppo", "ppo-token", stringData={"ray-token": "x"}),
}
STATUS = RLHFJobStatus(summary="Starting", roles_ready="0/4")
HELLO = Event(type="Normal", reason="Created", message="The RayCluster is being made.", key="created")


def test_a_second_look_at_a_job_that_is_as_it_should_be_sends_nothing() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[CONFIG, TOKEN], status=STATUS, events=[HELLO])
            await it.look()
            assert len(it.server.asked("PATCH|POST")) == 4
            it.server.requests.clear()
            await it.look()
            assert not it.server.asked("PATCH|POST|PUT|DELETE")

    run(test())


def test_after_a_restart_of_the_operator_what_is_there_already_is_not_applied_again() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.see(CONFIG_MAP, CONFIG)
            it.plan = lambda _: Plan(applies=[CONFIG])
            await it.look()
            assert not it.server.asked("PATCH")

    run(test())


def test_what_somebody_changed_by_hand_is_applied_again() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[CONFIG])
            await it.look()
            it.see(CONFIG_MAP, {**CONFIG, "data": {"job.json": "changed"}})
            await it.look()
            assert len(it.server.asked("PATCH")) == 2
            found = it.server.get(CONFIG_MAP, "team", "ppo-config")
            assert found is not None and found["data"] == {"job.json": "{}"}

    run(test())


def test_what_the_api_server_writes_in_its_own_way_is_not_applied_for_ever() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[CONFIG])

            async def own_way(request: Request) -> web.Response | None:
                if request.method != "PATCH":
                    return None
                thing = it.server.put(CONFIG_MAP, {**request.body, "data": {"job.json": "{ }"}})
                return web.json_response(thing)

            it.server.fault = own_way
            for _ in range(3):
                await it.look()
            assert len(it.server.asked("PATCH")) == 1

    run(test())


def test_a_secret_which_may_not_be_read_is_soon_applied_again_for_a_job_that_does_not_work() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[TOKEN], whole=False)
            for seconds in (0, 10, 21):
                it.clock.seconds = seconds
                await it.look()
            assert len(it.server.asked("PATCH .*/secrets/")) == 2

    run(test())


def test_an_apply_whose_answer_has_the_same_version_has_changed_nothing() -> None:
    applied = Applied(lambda: 0.0, blind_seconds=300.0)
    answers = [{**TOKEN, "metadata": {**TOKEN["metadata"], "resourceVersion": text}} for text in ("7", "7", "8")]
    assert [applied.remember(KEY, SECRET, TOKEN, answer) for answer in answers] == [True, False, True]


def test_a_secret_which_may_not_be_read_is_applied_again_once_in_a_while() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[TOKEN])
            for seconds in (0, 10, SETTINGS.resync_seconds + 1):
                it.clock.seconds = seconds
                await it.look()
            assert len(it.server.asked("PATCH .*/secrets/")) == 2
            assert it.server.get(SECRET, "team", "ppo-token") is not None
            assert not it.server.asked("GET .*/secrets")

    run(test())


def test_a_status_is_written_only_when_it_differs() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(status=STATUS)
            await it.look()
            await it.look()
            assert len(it.server.asked("PATCH .*/status")) == 1
            it.plan = lambda _: Plan(status=STATUS.model_copy(update={"roles_ready": "4/4"}))
            await it.look()
            assert it.status["rolesReady"] == "4/4"
            assert len(it.server.asked("PATCH .*/status")) == 2

    run(test())


def test_an_event_is_told_once_also_by_the_next_operator() -> None:
    async def test() -> None:
        async with looking() as it:
            thing = it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(events=[HELLO])
            await it.look()
            await it.look()
            assert len(it.server.asked("POST")) == 1
            it.executor.events.forget(KEY)
            assert await it.executor.events.tell(thing, HELLO) is False
            assert sum(kind == EVENT for kind, _, _ in it.server.objects) == 1
            another = dataclasses.replace(HELLO, key="created/2")
            assert await it.executor.events.tell(thing, another) is True

    run(test())


def test_a_refused_object_does_not_keep_the_others_and_the_status_from_being_written() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[TOKEN, CONFIG], status=STATUS)

            async def refuse(request: Request) -> web.Response | None:
                return refusal(422, "Invalid", "no") if "/secrets/" in request.path else None

            it.server.fault = refuse
            assert await it.look() == 0.0
            assert it.server.get(CONFIG_MAP, "team", "ppo-config") is not None
            assert it.status["summary"] == "Starting"
            assert (
                it.metrics.registry.get_sample_value("rlhf_operator_reconcile_errors_total", {"type": "Invalid"}) == 1.0
            )

    run(test())


def test_the_next_plan_knows_what_was_refused_and_it_is_tried_again_in_growing_pauses() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[TOKEN, CONFIG], wake_in=100.0)

            async def refuse(request: Request) -> web.Response | None:
                text = 'secrets "ppo-token" is forbidden: exceeded quota: few, requested: secrets=1'
                return refusal(403, "Forbidden", text) if "/secrets/" in request.path else None

            it.server.fault = refuse
            await it.look()
            assert await it.look() == 2.0
            assert len(it.server.asked("PATCH .*/secrets/")) == 1
            (found,) = it.snapshots[1].refusals
            assert (found.kind, found.name, found.reason) == ("Secret", "ppo-token", "QuotaExceeded")
            assert found.message.startswith('secrets "ppo-token" is forbidden: exceeded quota: few')
            pauses = []
            for _ in range(5):
                it.clock.seconds += await it.look() or 0.0
                pauses.append(await it.look())
            assert pauses == [4.0, 8.0, 16.0, 30.0, 30.0]
            assert len(it.server.asked("PATCH .*/secrets/")) == 6
            it.server.fault = None
            it.clock.seconds += 30.0
            assert await it.look() == 100.0
            await it.look()
            assert it.snapshots[-1].refusals == ()

    run(test())


def test_a_changed_object_is_tried_at_once_and_an_unwanted_one_is_forgotten() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())

            async def refuse(request: Request) -> web.Response | None:
                return refusal(422, "Invalid", "no") if request.method == "PATCH" else None

            it.server.fault = refuse
            it.plan = lambda _: Plan(applies=[CONFIG])
            await it.look()
            it.plan = lambda _: Plan(applies=[{**CONFIG, "data": {"job.json": "changed"}}])
            await it.look()
            assert len(it.server.asked("PATCH")) == 2
            it.plan = lambda _: Plan()
            await it.look()
            await it.look()
            assert it.snapshots[-1].refusals == ()

    run(test())


@pytest.mark.parametrize("status", [409, 500, 503], ids=["a conflict", "a broken server", "an overloaded server"])
def test_a_passing_trouble_is_an_error_but_no_event(status: int) -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[CONFIG])

            async def trouble(request: Request) -> web.Response | None:
                return refusal(status, "Trouble", "later") if request.method == "PATCH" else None

            it.server.fault = trouble
            with pytest.raises(IncompleteError):
                await it.look()
            assert not it.server.asked("POST")
            it.server.fault = None
            await it.look()
            assert it.server.get(CONFIG_MAP, "team", "ppo-config") is not None

    run(test())


def test_a_namespace_that_is_being_deleted_is_known_from_the_refusal() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(applies=[CONFIG])

            async def refuse(request: Request) -> web.Response | None:
                text = 'configmaps "ppo-config" is forbidden: unable to create new content in namespace team'
                return refusal(403, "Forbidden", text, "NamespaceTerminating") if request.method == "PATCH" else None

            it.server.fault = refuse
            with pytest.raises(IncompleteError):
                await it.look()
            it.plan = lambda _: Plan()
            await it.look()
            assert [snapshot.namespace_terminating for snapshot in it.snapshots] == [False, True]
            assert not it.server.asked("POST")

    run(test())


def test_a_delete_reaches_only_the_object_that_was_seen() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            pod = it.see(POD, child("ppo", "old"))
            delete = Delete(api_version="v1", kind="Pod", name="old", uid=pod["metadata"]["uid"], grace_seconds=0)
            it.plan = lambda _: Plan(deletes=[delete])
            await it.look()
            assert it.server.get(POD, "team", "old") is None
            it.see(POD, child("ppo", "old"))
            await it.look()
            assert it.server.get(POD, "team", "old") is not None
            assert it.server.asked("DELETE")[0].body["gracePeriodSeconds"] == 0

    run(test())


def test_a_call_without_a_controller_is_an_error_and_the_rest_is_done() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(calls=[ScaleRole(role="reward", replicas=2)], applies=[CONFIG])
            with pytest.raises(IncompleteError, match="no controller runs"):
                await it.look()
            assert it.server.get(CONFIG_MAP, "team", "ppo-config") is not None

    run(test())


def test_a_restart_that_the_controller_did_not_hear_of_is_not_written_down_as_done() -> None:
    ray_cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ppo"}, "spec": {}}

    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(calls=[RestartRole(role="reward", reason="asked")], applies=[CONFIG, ray_cluster])
            with pytest.raises(IncompleteError, match="no controller runs"):
                await it.look()
            assert it.server.get(CONFIG_MAP, "team", "ppo-config") is not None
            assert it.server.get(RAY_CLUSTER, "team", "ppo") is None
            it.plan = lambda _: Plan(applies=[ray_cluster])
            await it.look()
            assert it.server.get(RAY_CLUSTER, "team", "ppo") is not None

    run(test())


def test_a_finished_job_whose_time_is_over_is_deleted() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.plan = lambda _: Plan(delete_job=True)
            await it.look()
            assert it.server.get(RLHF_JOB, *KEY) is None

    run(test())


def test_the_wake_up_is_never_later_than_the_resync() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            assert await it.look() == SETTINGS.resync_seconds
            it.plan = lambda _: Plan(wake_in=1e9)
            assert await it.look() == SETTINGS.resync_seconds
            it.plan = lambda _: Plan(wake_in=3.0)
            assert await it.look() == 3.0

    run(test())


@pytest.mark.parametrize("kind", [CONFIG_MAP, RAY_CLUSTER], ids=lambda kind: kind.kind)
def test_what_was_not_made_for_the_job_is_not_taken_over(kind: Any) -> None:
    mine = {"apiVersion": kind.api_version, "kind": kind.kind, **child("ppo", "ppo-config", data={"job.json": "{}"})}
    theirs = {"apiVersion": kind.api_version, "kind": kind.kind, "data": {"theirs": "yes"}}
    theirs["metadata"] = {"namespace": "team", "name": "ppo-config"}

    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.server.put(kind, theirs)
            it.plan = lambda _: Plan(applies=[mine])
            await it.look()
            await it.look()
            found = it.server.get(kind, "team", "ppo-config")
            assert found is not None and found["data"] == {"theirs": "yes"}
            (refused,) = it.snapshots[-1].refusals
            assert refused.reason == "NameTaken" and "was not made for this job" in refused.message

    run(test())
