"""What cannot work ends in a clear message on the object: never an endless Pending, never a crash loop."""

from typing import Any

import pytest

from e2e.cluster.errors import CommandError
from e2e.jobs import apply, example, quick, with_role
from e2e.lab import Lab
from e2e.manifests import GPU_TOLERATION
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

MESSAGE_SECONDS = 120


def _refused(lab: Lab, manifest: dict[str, Any]) -> str:
    with pytest.raises(CommandError) as error:
        apply(lab, manifest)
    return str(error.value)


def test_what_the_schema_knows_is_refused_at_once_and_names_the_field(operator: Operator, lab: Lab) -> None:
    ppo, grpo = example("ppo-spelling"), example("grpo-spelling")
    roles = ppo["spec"]["roles"]
    assert "spec.colour" in _refused(lab, example("ppo-spelling", colour="blue"))
    twice = _refused(lab, example("ppo-spelling", roles=[*roles, roles[0]]))
    assert ".spec.roles" in twice and 'duplicate entries for key [name="actor"]' in twice, twice
    no_actor = [role for role in roles if role["type"] != "Actor"]
    assert "exactly one role of type Actor" in _refused(lab, example("ppo-spelling", roles=no_actor))
    no_critic = [role for role in roles if role["type"] != "Critic"]
    assert "exactly one role of type Critic" in _refused(lab, example("ppo-spelling", roles=no_critic))
    grpo["spec"]["algorithm"]["grpo"]["groupSize"] = 1
    assert "spec.algorithm.grpo.groupSize" in _refused(lab, grpo)
    assert "metadata.name" in _refused(lab, ppo | {"metadata": {"name": "n" * 60}})


@pytest.mark.parametrize(
    ("changes", "condition", "reason", "wanted"),
    [
        pytest.param(
            {"nodePool": {"nodeSelector": {"pool": "none-such"}}},
            "RolesReady",
            "Unschedulable",
            ["reward", "none-such"],
            id="a pool that no node has",
        ),
        pytest.param(
            {"resources": {"accelerators": {"count": 64}}},
            "RolesReady",
            "Unschedulable",
            ["reward", "nvidia.com/gpu"],
            id="a number of GPUs that no node has",
        ),
        pytest.param(
            {"image": {"name": "localhost/none-such:1", "pullPolicy": "IfNotPresent"}},
            "RolesReady",
            "ImagePullFailed",
            ["reward", "localhost/none-such:1"],
            id="an image that cannot be pulled",
        ),
        pytest.param(
            {"worker": {"className": "nowhere.at_all:Worker"}},
            "Failed",
            "WorkerImportFailed",
            ["reward", "No module named 'nowhere'"],
            id="a worker class that cannot be imported",
        ),
        pytest.param(
            {"pod": {"volumes": [{"name": "v", "mountPath": "/v", "persistentVolumeClaim": {"claimName": "gone"}}]}},
            "RolesReady",
            "VolumeMissing",
            ["reward", "gone"],
            id="a claim that does not exist",
        ),
    ],
)
def test_a_role_that_cannot_start(
    operator: Operator, lab: Lab, changes: dict[str, Any], condition: str, reason: str, wanted: list[str]
) -> None:
    job = apply(lab, with_role(quick("bad", steps=2), "reward", **changes))
    status = "True" if condition == "Failed" else "False"
    message = job.wait(condition, status, reason=reason, timeout=MESSAGE_SECONDS)
    assert all(part in message for part in wanted), message


def test_a_quota_that_forbids_one_roles_pods_does_not_keep_the_others_down(operator: Operator, lab: Lab) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
    lab.apply(quota | {"spec": {"hard": {"requests.nvidia.com/gpu": "1"}}})
    two_gpus = {"cpu": "500m", "memory": "1Gi", "accelerators": {"count": 2}}
    job = apply(lab, with_role(quick("quota", steps=2), "actor", resources=two_gpus))
    message = job.wait("RolesReady", "False", reason="QuotaExceeded", timeout=MESSAGE_SECONDS)
    assert "actor" in message and "gpus" in message, message
    lab.wait("the other roles run", lambda: all(job.uids("reward", "reference").values()), timeout=MESSAGE_SECONDS)


def test_objects_that_the_api_server_refuses_are_named_and_made_once_it_takes_them(
    operator: Operator, lab: Lab
) -> None:
    lab.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"services": "0"}}}
    )
    lab.wait("the quota counts", lambda: lab.get("resourcequota", "few").get("status", {}).get("used"), timeout=30)
    job = apply(lab, quick("refused", steps=2))
    message = job.wait("ClusterReady", "False", reason="QuotaExceeded", timeout=MESSAGE_SECONDS)
    assert 'Service "refused-controller"' in message and 'ResourceQuota "few"' in message, message
    job.wait_for(
        "KubeRay's refusal is there too", lambda _: "KubeRay cannot" in job.condition("ClusterReady")["message"]
    )
    lab.kubectl("delete", "resourcequota", "few")
    job.wait("ClusterReady", timeout=MESSAGE_SECONDS)
    assert lab.find("service", "refused-controller") is not None


@pytest.mark.long
def test_jobs_that_each_get_half_of_what_they_need_do_not_wait_for_each_other(operator: Operator, lab: Lab) -> None:
    """Both want all 8 GPUs of the one node of a pool, for two pods: each may get one pod placed, and wait for ever."""

    def half(name: str) -> dict[str, Any]:
        manifest = quick(name, steps=2, startDeadlineSeconds=60)
        pool = {"nodeSelector": {"pool": "gpu-b"}}
        wide = {"memory": "1Gi", "accelerators": {"count": 4}}
        # Out of the way, or the one node for CPUs would be what they lack.
        elsewhere = {"nodeSelector": {"pool": "gpu-a"}, "tolerations": [GPU_TOLERATION]}
        manifest = with_role(manifest, "reward", nodePool=elsewhere)
        manifest = with_role(manifest, "actor", nodePool=pool, resources=wide)
        return with_role(manifest, "reference", nodePool=pool, resources=wide)

    first, second = apply(lab, half("first")), apply(lab, half("second"))
    first.wait("Complete", timeout=480)
    second.wait("Complete", timeout=480)


def test_a_namespace_that_is_deleted_takes_its_job_along(operator: Operator, lab: Lab) -> None:
    restarts = _restarts(operator)
    lab.kubectl("create", "namespace", f"{lab.namespace}-b")
    inner = Lab(f"{lab.namespace}-b", lab.faults, lab.config)
    job = apply(inner, quick("doomed", steps=500))
    inner.wait("its head runs", lambda: job.pods("head"), timeout=60)
    inner.kubectl("delete", "namespace", inner.namespace, "--timeout=150s", timeout=160)
    assert _restarts(operator) == restarts


def _restarts(operator: Operator) -> int:
    """Of the operator's container so far; one that cannot renew its lease on a busy machine is restarted too."""
    return int(operator.pods()[0]["status"]["containerStatuses"][0]["restartCount"])
