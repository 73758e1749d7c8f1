"""A job from its creation to its end, on a small cluster in memory."""

from datetime import timedelta

import pytest
from planning_builders import a_job
from small_cluster import HEAD, SmallCluster

from rlhf_api.ending import EndingOutcome
from rlhf_api.formats import format_time
from rlhf_api.names import COMPONENT_LABEL
from rlhf_api.reasons import ConditionReason
from rlhf_operator.planning.plan import Suspend


def training(**job):
    job = {"algorithm": {"name": "PPO", "totalSteps": 20, "ppo": {}}, **job}
    return SmallCluster(a_job(**job)).run_until(lambda cluster: cluster.summary == "Training")


def test_a_job_trains_and_completes_and_keeps_only_its_log():
    cluster = training()
    assert cluster.condition("RolesReady") == ("True", "RolesReady")
    assert cluster.job.status.roles_ready == "4/4"
    assert cluster.row("critic").scope == "Role" and cluster.row("reward").scope == "Replica"
    cluster.run_until(lambda cluster: cluster.summary == "Complete").run(5)
    assert cluster.condition("Complete") == ("True", "AllStepsDone")
    assert cluster.condition("Failed")[0] == "absent"
    assert cluster.job.status.progress.step == 20
    assert cluster.ray_cluster is None and cluster.controller_job is not None
    assert [pod["metadata"]["labels"]["rlhf.dev/component"] for pod in cluster.pods] == ["controller"]
    assert [event for event in cluster.reasons() if event != "ClusterReady"] == [
        "Created",
        "RolesReady",
        "TrainingStarted",
        "Completed",
    ]


def test_the_controller_comes_after_the_head():
    cluster = SmallCluster().run(30)
    assert cluster.made_pods.index(HEAD) < cluster.made_pods.index("controller")
    assert cluster.made_jobs == 1


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param(ConditionReason.WORKER_IMPORT_FAILED, "No module named 'mine'", id="a worker cannot be imported"),
        pytest.param(ConditionReason.REPEATED_EXCEPTION, "ValueError: 3", id="the same exception came twice"),
    ],
)
def test_a_failure_for_good_says_why_and_frees_everything(reason, message):
    cluster = training()
    cluster.end(EndingOutcome.FAILED, reason, code=3, message=message)
    cluster.run(5)
    assert cluster.condition("Failed") == ("True", reason)
    assert message in cluster.message("Failed")
    assert cluster.ray_cluster is None and cluster.summary == "Failed"
    assert cluster.job.status.completion_time is not None


def test_a_controller_that_keeps_dying_fails_the_job_with_its_last_words():
    cluster = training(controller={"maxRestarts": 2}, algorithm={"name": "PPO", "totalSteps": 10_000, "ppo": {}})
    for _ in range(3):
        cluster.run_until(lambda cluster: cluster.report() is not None)
        cluster.end(EndingOutcome.INTERRUPTED, ConditionReason.CONTROLLER_LOST, code=1, message="lost the disk")
        cluster.run(3)
    cluster.run(3)
    assert cluster.condition("Failed") == ("True", "ControllerFailed")
    assert "3 times" in cluster.message("Failed") and "lost the disk" in cluster.message("Failed")
    assert cluster.ray_cluster is None


def test_a_controller_that_dies_is_replaced_and_the_job_goes_on():
    cluster = training()
    step = cluster.step
    cluster.end(EndingOutcome.INTERRUPTED, ConditionReason.CONTROLLER_LOST, code=1, message="bad luck")
    cluster.reconcile()
    assert cluster.condition("Running") == ("False", "ControllerLost")
    cluster.run_until(lambda cluster: cluster.summary == "Training")
    assert cluster.step >= step and cluster.made_jobs == 1


def test_a_controller_that_succeeds_without_a_word_is_no_success():
    cluster = training()
    cluster.kill(cluster.living("controller")[0], code=0, reason="Completed")
    cluster.run(5)
    assert cluster.condition("Failed") == ("True", "ControllerFailed")
    assert "worker image" in cluster.message("Failed")


def test_a_controller_that_was_drained_is_made_anew():
    cluster = training()
    cluster.end(EndingOutcome.SUSPENDED, ConditionReason.SUSPENDED, code=0)
    cluster.run_until(lambda cluster: cluster.summary == "Complete")
    assert cluster.made_jobs == 2


def test_a_finished_job_never_starts_again():
    cluster = training().run_until(lambda cluster: cluster.summary == "Complete").run(3)
    pods, status = len(cluster.made_pods), cluster.job.status
    cluster.edit(suspend=True).run(3)
    cluster.edit(suspend=False, roles={"critic": {"image": {"name": "other:2"}}}).run(20)
    assert len(cluster.made_pods) == pods and cluster.condition("Complete") == ("True", "AllStepsDone")
    assert cluster.job.status.completion_time == status.completion_time


def test_the_running_time_ends_at_its_deadline():
    cluster = training(activeDeadlineSeconds=5)
    assert 0 < cluster.plan().wake_in <= 5
    cluster.run_until(lambda cluster: cluster.summary == "Failed", limit=7).run(3)
    assert cluster.condition("Failed") == ("True", "DeadlineExceeded")
    assert cluster.ray_cluster is None and cluster.controller_job is None and not cluster.pods


def test_a_finished_job_goes_when_its_time_is_over():
    cluster = training(ttlSecondsAfterFinished=60).run_until(lambda cluster: cluster.summary == "Complete")
    assert 58 <= cluster.plan().wake_in <= 60 and not cluster.deleted_job
    cluster.tick(61)
    cluster.reconcile()
    assert cluster.deleted_job


def test_a_job_made_suspended_has_nothing_made_for_it():
    cluster = SmallCluster(a_job(suspend=True)).run(5)
    assert cluster.condition("Suspended") == ("True", "Suspended")
    assert not cluster.children and cluster.ray_cluster is None and not cluster.made_pods
    cluster.edit(suspend=False).run_until(lambda cluster: cluster.summary == "Training")
    assert cluster.condition("Suspended") == ("False", "Resumed")


def test_suspension_saves_first_then_frees_everything_and_resumes_from_there():
    cluster = training()
    step = cluster.step
    cluster.edit(suspend=True).reconcile()
    assert cluster.calls == [Suspend()]
    assert cluster.condition("Suspended") == ("False", "Suspending") and cluster.ray_cluster is not None
    cluster.run_until(lambda cluster: cluster.summary == "Suspended")
    assert not cluster.pods and cluster.ray_cluster is None and cluster.controller_job is None
    assert cluster.job.status.progress.step == cluster.step >= step
    cluster.run(5)
    cluster.edit(suspend=False).run_until(lambda cluster: cluster.summary == "Training")
    cluster.run_until(lambda cluster: cluster.summary == "Complete")
    assert [reason for reason in cluster.reasons() if reason in ("Suspended", "Resumed")] == ["Suspended", "Resumed"]


def test_a_job_is_not_suspended_before_its_last_pod_is_gone():
    cluster = training()
    cluster.edit(suspend=True).run_until(lambda cluster: cluster.summary == "Suspended")
    left = {
        "kind": "Pod",
        "metadata": {
            "name": "left",
            "uid": "left",
            "labels": {COMPONENT_LABEL: "head"},
            "ownerReferences": [{"uid": "-"}],
        },
    }
    left["metadata"]["deletionTimestamp"] = format_time(cluster.now)
    cluster.pods.append({**left, "spec": {}, "status": {"phase": "Failed"}})
    cluster.reconcile()
    assert cluster.condition("Suspended") == ("False", "Suspending")
    assert cluster.message("Suspended").endswith("Pods left: 1.")


def test_a_controller_that_cannot_be_asked_is_told_by_sigterm():
    cluster = training()
    cluster.reachable = False
    planned = cluster.edit(suspend=True).plan()
    assert planned.calls == []
    assert [delete.kind for delete in planned.deletes] == ["Job"]
    cluster.run_until(lambda cluster: cluster.summary == "Suspended")


def test_a_controller_that_closes_its_ears_before_it_ends_is_heard_out():
    cluster = training()
    cluster.edit(suspend=True).reconcile()
    cluster.reachable = False
    assert cluster.plan().deletes == []
    cluster.tick()
    cluster.reachable = True
    cluster.run_until(lambda cluster: cluster.summary == "Suspended")
    assert cluster.job.status.progress.step == cluster.step


def test_a_job_that_is_resumed_has_lost_no_controller():
    cluster = training()
    cluster.edit(suspend=True).run_until(lambda cluster: cluster.summary == "Suspended")
    cluster.edit(suspend=False)
    seen = set()
    cluster.run_until(lambda cluster: seen.add(cluster.condition("Running")) or cluster.summary == "Training")
    assert "ControllerLost" not in {reason for _, reason in seen} | set(cluster.reasons())


def test_what_a_deleted_job_of_the_same_name_left_is_not_taken_for_ours():
    cluster = training()
    former, claim = cluster.uids(), ("PersistentVolumeClaim", "ppo-spelling-state")
    for item in (cluster.ray_cluster, cluster.controller_job, cluster.children[claim]):
        item["metadata"]["ownerReferences"] = []
    metadata = cluster.job.metadata.model_copy(
        update={"uid": "another", "creation_timestamp": format_time(cluster.now + timedelta(seconds=1))}
    )
    cluster.job = cluster.job.model_copy(update={"metadata": metadata, "status": None})
    cluster.tick(2)
    cluster.run_until(lambda cluster: cluster.summary == "Training")
    after = cluster.uids()
    assert not {uid for uids in after.values() for uid in uids} & {uid for uids in former.values() for uid in uids}
    owners = [item["metadata"]["ownerReferences"] for item in (cluster.ray_cluster, cluster.controller_job)]
    assert all(owner[0]["uid"] == "another" for owner in owners)
    assert cluster.children[claim]["metadata"]["ownerReferences"] == []


def test_an_owner_that_somebody_took_away_is_restored_and_nothing_else_changes():
    cluster = training()
    before, jobs = cluster.uids(), cluster.made_jobs
    made_once = [cluster.controller_job, cluster.children["PersistentVolumeClaim", "ppo-spelling-state"]]
    cluster.settings = SmallCluster(state_size="77Gi", worker_image="worker:2").settings
    specs = [dict(item["spec"]) for item in made_once]
    for item in made_once:
        item["metadata"]["ownerReferences"] = []
    cluster.reconcile()
    after = [cluster.controller_job, cluster.children["PersistentVolumeClaim", "ppo-spelling-state"]]
    assert [item["metadata"]["ownerReferences"][0]["uid"] for item in after] == ["job-uid", "job-uid"]
    assert [item["spec"] for item in after] == specs
    assert (cluster.uids(), cluster.made_jobs) == (before, jobs)


def test_a_job_made_while_the_claim_of_the_last_one_goes_waits_for_that_and_says_so():
    cluster = SmallCluster().run(1)
    claim = cluster.children["PersistentVolumeClaim", "ppo-spelling-state"]
    cluster = SmallCluster()
    claim["metadata"]["deletionTimestamp"] = format_time(cluster.now)
    cluster.children["PersistentVolumeClaim", "ppo-spelling-state"] = claim
    cluster.run(3)
    assert cluster.ray_cluster is None and cluster.summary == "Creating"
    assert 'Claim "ppo-spelling-state" is being deleted' in cluster.message("ClusterReady")
    del cluster.children["PersistentVolumeClaim", "ppo-spelling-state"]
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_a_next_try_that_no_operator_would_set_holds_nothing():
    cluster = SmallCluster(a_job(startDeadlineSeconds=30))
    cluster.no_node = {"critic"}
    cluster.run_until(lambda cluster: cluster.summary == "Waiting")
    cluster.no_node = set()
    far = [row.model_copy(update={"next_restart_time": "2999-01-01T00:00:00Z"}) for row in cluster.job.status.roles]
    cluster.job = cluster.job.model_copy(update={"status": cluster.job.status.model_copy(update={"roles": tuple(far)})})
    cluster.run_until(lambda cluster: cluster.summary == "Training", limit=30)


def test_a_controller_that_never_leaves_is_ended_after_the_grace_period():
    cluster = training(suspendGracePeriodSeconds=4, algorithm={"name": "PPO", "totalSteps": 1000, "ppo": {}})
    cluster.edit(suspend=True)
    for _ in range(4):
        cluster.reconcile()
        cluster.told_to_leave = False  # it does not listen
        cluster.tick()
    assert cluster.controller_job is not None
    cluster.run_until(lambda cluster: cluster.summary == "Suspended", limit=6)


def test_a_suspension_taken_back_goes_on():
    cluster = training()
    cluster.edit(suspend=True).run(1)
    cluster.edit(suspend=False).run_until(lambda cluster: cluster.summary == "Complete")


def test_another_controllers_job_is_left_alone():
    cluster = SmallCluster(a_job(managedBy="example.com/other"))
    planned = cluster.plan()
    assert not planned.applies and planned.status is None


@pytest.mark.parametrize(
    ("field", "limit"), [("start_time", "activeDeadlineSeconds"), ("completion_time", "ttlSecondsAfterFinished")]
)
def test_a_time_that_somebody_wrote_by_hand_does_not_stop_the_operator(field, limit):
    cluster = training(**{limit: 100})
    if field == "completion_time":
        cluster.run_until(lambda cluster: cluster.summary == "Complete")
    status = cluster.job.status.model_copy(update={field: "9999-12-31T23:59:59Z"})
    cluster.job = cluster.job.model_copy(update={"status": status})
    assert cluster.plan().wake_in <= 100
