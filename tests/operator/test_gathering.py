"""What a look at a job sees."""

from operator_builders import child, controller_pod, job, run
from reconciling import looking

from rlhf_operator.kube.gather import running_controller
from rlhf_operator.kube.kinds import CLAIM, CONFIG_MAP, EVENT, JOB, POD, RAY_CLUSTER, RLHF_JOB
from rlhf_operator.planning.plan import Plan

CLAIMED = {"location": {"persistentVolumeClaim": {"claimName": "mine"}}}


def test_a_snapshot_has_what_belongs_to_the_job_and_nothing_of_others() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.see(RAY_CLUSTER, child("ppo", "ppo"))
            it.see(JOB, child("ppo", "ppo-controller"))
            it.see(POD, child("ppo", "mine"))
            it.see(POD, child("ppo", "not-mine", namespace="other"))
            it.see(POD, child("grpo", "nor-mine"))
            it.see(CONFIG_MAP, child("ppo", "ppo-config"))
            await it.look()
            seen = it.snapshots[0]
            assert seen.kuberay and seen.ray_cluster and seen.controller_job
            assert [pod["metadata"]["name"] for pod in seen.pods] == ["mine"]
            assert set(seen.children) == {("ConfigMap", "ppo-config")}

    run(test())


def test_what_made_the_pods_is_asked_for_when_its_label_was_taken_and_anothers_is_not_taken_for_ours() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            await it.look()
            assert it.server.asked("GET .*/(rayclusters|jobs)/") == []  # nothing was made yet
            for kind in (RAY_CLUSTER, JOB):
                pod = child("ppo", f"of-{kind.plural}")
                pod["metadata"]["ownerReferences"] = [{"kind": kind.kind, "uid": "its-uid"}]
                it.see(POD, pod)
            for kind, name, owner in (
                (RAY_CLUSTER, "ppo", job()["metadata"]["uid"]),
                (JOB, "ppo-controller", "another"),
            ):
                metadata = {"name": name, "namespace": "team", "ownerReferences": [{"uid": owner}]}
                it.server.put(kind, {"metadata": metadata})
            await it.look()
            assert it.snapshots[1].ray_cluster is not None and it.snapshots[1].controller_job is None

    run(test())


def test_a_claim_that_the_manifest_names_is_read_and_missing_ones_are_told_apart() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job(state=CLAIMED, cacheVolume={"persistentVolumeClaim": {"claimName": "weights"}}))
            it.server.put(CLAIM, {"metadata": {"name": "mine", "namespace": "team"}})
            await it.look()
            await it.look()
            assert {name: claim is not None for name, claim in it.snapshots[1].claims.items()} == {
                "mine": True,
                "weights": False,
            }
            assert len(it.server.asked("GET .*/persistentvolumeclaims/")) == 2
            it.server.put(CLAIM, {"metadata": {"name": "weights", "namespace": "team"}})
            it.clock.seconds = 30
            await it.look()
            assert it.snapshots[2].claims["weights"] is not None

    run(test())


def test_a_cluster_without_kuberay_is_seen_as_such_until_it_comes() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.server.served.remove(RAY_CLUSTER)
            await it.look()
            it.server.served.append(RAY_CLUSTER)
            await it.look()
            it.clock.seconds = 31
            await it.look()
            assert [snapshot.kuberay for snapshot in it.snapshots] == [False, False, True]

    run(test())


def warning(kind: str, name: str, text: str) -> dict[str, object]:
    return {
        "metadata": {"name": f"{name}.{text}", "namespace": "team"},
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning",
        "message": text,
        "lastTimestamp": f"2026-11-30T00:00:0{len(text)}Z",
    }


def test_warnings_about_a_job_that_is_not_ready_are_read_oldest_first_and_no_others() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, job())
            it.see(POD, child("ppo", "waits", status={"phase": "Pending"}))
            it.see(POD, child("ppo", "runs", status={"phase": "Running"}))
            for event in (
                warning("Pod", "waits", "three"),
                warning("RayCluster", "ppo", "one"),
                warning("Pod", "runs", "of one that runs"),
                warning("RayCluster", "another", "x"),
            ):
                it.server.put(EVENT, event)
            await it.look()
            await it.look()
            assert [event["message"] for event in it.snapshots[0].warnings] == ["one", "three"]
            assert len(it.server.asked("GET .*/events")) == 3  # not again within seconds

    run(test())


def test_a_job_that_is_ready_costs_no_request() -> None:
    async def test() -> None:
        async with looking() as it:
            conditions = [
                {
                    "type": "RolesReady",
                    "status": "True",
                    "reason": "RolesReady",
                    "message": "",
                    "lastTransitionTime": since,
                }
            ]
            it.see(RLHF_JOB, {**job(), "status": {"conditions": conditions}})
            await it.look()
            assert it.server.requests == []

    since = "2026-11-30T00:00:00Z"
    run(test())


def test_a_job_that_is_gone_ends_its_work() -> None:
    async def test() -> None:
        async with looking() as it:
            assert await it.look() is None

    run(test())


def test_a_job_of_a_newer_version_fails_with_the_field_and_is_not_touched_further() -> None:
    async def test() -> None:
        async with looking() as it:
            it.plan = lambda _: Plan(delete_job=True)
            it.see(RLHF_JOB, job(quantumAnnealing=True))
            await it.look()
            (condition,) = it.status["conditions"]
            assert (condition["type"], condition["status"], condition["reason"]) == ("Failed", "True", "InvalidSpec")
            assert "spec.quantumAnnealing" in condition["message"]
            assert it.snapshots == []
            it.server.requests.clear()
            await it.look()
            assert not it.server.asked("PATCH|POST|DELETE")

    run(test())


def test_a_job_that_a_newer_operator_has_begun_is_left_as_it_is() -> None:
    async def test() -> None:
        async with looking() as it:
            running = {"type": "Running", "status": "True", "reason": "Training"}
            it.see(RLHF_JOB, {**job(quantumAnnealing=True), "status": {"conditions": [running]}})
            await it.look()
            assert it.status["conditions"] == [running]
            assert [event["reason"] for (kind, _, _), event in it.server.objects.items() if kind == EVENT] == [
                "InvalidSpec"
            ]

    run(test())


def test_a_status_that_is_not_understood_is_made_anew() -> None:
    async def test() -> None:
        async with looking() as it:
            it.see(RLHF_JOB, {**job(), "status": {"moods": ["blue"]}})
            await it.look()
            assert it.snapshots[0].job.status is None

    run(test())


def test_the_controller_to_call_is_the_newest_that_runs() -> None:
    old, new, leaving, waiting = (controller_pod() for _ in range(4))
    old["metadata"]["creationTimestamp"] = "2026-11-30T00:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-11-30T00:00:01Z"
    leaving["metadata"] |= {"creationTimestamp": "2026-11-30T00:00:02Z", "deletionTimestamp": "2026-11-30T00:00:03Z"}
    waiting["status"]["phase"] = "Pending"
    assert running_controller([old, new, leaving, waiting, child("ppo", "role")]) is new
    assert running_controller([leaving, waiting]) is None
