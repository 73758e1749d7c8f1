"""The Job of the controller."""

import pytest
from manifest_jobs import HERE, SETTINGS, SMALL, container_of, env_of, job_of, read
from spec_changes import edited

from rlhf_api import in_pod
from rlhf_operator.manifests.controller_job import controller_job


def job(changes=None):
    return controller_job(job_of(edited(SMALL, changes or {})), SETTINGS)


def test_a_lost_controller_is_replaced_when_it_is_over_and_a_failure_for_good_is_not():
    spec = job({"controller": {"maxRestarts": 4}})["spec"]
    assert spec["backoffLimit"] == 4
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    fail, ignore = spec["podFailurePolicy"]["rules"]
    assert fail == {
        "action": "FailJob",
        "onExitCodes": {"containerName": container_of(spec["template"])["name"], "operator": "In", "values": [3]},
    }
    assert ignore["action"] == "Ignore"
    assert ignore["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_deadlines_are_the_operators():
    assert not {"activeDeadlineSeconds", "ttlSecondsAfterFinished"} & set(
        job({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 60})["spec"]
    )


def test_the_probes_ask_the_health_service():
    container = container_of(job()["spec"]["template"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["grpc"]["port"] == ports["health"] == in_pod.HEALTH_PORT
    assert container["readinessProbe"]["grpc"]["service"] == in_pod.READY_SERVICE
    assert container["livenessProbe"]["grpc"]["service"] == ""


def test_job_file_and_secret_are_where_the_runtime_looks():
    template = job()["spec"]["template"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container_of(template)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes[mounts["/etc/rlhf"]]["configMap"] == {"name": "job-config"}
    secret = volumes[mounts[in_pod.SECRET_FOLDER]]["secret"]
    assert {item["path"] for item in secret["items"]} == {"control-token", "tls.crt", "tls.key"}
    assert secret["defaultMode"] == 0o440, "the group of the pod reads it, others do not"


def test_ray_is_found_at_the_heads_service():
    assert env_of(job()["spec"]["template"])["RAY_ADDRESS"] == "job-head-svc:6379"


@pytest.mark.parametrize(
    ("manifest", "want"), [(SMALL, None), (read(HERE / "everything.yaml"), "600")], ids=["without Redis", "with Redis"]
)
def test_the_controller_waits_for_a_new_head_where_one_can_come(manifest, want):
    template = controller_job(job_of(manifest), SETTINGS)["spec"]["template"]
    assert env_of(template).get("RAY_gcs_rpc_server_reconnect_timeout_s") == want


def test_the_controller_is_no_member_of_a_role():
    template = job()["spec"]["template"]
    assert "rlhf.dev/role" not in template["metadata"]["labels"]
    assert in_pod.ROLE_VARIABLE not in env_of(template)
