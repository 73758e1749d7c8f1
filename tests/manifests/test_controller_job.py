"""The Job of the controller."""

import pytest
from manifest_jobs import HERE, SETTINGS, SMALL, container_of, env_of, job_of, read
from spec_changes import edited

from rlhf_api import in_pod
from rlhf_api.ending import EndingOutcome
from rlhf_operator.manifests.controller_job import controller_job
from rlhf_operator.manifests.state import state_place
from rlhf_runtime.service.endings import EXIT_CODES
from rlhf_runtime.service.settings import read_settings


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


def test_the_job_fails_at_once_with_the_runtimes_exit_code_for_good_and_with_no_other():
    rule = job()["spec"]["podFailurePolicy"]["rules"][0]
    assert {outcome for outcome, code in EXIT_CODES.items() if code in rule["onExitCodes"]["values"]} == {
        EndingOutcome.FAILED
    }


@pytest.mark.parametrize(
    ("changes", "want_own_cache"),
    [
        ({}, False),
        ({"state.location": {"uri": "s3://b/f"}, "model": {"huggingFace": {"id": "a/b"}}}, True),
    ],
    ids=["a claim", "a URI"],
)
def test_the_runtime_reads_from_its_variables_what_the_operator_means(changes, want_own_cache):
    made = job_of(edited(SMALL, changes))
    env = env_of(controller_job(made, SETTINGS)["spec"]["template"])
    told = read_settings([], {name: value for name, value in env.items() if isinstance(value, str)})
    place = state_place(made, SETTINGS)
    assert (str(told.run_folder), told.state, told.cache) == (place.run_folder, place.state, place.cache)
    assert told.cache_ends_with_the_pod is want_own_cache
    assert told.ray_address == "job-head-svc:6379"
    assert str(told.job_file) == "/etc/rlhf/job.json"


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
