"""Whatever keeps a job's pods away is said within one look, with the part it is about and what to do."""

from datetime import timedelta

import pytest
from planning_builders import a_job, settings
from small_cluster import HEAD, SmallCluster

from rlhf_api.reasons import ConditionReason
from rlhf_api.types import StateLocation
from rlhf_operator.planning.reconcile import plan
from rlhf_operator.planning.snapshot import Snapshot

CLAIM = {"location": {"persistentVolumeClaim": {"claimName": "shared"}}}


def test_a_pool_that_no_node_has_is_named_with_role_selector_and_resource():
    cluster = SmallCluster()
    cluster.no_node = {"critic"}
    cluster.run(5)
    assert cluster.condition("RolesReady") == ("False", "Unschedulable")
    for words in (
        'role "critic"',
        "didn't match Pod's node affinity",
        "pool=critic",
        "cpu 1, memory 2Gi",
        "spec.roles[1]",
    ):
        assert words in cluster.message("RolesReady")
    assert cluster.summary == "Unschedulable"
    assert cluster.job.status.roles_ready == "3/4"
    cluster.no_node = set()
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_a_new_claim_that_is_not_bound_yet_is_no_lack_of_nodes():
    cluster = SmallCluster()
    cluster.no_node, cluster.scheduler_says = {"critic"}, "pod has unbound immediate PersistentVolumeClaims"
    cluster.run(5)
    assert cluster.condition("RolesReady") == ("False", "WaitingForPods")
    assert 'role "critic"' in cluster.message("RolesReady") and "describe pvc" in cluster.message("RolesReady")
    cluster.no_node = set()
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def waiting(reason, message):
    def act(cluster, pod):
        pod["status"]["containerStatuses"] = [
            {"name": "main", "image": "none:1", "state": {"waiting": {"reason": reason, "message": message}}}
        ]

    return act


def warning(reason, message):
    def act(cluster, pod):
        pod["status"].pop("containerStatuses", None)
        cluster.warn(pod, reason, message)

    return act


@pytest.mark.parametrize(
    ("trouble", "want_reason", "want_words"),
    [
        pytest.param(
            waiting("ImagePullBackOff", "Back-off pulling image"),
            "ImagePullFailed",
            ['"none:1"', "spec.roles[2].image", "pullSecrets"],
            id="an image that cannot be pulled",
        ),
        pytest.param(
            waiting("InvalidImageName", ""), "ImagePullFailed", ["InvalidImageName"], id="an image with a bad name"
        ),
        pytest.param(
            waiting("CreateContainerConfigError", 'secret "hf" not found'),
            "ReferenceMissing",
            ['secret "hf" not found', "envFrom"],
            id="a missing Secret",
        ),
        pytest.param(
            waiting("RunContainerError", "exec: python: not found"),
            "PodsFailing",
            ["exec: python: not found", "worker image"],
            id="an image without Python",
        ),
        pytest.param(
            warning("FailedMount", 'configmap "rules" not found'),
            "VolumeMissing",
            ['configmap "rules" not found', "`volumes`"],
            id="a volume that cannot be mounted",
        ),
        pytest.param(
            warning("FailedMount", "Unable to attach or mount volumes: timed out waiting for the condition"),
            "VolumeMissing",
            ["timed out waiting for the condition"],
            id="a volume that is not mounted in time",
        ),
        pytest.param(
            warning("FailedAttachVolume", "Multi-Attach error for volume"),
            "VolumeMissing",
            ["Multi-Attach", "ReadWriteMany"],
            id="a volume that another node holds",
        ),
        pytest.param(
            warning("FailedCreatePodSandBox", "no IP addresses available"),
            "WaitingForPods",
            ["no IP addresses available"],
            id="something else that the kubelet says",
        ),
    ],
)
def test_what_the_pod_says_is_in_the_condition(trouble, want_reason, want_words):
    cluster = SmallCluster().run(2)
    (pod,) = cluster.living("reward")
    pod["status"]["phase"] = "Pending"
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    trouble(cluster, pod)
    cluster.reconcile()
    assert cluster.condition("RolesReady") == ("False", want_reason)
    for words in ['role "reward"', *want_words]:
        assert words in cluster.message("RolesReady")


@pytest.mark.parametrize(
    "said",
    [
        "Unable to attach or mount volumes: unmounted volumes=[state]: PVC is not bound",
        'MountVolume.SetUp failed for volume "x": failed to sync configmap cache: timed out waiting for the condition',
    ],
    ids=["a claim that is bound a moment later", "a ConfigMap that the kubelet has not seen yet"],
)
def test_what_passes_by_itself_is_no_trouble(said):
    cluster = SmallCluster().run(2)
    (pod,) = cluster.living("reward")
    pod["status"] |= {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    warning("FailedMount", said)(cluster, pod)
    cluster.reconcile()
    assert cluster.condition("RolesReady") == ("False", "LoadingModels")
    assert "VolumeMissing" not in cluster.reasons()


def test_a_quota_names_itself_and_its_role_while_the_others_come_up():
    cluster = SmallCluster()
    cluster.quota = {"actor"}
    cluster.run(5)
    assert cluster.condition("RolesReady") == ("False", "QuotaExceeded")
    assert 'ResourceQuota "small"' in cluster.message("RolesReady")
    assert 'role "actor"' in cluster.message("RolesReady")
    assert "controller" in cluster.made_pods
    assert {role: len(cluster.living(role)) for role in ("critic", "reward", "reference")} == dict(
        critic=1, reward=1, reference=1
    )
    order = [group["groupName"] for group in cluster.ray_cluster["spec"]["workerGroupSpecs"]]
    assert order[-1] == "actor"
    generation = cluster.ray_cluster["metadata"]["generation"]
    cluster.run(20)
    assert cluster.ray_cluster["metadata"]["generation"] == generation, "the order does not go back and forth"
    cluster.quota = set()
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_two_roles_under_quota_do_not_take_turns_for_ever():
    cluster = SmallCluster()
    cluster.quota = {"actor", "critic"}
    cluster.run(10)
    generation = cluster.ray_cluster["metadata"]["generation"]
    assert len(cluster.living("reward")) == len(cluster.living("reference")) == 1
    cluster.run(20)
    assert cluster.ray_cluster["metadata"]["generation"] == generation
    cluster.quota = set()
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_a_role_whose_name_begins_like_another_is_not_taken_for_it():
    cluster = SmallCluster().run(1)
    cluster.pods = [pod for pod in cluster.pods if pod["metadata"]["labels"].get("rlhf.dev/role") != "critic"]
    cluster.warn(
        cluster.ray_cluster,
        "FailedToCreateWorkerPod",
        'pods "ppo-spelling-critic-worker-worker-abcde" is forbidden: exceeded quota: small, used: 3',
    )
    cluster.reconcile()
    assert cluster.condition("RolesReady")[1] != "QuotaExceeded"


def test_a_controller_under_quota_is_named():
    cluster = SmallCluster().run(1)
    cluster.pods = [pod for pod in cluster.pods if pod["metadata"]["labels"]["rlhf.dev/component"] != "controller"]
    cluster.reconcile()
    cluster.warn(
        cluster.controller_job,
        "FailedCreate",
        'Error creating: pods "ppo-spelling-controller-abcde" is forbidden: exceeded quota: small, requested: cpu=1',
    )
    cluster.reconcile()
    assert cluster.condition("Running") == ("False", "QuotaExceeded")
    assert "controller" in cluster.message("Running") and '"small"' in cluster.message("Running")


def test_without_kuberay_the_job_says_how_to_install_it_and_goes_on_then():
    cluster = SmallCluster()
    cluster.kuberay = False
    cluster.run(2)
    assert cluster.condition("ClusterReady") == ("False", "KubeRayMissing")
    assert "helm install" in cluster.message("ClusterReady")
    assert cluster.summary == "KubeRayMissing" and cluster.plan().wake_in is not None
    cluster.kuberay = True
    cluster.run_until(lambda cluster: cluster.summary == "Training")


QUOTA = '"x" is forbidden: exceeded quota: few, requested: count=1, used: count=5, limited: count=5'
REFUSED = {
    "a ConfigMap over a quota": ("ConfigMap", ConditionReason.QUOTA_EXCEEDED, QUOTA, 'ResourceQuota "few"'),
    "a Secret whose name is taken": ("Secret", ConditionReason.NAME_TAKEN, 'Secret "x" is there already', "already."),
    "a RayCluster with a bad field": ("RayCluster", ConditionReason.OBJECT_REFUSED, "spec.x: " + "y" * 9000, "spec.x"),
    "the controller's Job": ("Job", ConditionReason.OBJECT_REFUSED, "denied by policy", "tried again"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_api_server_refuses_is_said_in_the_condition_that_it_keeps_from_being_true(case: str):
    kind, reason, said, words = REFUSED[case]
    cluster = SmallCluster()
    cluster.refuses = {kind: (reason, said)}
    if kind != "Job":
        cluster.no_node = {HEAD, *(role.name for role in cluster.job.spec.roles)}
    cluster.run(8)
    condition = "Running" if kind == "Job" else "ClusterReady"
    assert cluster.condition(condition) == ("False", reason)
    assert words in cluster.message(condition) and len(cluster.message(condition)) < 1500
    assert cluster.summary == reason[:16]
    assert cluster.reasons().count(reason) >= 1
    cluster.refuses, cluster.no_node = {}, set()
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_what_is_refused_of_a_job_that_trains_is_an_event():
    cluster = SmallCluster().run_until(lambda cluster: cluster.summary == "Training")
    cluster.refuses = {"NetworkPolicy": (ConditionReason.OBJECT_REFUSED, "denied by policy")}
    cluster.run(3)
    assert cluster.summary == "Training"
    assert {event.message for event in cluster.events if event.reason == "ObjectRefused"} == {
        'The API server refuses NetworkPolicy "ppo-spelling": denied by policy. It is tried again every half minute,'
        " and at once after a change of the manifest."
    }


def test_what_kuberay_may_not_make_before_the_head_is_said():
    cluster = SmallCluster()
    cluster.quota = {HEAD}
    cluster.run(1)
    cluster.pods.clear()
    cluster.warn(cluster.ray_cluster, "FailedToCreateService", f"Failed to create service team/x, {QUOTA}")
    cluster.reconcile()
    assert cluster.condition("ClusterReady") == ("False", "QuotaExceeded")
    assert 'ResourceQuota "few"' in cluster.message("ClusterReady")


def test_a_ray_cluster_that_kuberay_refuses_is_said():
    cluster = SmallCluster().run(1)
    cluster.warn(cluster.ray_cluster, "InvalidRayClusterSpec", "The RayCluster spec is invalid team/x: bad options")
    cluster.reconcile()
    assert cluster.condition("ClusterReady") == ("False", "ClusterInvalid")
    assert "bad options" in cluster.message("ClusterReady")
    cluster.ray_cluster["status"]["observedGeneration"] = cluster.ray_cluster["metadata"]["generation"]
    cluster.reconcile()
    assert cluster.condition("ClusterReady")[1] != "ClusterInvalid"


def test_pods_that_die_before_they_join_end_the_job_with_their_last_words():
    cluster = SmallCluster(a_job(roles={"critic": {"restartPolicy": {"maxRestarts": 3}}}))
    cluster.crashing = {"critic"}
    cluster.run_until(lambda cluster: cluster.condition("RolesReady") == ("False", "PodsFailing"), limit=6)
    assert "no module named" in cluster.message("RolesReady")
    cluster.run_until(lambda cluster: cluster.summary == "Failed", limit=40)
    assert cluster.condition("Failed") == ("True", "RestartsExhausted")
    assert 'Role "critic"' in cluster.message("Failed") and "no module named ray" in cluster.message("Failed")
    assert cluster.row("critic").restarts == 4 and cluster.row("actor").restarts == 0
    assert cluster.row("critic").last_failure.exit_code == 1
    assert cluster.reasons().count("PodEnded") == 4


def test_a_pod_that_is_replaced_by_the_users_correction_is_no_death():
    cluster = SmallCluster().run(3)
    (pod,) = cluster.living("critic")
    cluster.remove(pod)
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    cluster.now += timedelta(seconds=1)
    cluster.kill(pod, code=143, reason="Error")
    cluster.reconcile()
    assert cluster.row("critic").restarts == 0 and "PodEnded" not in cluster.reasons()


def test_a_pod_whose_claim_is_being_deleted_waits():
    cluster = SmallCluster()
    cluster.no_node = {"critic"}
    cluster.scheduler_says = 'persistentvolumeclaim "shared" is being deleted'
    cluster.run(5)
    assert cluster.condition("RolesReady") == ("False", "WaitingForPods")
    assert '"shared" is being deleted' in cluster.message("RolesReady")


def test_while_the_head_starts_nothing_loads():
    cluster = SmallCluster().run(1)
    words = []
    while cluster.condition("ClusterReady")[0] != "True":
        words.append(cluster.summary)
        cluster.run(1)
    assert set(words) <= {"Creating", "Pending"}, words


@pytest.mark.parametrize(
    ("state", "claim", "want_words"),
    [
        pytest.param(CLAIM, None, ['"shared"', "no such claim"], id="the claim is missing"),
        pytest.param(
            CLAIM,
            {"spec": {"accessModes": ["ReadWriteOnce"]}},
            ["ReadWriteOnce", "ReadWriteMany", 'role "critic": pool=critic', "controller: any node"],
            id="one node's claim and several pools",
        ),
        pytest.param(
            CLAIM, {"spec": {"accessModes": ["ReadWriteOncePod"]}}, ["ReadWriteOncePod"], id="a claim for one pod"
        ),
        pytest.param(CLAIM, {"spec": {"accessModes": ["ReadOnlyMany"]}}, ["ReadOnlyMany"], id="a claim to read only"),
        pytest.param(
            {"location": {"uri": "s3://bucket/runs"}}, None, ["cacheVolume"], id="a built-in model without a cache"
        ),
    ],
)
def test_a_place_that_resume_cannot_reach_is_refused(state, claim, want_words):
    cluster = SmallCluster(a_job(state=state))
    cluster.claims = {"shared": claim} if "persistentVolumeClaim" in state["location"] else {}
    cluster.run(2)
    assert cluster.condition("RolesReady") == ("False", "StateUnreachable")
    for words in want_words:
        assert words in cluster.message("RolesReady")
    assert not cluster.children and cluster.ray_cluster is None and cluster.plan().wake_in is not None
    cluster.claims = {"shared": {"spec": {"accessModes": ["ReadWriteMany"]}}}
    if claim is not None:
        cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_one_nodes_claim_will_do_for_one_pool():
    pool = {"nodePool": {"nodeSelector": {"pool": "gpu"}}}
    roles = {name: pool for name in ("actor", "critic", "reward", "reference")}
    cluster = SmallCluster(a_job(state=CLAIM, controller=pool, roles=roles))
    cluster.claims = {"shared": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    cluster.run_until(lambda cluster: cluster.summary == "Training")


def test_no_place_and_no_class_is_refused():
    cluster = SmallCluster(state_storage_class=None).run(1)
    assert cluster.condition("RolesReady") == ("False", "StateUnreachable")
    assert "spec.state.location" in cluster.message("RolesReady")
    assert cluster.job.spec.state.location != StateLocation(uri="s3://x/y")


def test_a_missing_claim_of_a_volume_is_named():
    volume = {"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "corpus"}}
    cluster = SmallCluster(a_job(volumes=[volume]))
    cluster.claims = {"corpus": None}
    cluster.run(1)
    assert cluster.condition("RolesReady") == ("False", "VolumeMissing")
    assert '"corpus"' in cluster.message("RolesReady")


def test_a_namespace_that_goes_is_left_alone():
    cluster = SmallCluster()
    snapshot = Snapshot(job=cluster.job, now=cluster.now, namespace_terminating=True)
    planned = plan(snapshot, settings())
    assert not planned.applies and planned.status.summary == "Terminating"


def test_a_half_placed_job_frees_everything_at_its_start_deadline_and_comes_back():
    cluster = SmallCluster(a_job(startDeadlineSeconds=10))
    cluster.no_node = {"critic"}
    cluster.run(13)
    assert cluster.condition("RolesReady") == ("False", "StartDeadlineExceeded")
    assert 'role "critic"' in cluster.message("RolesReady") and "next try" in cluster.message("RolesReady")
    cluster.run(3)
    assert not cluster.pods and cluster.ray_cluster is None and cluster.controller_job is None
    assert cluster.summary == "Waiting"
    wait = cluster.plan().wake_in
    assert wait is not None
    cluster.no_node = set()
    cluster.tick(wait)
    cluster.run_until(lambda cluster: cluster.summary == "Training", limit=10)
    assert cluster.row("critic").next_restart_time is None


def test_a_job_that_once_had_its_pods_is_not_freed_when_one_is_lost():
    cluster = SmallCluster(a_job(startDeadlineSeconds=5, algorithm={"name": "PPO", "totalSteps": 1000, "ppo": {}}))
    cluster.run(20)
    cluster.no_node = {"critic"}
    cluster.remove(cluster.living("critic")[0])
    cluster.run(20)
    assert cluster.ray_cluster is not None and cluster.condition("RolesReady") == ("False", "Unschedulable")


def test_two_half_placed_jobs_come_back_at_different_times():
    def freed(seed):
        cluster = SmallCluster(a_job(startDeadlineSeconds=10))
        cluster._counter = seed
        cluster.no_node = {"critic"}
        cluster.run(13)
        return cluster.row("critic").next_restart_time

    assert len({freed(seed) for seed in (0, 100, 200)}) == 3


def test_a_head_without_a_node_is_said():
    cluster = SmallCluster()
    cluster.no_node = {HEAD}
    cluster.run(3)
    assert cluster.condition("ClusterReady") == ("False", "Unschedulable")
    assert "head" in cluster.message("ClusterReady") and cluster.summary == "Unschedulable"
