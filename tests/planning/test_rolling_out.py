"""A change to one role touches that role alone; what was changed by hand is restored."""

import pytest
from planning_builders import a_job
from small_cluster import HEAD, SmallCluster

from rlhf_operator.planning.plan import ExpectLoss, RestartRole, ScaleRole
from rlhf_operator.planning.rollout import restart_requests

LONG = {"algorithm": {"name": "PPO", "totalSteps": 1000, "ppo": {}}}


def training(**job):
    return SmallCluster(a_job(**{**LONG, **job})).run_until(lambda cluster: cluster.summary == "Training")


def test_a_roles_new_image_replaces_that_roles_pods_only():
    cluster = training()
    before = cluster.uids()
    cluster.edit(roles={"critic": {"image": {"name": "other:2"}}}).run(1)
    expected = [call for call in cluster.calls if isinstance(call, ExpectLoss)]
    assert expected and {call.role for call in expected} == {"critic"}
    cluster.run(10)
    after = cluster.uids()
    changed = {group for group in before if before[group] != after[group]}
    assert changed == {"critic"} and len(after["critic"]) == 1
    groups = {group["groupName"]: group for group in cluster.ray_cluster["spec"]["workerGroupSpecs"]}
    assert groups["critic"]["template"]["spec"]["containers"][0]["image"] == "other:2"
    assert cluster.summary == "Training"


def test_another_rendering_or_other_settings_touch_no_pod():
    cluster = training()
    before = cluster.uids()
    spec = cluster.ray_cluster["spec"]
    cluster.settings = SmallCluster(worker_image="worker:2", ray_version="2.61.0").settings
    cluster.run(5)
    assert cluster.uids() == before and cluster.ray_cluster["spec"] == spec


def test_more_replicas_are_made_and_the_controller_is_told():
    cluster = training()
    before = cluster.uids()
    cluster.edit(roles={"reward": {"replicas": 3}}).run(8)
    after = cluster.uids()
    assert ScaleRole(role="reward", replicas=3) in cluster.calls
    assert len(after["reward"]) == 3 and set(before["reward"]) < set(after["reward"])
    assert {group for group in before if before[group] != after[group]} == {"reward"}
    assert cluster.row("reward").ready == 3


def test_a_role_that_grows_has_lost_nothing_and_one_that_then_loses_a_pod_has():
    cluster = training()
    cluster.edit(roles={"reward": {"replicas": 2}})
    words = set()
    for _ in range(6):
        cluster.run(1)
        words.add(cluster.summary)
    assert words == {"Scaling", "Training"}
    assert "Recovering" not in cluster.reasons() and "Scaling" not in cluster.reasons()
    cluster.no_node = {"reward"}
    cluster.edit(roles={"reward": {"replicas": 3}}).run(2)
    assert cluster.condition("RolesReady") == ("False", "Unschedulable")


def test_a_restart_of_a_role_that_there_is_not_is_told_once():
    cluster = training()
    cluster.edit(annotations={"rlhf.dev/restart": "critik=1"}).run(3)
    told = {event.key: event.message for event in cluster.events if event.reason == "UnknownRole"}
    assert list(told.values()) == [
        'Annotation `rlhf.dev/restart` asks for a restart of role "critik"; the job has "actor", "critic", "reward",'
        ' "reference".'
    ]
    assert not any(isinstance(call, RestartRole) for call in cluster.calls)


def test_fewer_replicas_the_controller_is_told_first_and_those_pods_go_that_it_names():
    cluster = training(roles={"reward": {"replicas": 3}})
    stays = cluster.living("reward")[-1]["metadata"]["uid"]
    cluster.edit(roles={"reward": {"replicas": 1}}).reconcile()
    groups = {group["groupName"]: group for group in cluster.ray_cluster["spec"]["workerGroupSpecs"]}
    assert cluster.calls[-1] == ScaleRole(role="reward", replicas=1)
    assert groups["reward"]["replicas"] == 3, "no pod goes before the controller knows"
    cluster.run(6)
    assert cluster.uids()["reward"] == [stays]
    groups = {group["groupName"]: group for group in cluster.ray_cluster["spec"]["workerGroupSpecs"]}
    assert groups["reward"]["replicas"] == 1 and "scaleStrategy" not in groups["reward"]
    assert cluster.summary == "Training"


def test_an_operator_that_has_just_begun_asks_again_which_pods_may_go():
    cluster = training(roles={"reward": {"replicas": 3}})
    stays = cluster.living("reward")[-1]["metadata"]["uid"]
    cluster.edit(roles={"reward": {"replicas": 1}}).reconcile()
    cluster.idle_pods.clear()  # the answer was the old operator's
    cluster.run(6)
    assert cluster.calls.count(ScaleRole(role="reward", replicas=1)) == 2
    assert cluster.uids()["reward"] == [stays]


def test_a_restart_is_asked_for_once():
    cluster = training()
    cluster.edit(annotations={"rlhf.dev/restart": "critic=monday"}).run(5)
    assert [call.role for call in cluster.calls if isinstance(call, RestartRole)] == ["critic"]
    cluster.edit(annotations={"rlhf.dev/restart": "critic=monday,reward=1,nobody=1"}).run(5)
    assert [call.role for call in cluster.calls if isinstance(call, RestartRole)] == ["critic", "reward"]


def test_a_restart_waits_for_a_controller_that_can_be_told():
    cluster = training()
    cluster.reachable = False
    cluster.edit(annotations={"rlhf.dev/restart": "critic=1"}).run(3)
    assert not cluster.calls
    cluster.reachable = True
    cluster.run(3)
    assert [call.role for call in cluster.calls] == ["critic"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("critic=1", {"critic": "1"}),
        (" critic = 1 , reward=a=b,", {"critic": "1", "reward": "a=b"}),
        ("critic", {"critic": ""}),
    ],
)
def test_restart_requests_are_read(text, want):
    assert restart_requests(text) == want


def test_a_head_that_is_not_ready_for_a_while_is_not_a_lost_one():
    cluster = training()
    before = cluster.uids()
    (head,) = cluster.living(HEAD)
    ready = next(found for found in head["status"]["conditions"] if found["type"] == "Ready")
    for status, want in (("False", ("False", "HeadNotReady")), ("True", ("True", "ClusterReady"))):
        ready["status"] = status
        cluster.reconcile()
        cluster.reconcile()
        assert cluster.condition("ClusterReady") == want
    assert cluster.uids() == before


def test_a_head_that_is_lost_after_it_was_not_ready_is_a_lost_one():
    cluster = training()
    (head,) = cluster.living(HEAD)
    next(found for found in head["status"]["conditions"] if found["type"] == "Ready")["status"] = "False"
    cluster.reconcile()
    assert cluster.condition("ClusterReady") == ("False", "HeadNotReady")
    cluster.kill(head)
    cluster.run(1)
    assert cluster.condition("ClusterReady") == ("False", "HeadLost")


def test_a_lost_head_takes_all_pods_with_it_and_counts_for_no_role():
    cluster = training()
    before = cluster.uids()
    head = cluster.living(HEAD)[0]
    cluster.kill(head)
    cluster.run(1)
    assert cluster.condition("ClusterReady") == ("False", "HeadLost")
    cluster.run_until(lambda cluster: cluster.summary == "Training", limit=20)
    after = cluster.uids()
    assert all(not set(before[group]) & set(after[group]) for group in before)
    assert cluster.job.status.restarts == 0
    assert "HeadLost" in cluster.reasons()
    assert cluster.made_jobs == 1


def test_with_fault_tolerance_roles_outlive_their_head():
    cluster = training(head={"gcsFaultTolerance": {"redisAddress": "redis:6379"}})
    before = cluster.uids()
    cluster.kill(cluster.living(HEAD)[0])
    for _ in range(3):
        cluster.reconcile()
        assert not any(delete.kind == "Pod" for delete in cluster.plan().deletes)
        cluster.tick()
    assert cluster.uids()["critic"] == before["critic"]


def test_a_changed_head_is_replaced():
    cluster = training()
    before = cluster.uids()
    cluster.edit(head={"resources": {"memory": "4Gi"}})
    cluster.run_until(lambda cluster: cluster.uids()[HEAD] not in (before[HEAD], []) and cluster.summary == "Training")


@pytest.mark.parametrize(
    "interfere",
    [
        pytest.param(lambda cluster: cluster.children.clear(), id="children are deleted"),
        pytest.param(lambda cluster: setattr(cluster, "ray_cluster", None), id="the RayCluster is deleted"),
        pytest.param(lambda cluster: setattr(cluster, "controller_job", None), id="the controller's Job is deleted"),
        pytest.param(lambda cluster: [cluster.remove(pod) for pod in cluster.pods], id="every pod is deleted"),
        pytest.param(
            lambda cluster: cluster.ray_cluster["spec"]["workerGroupSpecs"][0].update(replicas=0),
            id="a group is scaled to nothing",
        ),
        pytest.param(
            lambda cluster: cluster.ray_cluster["spec"].update(workerGroupSpecs=[]), id="the groups are deleted"
        ),
        pytest.param(
            lambda cluster: [child["metadata"]["labels"].clear() for child in cluster.children.values()],
            id="labels are removed",
        ),
        pytest.param(
            lambda cluster: cluster.controller_job["metadata"]["labels"].clear(),
            id="the controller's Job lost its label",
        ),
        pytest.param(
            lambda cluster: cluster.controller_job["spec"].update(suspend=True), id="the controller's Job is suspended"
        ),
    ],
)
def test_what_a_hand_changed_is_restored(interfere):
    cluster = training()
    children = set(cluster.children)
    interfere(cluster)
    cluster.run(1).run_until(lambda cluster: cluster.summary == "Training", limit=30)
    assert set(cluster.children) == children
    assert cluster.controller_job["metadata"]["labels"] and not cluster.controller_job["spec"].get("suspend")
    claims = {key for key in children if key[0] == "PersistentVolumeClaim"}
    assert all(cluster.children[key]["metadata"]["labels"] for key in children - claims)


def test_pods_of_a_deleted_ray_cluster_are_waited_for_by_name():
    cluster = training()
    cluster.grace_ticks = 3
    pod = cluster.living("critic")[0]["metadata"]["name"]
    cluster.ray_cluster = None
    for living in cluster.pods:
        cluster.remove(living)
    cluster.job = cluster.job.model_copy(update={"status": None})  # as if never ready: a lost head has its own words
    cluster.reconcile()
    assert cluster.ray_cluster is None, "KubeRay would take these pods for the new cluster's"
    assert "still leaving" in cluster.message("ClusterReady")
    assert f'"{pod}" on node "node-critic"' in cluster.message("ClusterReady")
    cluster.run(6)
    assert cluster.ray_cluster is not None


def test_an_existing_claim_of_ours_is_not_edited():
    cluster = training()
    key = ("PersistentVolumeClaim", "ppo-spelling-state")
    assert key in cluster.children
    assert not any(manifest["kind"] == "PersistentVolumeClaim" for manifest in cluster.plan().applies)


def test_a_pod_on_a_dead_node_is_forced_away_a_minute_after_its_grace():
    cluster = training()
    cluster.grace_ticks = 10_000
    critic = cluster.living("critic")[0]
    cluster.remove(critic)
    cluster.run(5)
    assert critic in cluster.pods
    cluster.tick(60)
    (forced,) = [delete for delete in cluster.plan().deletes if delete.kind == "Pod"]
    assert forced.uid == critic["metadata"]["uid"] and forced.grace_seconds == 0
