"""What each kind of pod is given."""

from dataclasses import replace

import pytest
from manifest_jobs import SETTINGS, SMALL, container_of, env_of, job_of, template_of
from spec_changes import edited

from rlhf_api import in_pod, names

HEAD, ROLE, CONTROLLER = "headgroup", "actor", "controller"
EVERY_POD = (HEAD, ROLE, CONTROLLER)
WHERE = {HEAD: "head", ROLE: "roles.0", CONTROLLER: "controller"}


def template(changes, pod=ROLE, settings=SETTINGS):
    return template_of(job_of(edited(SMALL, changes)), pod, settings)


@pytest.mark.parametrize("pod", EVERY_POD)
def test_every_pod_keeps_to_the_restricted_standard(pod):
    made = template({}, pod)
    spec, security = made["spec"], container_of(made)["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


@pytest.mark.parametrize("pod", EVERY_POD)
def test_every_pod_knows_the_token_of_ray_by_reference(pod):
    env = env_of(template({}, pod))
    assert env["RAY_AUTH_MODE"] == "token"
    assert env["RAY_AUTH_TOKEN"] == {"secretKeyRef": {"name": "job-token", "key": "ray-token"}}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (HEAD, {"rlhf.dev/job": "job", "rlhf.dev/component": "head"}),
        (ROLE, {"rlhf.dev/job": "job", "rlhf.dev/component": "role", "rlhf.dev/role": "actor"}),
        (CONTROLLER, {"rlhf.dev/job": "job", "rlhf.dev/component": "controller"}),
    ],
)
def test_pods_are_found_by_label(pod, want):
    assert template({}, pod)["metadata"]["labels"] == want


@pytest.mark.parametrize("pod", EVERY_POD)
def test_labels_that_steer_controllers_are_not_the_users(pod):
    labels = {
        "team": "rl",
        "rlhf.dev/role": "other",
        "rlhf.dev/component": "other",
        "ray.io/cluster": "other",
        "kueue.x-k8s.io/queue-name": "queue",
        "sub.ray.io/x": "y",
        "array.io/mine": "kept",
    }
    made = template({f"{WHERE[pod]}.pod": {"labels": labels, "annotations": labels}}, pod)
    plain = template({}, pod)["metadata"]
    kept = {"team": "rl", "array.io/mine": "kept"}
    assert made["metadata"]["labels"] == {**plain["labels"], **kept}
    annotations = {name: text for name, text in made["metadata"]["annotations"].items() if not name.endswith("-hash")}
    assert annotations == {**kept, **({"ray.io/overwrite-container-cmd": "true"} if pod == ROLE else {})}


@pytest.mark.parametrize(
    ("pod", "wants_job_wide"), [(HEAD, False), (ROLE, True), (CONTROLLER, True)], ids=lambda value: str(value)
)
def test_the_head_runs_no_user_code_and_gets_none_of_its_secrets(pod, wants_job_wide):
    made = template(
        {
            "env": [{"name": "SHARED", "value": "1"}],
            "envFrom": [{"secretRef": {"name": "tokens"}}],
            "volumes": [{"name": "data", "mountPath": "/data", "emptyDir": {}}],
            f"{WHERE[pod]}.pod": {"env": [{"name": "OWN", "value": "2"}]},
        },
        pod,
    )
    env = env_of(made)
    assert env["OWN"] == "2"
    assert ("SHARED" in env) is wants_job_wide
    assert ("envFrom" in container_of(made)) is wants_job_wide
    assert ("data" in [volume["name"] for volume in made["spec"]["volumes"]]) is wants_job_wide
    assert (in_pod.STATE_VARIABLE in env) is wants_job_wide
    assert ("rlhf-state" in [volume["name"] for volume in made["spec"]["volumes"]]) is wants_job_wide


def test_a_roles_variable_wins_over_the_jobs_and_over_a_cache_of_ours():
    env = env_of(
        template(
            {
                "env": [{"name": "A", "value": "job"}, {"name": "HF_HOME", "value": "/elsewhere"}],
                "roles.0.pod": {"env": [{"name": "A", "value": "role"}]},
            }
        )
    )
    assert env["A"] == "role"
    assert env["HF_HOME"] == "/elsewhere"


def test_a_roles_volume_wins_over_the_jobs_of_the_same_name():
    made = template(
        {
            "volumes": [{"name": "data", "mountPath": "/job", "emptyDir": {}}],
            "roles.0.pod": {"volumes": [{"name": "data", "mountPath": "/role", "configMap": {"name": "c"}}]},
        }
    )
    volumes = [volume for volume in made["spec"]["volumes"] if volume["name"] == "data"]
    assert volumes == [{"name": "data", "configMap": {"name": "c"}}]
    assert {"name": "data", "mountPath": "/role"} in container_of(made)["volumeMounts"]


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ({"persistentVolumeClaim": {"claimName": "c"}}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ({"emptyDir": {}}, {"emptyDir": {}}),
        (
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ),
        ({"secret": {"name": "s"}}, {"secret": {"secretName": "s"}}),
        ({"configMap": {"name": "c", "optional": True}}, {"configMap": {"name": "c", "optional": True}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x"}}),
    ],
    ids=["claim", "empty folder", "memory", "Secret", "optional ConfigMap", "folder of the node"],
)
def test_volumes_are_spelt_as_in_a_pod(source, want):
    made = template({"volumes": [{"name": "v", "mountPath": "/v", **source}]})
    assert {"name": "v", **want} in made["spec"]["volumes"]


@pytest.mark.parametrize("name", ["RAY_REDIS_ADDRESS", "REDIS_USERNAME", "REDIS_PASSWORD", "RAY_enable_autoscaler_v2"])
def test_a_head_has_no_variable_for_which_kuberay_refuses_the_cluster(name):
    assert name not in env_of(template({"head": {"pod": {"env": [{"name": name, "value": "true"}]}}}, HEAD))


@pytest.mark.parametrize("pod", EVERY_POD)
@pytest.mark.parametrize(
    ("job", "own", "want"),
    [
        ({}, {}, {"image": "rlhf-worker:1", "imagePullPolicy": "Always"}),
        ({"name": "j"}, {}, {"image": "j"}),
        ({"name": "j", "pullPolicy": "Never"}, {"name": "o"}, {"image": "o", "imagePullPolicy": "Never"}),
        ({"pullPolicy": "Never"}, {}, {"image": "rlhf-worker:1", "imagePullPolicy": "Never"}),
        ({"name": "j"}, {"pullPolicy": "IfNotPresent"}, {"image": "j", "imagePullPolicy": "IfNotPresent"}),
    ],
    ids=[
        "the operator's with its policy",
        "the job's, and Kubernetes' policy",
        "the pod's own, with the job's policy",
        "the operator's, with the job's policy",
        "the job's, with the pod's own policy",
    ],
)
def test_which_image_a_pod_has(pod, job, own, want):
    settings = replace(SETTINGS, worker_pull_policy="Always")
    container = container_of(template({"image": job, f"{WHERE[pod]}.image": own}, pod, settings))
    assert {name: container[name] for name in ("image", "imagePullPolicy") if name in container} == want


@pytest.mark.parametrize("pod", EVERY_POD)
def test_an_accelerators_taint_is_tolerated_where_it_is_asked_for(pod):
    asked = {f"{WHERE[pod]}.resources": {"accelerators": {"name": "amd.com/gpu", "count": 2}}}
    made = template(asked, pod)
    assert made["spec"]["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists"}]
    assert container_of(made)["resources"]["limits"]["amd.com/gpu"] == "2"
    assert "tolerations" not in template({}, pod)["spec"]


def test_a_roles_pods_are_spread_over_nodes_where_it_can_be_had():
    assert template({})["spec"]["topologySpreadConstraints"] == [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": names.role_labels("job", "actor")},
        }
    ]


@pytest.mark.parametrize(
    ("context", "want"),
    [
        ({}, {"runAsNonRoot": True, "fsGroup": 1000}),
        ({"runAsUser": 0}, {"runAsNonRoot": False, "runAsUser": 0, "fsGroup": 1000}),
        ({"fsGroup": 0}, {"runAsNonRoot": True, "fsGroup": 0}),
        ({"runAsUser": 7, "runAsGroup": 8}, {"runAsNonRoot": True, "runAsUser": 7, "runAsGroup": 8, "fsGroup": 1000}),
    ],
    ids=["by default", "root, where the user says so", "another group for volumes", "another user"],
)
def test_who_a_pod_runs_as(context, want):
    security = template({"roles.0.pod": {"securityContext": context}})["spec"]["securityContext"]
    for name in ("seccompProfile", "fsGroupChangePolicy"):
        security.pop(name)
    assert security == want


@pytest.mark.parametrize(
    ("pod", "overlay", "want"),
    [
        (HEAD, {}, 5),
        (ROLE, {}, None),
        (CONTROLLER, {}, 300),
        (HEAD, {"terminationGracePeriodSeconds": 60}, 60),
        (ROLE, {"terminationGracePeriodSeconds": 0}, 0),
        (CONTROLLER, {"terminationGracePeriodSeconds": 10}, 10),
    ],
)
def test_how_long_a_pod_may_take_to_end(pod, overlay, want):
    made = template({"suspendGracePeriodSeconds": 300, f"{WHERE[pod]}.pod": overlay}, pod)
    assert made["spec"].get("terminationGracePeriodSeconds") == want


@pytest.mark.parametrize("pod", EVERY_POD)
def test_a_service_account_of_the_user_decides_about_its_token_itself(pod):
    spec = template({f"{WHERE[pod]}.pod": {"serviceAccountName": "mine"}}, pod)["spec"]
    assert spec["serviceAccountName"] == "mine"
    assert "automountServiceAccountToken" not in spec
