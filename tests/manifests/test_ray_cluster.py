"""The RayCluster as KubeRay 1.5 wants it."""

import json
import shlex

import pytest
from manifest_jobs import HERE, SETTINGS, SMALL, container_of, group_of, job_of, read
from spec_changes import edited

from rlhf_operator.manifests.raycluster import ray_cluster

EVERYTHING = read(HERE / "everything.yaml")


def cluster(changes=None, base=SMALL):
    return ray_cluster(job_of(edited(base, changes or {})), SETTINGS)


def test_each_role_that_is_not_colocated_has_a_group_of_its_name():
    assert [group["groupName"] for group in cluster()["spec"]["workerGroupSpecs"]] == ["actor", "reward"]


@pytest.mark.parametrize(("replicas", "pods", "want"), [(1, 1, 1), (3, 1, 3), (3, 2, 6)])
def test_a_group_has_pods_for_all_replicas(replicas, pods, want):
    group = group_of(cluster({"roles.1.replicas": replicas, "roles.1.podsPerReplica": pods}), "reward")
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"], group["numOfHosts"]) == (want, 0, want, 1)


def test_a_roles_resource_survives_the_shell_and_kuberays_own_reading():
    value = group_of(cluster(), "actor")["rayStartParams"]["resources"]
    (word,) = shlex.split(f"--resources={value}")
    assert json.loads(word.partition("=")[2]) == {"role-actor": 1}
    assert json.loads(value.strip("'\"` ")) == {"role-actor": 1}, "as getResourcesMap does"


def test_only_roles_have_a_command_of_their_own():
    made = cluster()
    head, role = group_of(made, "headgroup")["template"], group_of(made, "actor")["template"]
    assert "command" not in container_of(head)
    assert "ray.io/overwrite-container-cmd" not in head["metadata"]["annotations"]
    assert container_of(role)["command"] == ["python", "-m", "rlhf_runtime.node"]
    assert role["metadata"]["annotations"]["ray.io/overwrite-container-cmd"] == "true"


def test_there_is_no_autoscaler():
    assert cluster()["spec"]["enableInTreeAutoscaling"] is False


def test_sizes_are_said_in_one_of_two_places_which_kuberay_insists_on():
    made = cluster(base=EVERYTHING)
    for group in (made["spec"]["headGroupSpec"], *made["spec"]["workerGroupSpecs"]):
        assert "num-cpus" in group["rayStartParams"]
        assert not {"resources", "labels", "suspend"} & set(group)
        assert not {"labels", "redis-password", "redis-username"} & set(group["rayStartParams"])


def test_fault_tolerance_of_the_head_uses_kuberays_options_and_only_these():
    made = cluster(base=EVERYTHING)
    options = made["spec"]["gcsFaultToleranceOptions"]
    assert options["redisAddress"] == "redis:6379"
    assert options["redisPassword"]["valueFrom"]["secretKeyRef"]["name"] == "redis"
    assert options["externalStorageNamespace"] == made["metadata"]["ownerReferences"][0]["uid"]
    assert not any(name.startswith("ray.io/") for name in made["metadata"].get("annotations", {}))
    assert "gcsFaultToleranceOptions" not in cluster()["spec"]


def test_a_group_that_cannot_make_pods_is_put_last():
    made = ray_cluster(job_of(SMALL), SETTINGS, order=["reward", "actor"])
    assert [group["groupName"] for group in made["spec"]["workerGroupSpecs"]] == ["reward", "actor"]
    made = ray_cluster(job_of(SMALL), SETTINGS, order=["actor"])
    assert [group["groupName"] for group in made["spec"]["workerGroupSpecs"]] == ["reward", "actor"]


def test_no_object_of_a_job_carries_a_label_of_a_queue():
    text = json.dumps(
        cluster(base={**EVERYTHING, "metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    )
    assert "kueue" not in text
