"""Resources, /dev/shm and what Ray is told of them."""

import pytest
from manifest_jobs import SETTINGS, SMALL, container_of, group_of, job_of, template_of
from spec_changes import edited

from rlhf_api.quantity import parse_quantity
from rlhf_operator.manifests.raycluster import ray_cluster


def group(resources, name="actor"):
    where = "head" if name == "headgroup" else "roles.0"
    return group_of(ray_cluster(job_of(edited(SMALL, {f"{where}.resources": resources})), SETTINGS), name)


def shm_of(template):
    (volume,) = [volume for volume in template["spec"]["volumes"] if volume["name"] == "rlhf-shared-memory"]
    assert {"name": "rlhf-shared-memory", "mountPath": "/dev/shm"} in container_of(template)["volumeMounts"]
    assert volume["emptyDir"]["medium"] == "Memory"
    return volume["emptyDir"]["sizeLimit"]


def test_what_the_user_wrote_is_request_and_limit_as_written():
    written = {
        "cpu": "1500m",
        "memory": "1.5Gi",
        "accelerators": {"name": "nvidia.com/mig-1g.10gb", "count": 2},
        "extended": {"rdma/ib": 1},
    }
    want = {"cpu": "1500m", "memory": "1.5Gi", "nvidia.com/mig-1g.10gb": "2", "rdma/ib": "1"}
    assert container_of(group(written)["template"])["resources"] == {"requests": want, "limits": want}


def test_a_role_without_sizes_has_none():
    assert "resources" not in container_of(group({})["template"])


@pytest.mark.parametrize("pod", ["headgroup", "controller"])
def test_head_and_controller_have_sizes_by_default(pod):
    resources = container_of(template_of(job_of(SMALL), pod))["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert set(resources["limits"]) == {"memory"}
    assert parse_quantity(resources["requests"]["memory"]) <= parse_quantity(resources["limits"]["memory"])


def test_a_default_gives_way_to_what_is_written_and_only_there():
    resources = container_of(group({"cpu": "3"}, "headgroup")["template"])["resources"]
    assert resources == {"requests": {"memory": "1Gi", "cpu": "3"}, "limits": {"memory": "2Gi", "cpu": "3"}}


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"memory": "2Gi"}, "1Gi"),
        ({"memory": "1.5Gi"}, "768Mi"),
        ({"memory": "1G"}, "500000000"),
        ({"memory": "64Gi", "sharedMemory": "4G"}, "4G"),
        ({"memory": "100Mi"}, "128Mi"),
        ({"sharedMemory": "1Mi"}, "128Mi"),
        ({}, "2Gi"),
    ],
    ids=[
        "half of the memory",
        "half of a fraction",
        "half of decimal bytes",
        "what the user wrote",
        "at least what Ray starts with, of little memory",
        "at least what Ray starts with, of little shared memory",
        "bounded where the memory is not",
    ],
)
def test_the_size_of_shared_memory(resources, want):
    assert shm_of(group(resources)["template"]) == want


@pytest.mark.parametrize("name", ["headgroup", "actor"])
@pytest.mark.parametrize("memory", ["1Mi", "300Mi", "2Gi", "1Ti"])
def test_the_object_store_fits_into_shared_memory_and_is_what_ray_takes_at_least(memory, name):
    made = group({"memory": memory}, name)
    store = int(made["rayStartParams"]["object-store-memory"])
    assert 75 * 1024**2 <= store < parse_quantity(shm_of(made["template"]))


@pytest.mark.parametrize(
    ("resources", "want_cpus", "want_gpus"),
    [
        ({}, "1", "0"),
        ({"cpu": "500m"}, "1", "0"),
        ({"cpu": "3900m"}, "3", "0"),
        ({"cpu": 8, "accelerators": {"count": 4}}, "8", "4"),
        ({"accelerators": {"name": "google.com/tpu", "count": 4}}, "1", "0"),
    ],
    ids=["nothing said", "half a core", "cores and a part", "GPUs", "TPUs are no GPUs"],
)
def test_what_ray_counts_in_a_roles_pod(resources, want_cpus, want_gpus):
    parameters = group(resources)["rayStartParams"]
    assert (parameters["num-cpus"], parameters["num-gpus"]) == (want_cpus, want_gpus)


def test_the_head_takes_no_work():
    parameters = group({"cpu": "8", "accelerators": {"count": 1}}, "headgroup")["rayStartParams"]
    assert (parameters["num-cpus"], parameters["num-gpus"]) == ("0", "0")
