"""KubeRay runs Ray from our worker image, a group of pods on each pool, and replaces a pod while others stay."""

import json
from collections.abc import Iterator

import pytest

from e2e.cluster.api import is_ready
from e2e.lab import Lab
from e2e.manifests import ray_cluster

START_SECONDS = 300
"""Three Ray pods at once on two busy cores; about 60 s when nothing else runs."""


@pytest.fixture(scope="module")
def ray(module_lab: Lab) -> Iterator[Lab]:
    """A RayCluster with a head on the CPU pool, and the groups `actor` and `critic` on the two GPU pools."""
    lab = module_lab
    lab.apply(ray_cluster("rlhf", {"actor": "gpu-a", "critic": "gpu-b"}))
    lab.wait("the RayCluster is ready", lambda: _ready(lab), timeout=START_SECONDS)
    yield lab
    lab.kubectl("delete", "raycluster", "--all", "--timeout=60s")


def test_each_group_is_on_its_own_pool(ray: Lab) -> None:
    assert _place(ray, "headgroup") == ray.node("cpu")
    assert _place(ray, "actor") in (ray.node("gpu-a", 0), ray.node("gpu-a", 1))
    assert _place(ray, "critic") == ray.node("gpu-b")


def test_logs_and_exec_work_in_a_ray_pod(ray: Lab) -> None:
    name = _pod(ray, "critic")["metadata"]["name"]
    assert "Ray runtime started" in ray.kubectl("logs", name)
    assert ray.execute(name, "python", "-c", "import torch; print(torch.ones(2).sum().item())").strip() == "2.0"


JOB = """
import json, ray, socket
ray.init(log_to_driver=False)

@ray.remote(num_gpus=1)
class Host:
    def name(self):
        return socket.gethostname()

hosts = [Host.remote() for _ in range(2)]
print(json.dumps(sorted(ray.get([host.name.remote() for host in hosts]))))
"""


def test_a_submitted_job_runs_across_the_pods(ray: Lab) -> None:
    head = _pod(ray, "headgroup")["metadata"]["name"]
    answer = ray.execute(head, "ray", "job", "submit", "--", "python", "-c", JOB, timeout=240)
    wanted = sorted(_pod(ray, group)["metadata"]["name"] for group in ("actor", "critic"))
    assert json.dumps(wanted) in answer
    assert "succeeded" in answer


def test_a_killed_pod_comes_back_and_the_others_stay(ray: Lab) -> None:
    before = {group: _pod(ray, group)["metadata"]["uid"] for group in ("headgroup", "actor", "critic")}
    critic = _pod(ray, "critic")["metadata"]["name"]
    ray.faults.kill_process(ray.namespace, critic, container="ray-worker")

    ray.wait(
        "a new critic pod is ready",
        lambda: [
            p for p in ray.pods(ray_io_group="critic") if p["metadata"]["uid"] != before["critic"] and is_ready(p)
        ],
        timeout=START_SECONDS,
    )
    after = {group: _pod(ray, group)["metadata"]["uid"] for group in ("headgroup", "actor")}
    assert after == {group: before[group] for group in after}


def _ready(lab: Lab) -> bool:
    return len([p for p in lab.pods() if is_ready(p)]) == 3 and is_ready(lab.get("raycluster", "rlhf"), "HeadPodReady")


def _pod(lab: Lab, group: str) -> dict[str, dict[str, str]]:
    living = [p for p in lab.pods(ray_io_group=group) if "deletionTimestamp" not in p["metadata"] and is_ready(p)]
    assert len(living) == 1, f"{group}: {[p['metadata']['name'] for p in living]}"
    return living[0]


def _place(lab: Lab, group: str) -> str:
    return _pod(lab, group)["spec"]["nodeName"]
