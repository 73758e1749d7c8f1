"""The objects around a job's pods."""

import json
from dataclasses import replace

import pytest
from manifest_jobs import EXAMPLES, HERE, SETTINGS, SMALL, job_of, read, template_of

from rlhf_api import in_pod
from rlhf_api.validation import load_job
from rlhf_operator.manifests.children import children

WHOLE = [read(EXAMPLES / "ppo-spelling.yaml"), read(EXAMPLES / "grpo-spelling.yaml"), read(HERE / "everything.yaml")]


def child(kind, settings=SETTINGS, job=None):
    return next((each for each in children(job or job_of(SMALL), settings) if each["kind"] == kind), None)


@pytest.mark.parametrize("manifest", WHOLE, ids=lambda manifest: manifest["metadata"]["name"])
def test_the_runtime_reads_the_very_job_that_was_applied(manifest):
    job = job_of(manifest)
    text = child("ConfigMap", job=job)["data"][in_pod.JOB_FILE_KEY]
    assert load_job(text, source="job.json").spec == job.spec


def test_what_changes_without_the_user_is_not_in_the_configuration():
    noisy = job_of(
        SMALL,
        resource_version="7",
        annotations={"rlhf.dev/restart": "actor=1"},
        managed_fields=({"manager": "kubectl"},),
    )
    assert child("ConfigMap", job=noisy) == child("ConfigMap")


def test_fields_with_their_default_are_no_riddle_to_an_older_runtime():
    document = json.loads(child("ConfigMap")["data"][in_pod.JOB_FILE_KEY])
    assert document["spec"] == SMALL["spec"]


def test_the_service_finds_the_controller_also_before_it_is_ready():
    service = child("Service")
    labels = template_of(job_of(SMALL), "controller")["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    for other in ("headgroup", "actor"):
        labels = template_of(job_of(SMALL), other)["metadata"]["labels"]
        assert not service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("job-control", in_pod.CONTROL_PORT)


def test_only_the_jobs_own_pods_reach_every_port():
    spec = child("NetworkPolicy", replace(SETTINGS, operator_namespace="ops"))["spec"]
    mine = {"matchLabels": {"rlhf.dev/job": "job"}}
    among, operator, metrics = spec["ingress"]
    assert spec["podSelector"] == mine
    assert among == {"from": [{"podSelector": mine}]}
    assert operator["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}}]
    assert [port["port"] for port in operator["ports"]] == [in_pod.CONTROL_PORT]
    assert [port["port"] for port in metrics["ports"]] == [in_pod.METRICS_PORT, 8080]
    assert spec["policyTypes"] == ["Ingress"], "egress is open"
    for pod in ("headgroup", "actor", "controller"):
        assert mine["matchLabels"].items() <= template_of(job_of(SMALL), pod)["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("kind", "off"), [("NetworkPolicy", {"network_policies": False}), ("PodMonitor", {"pod_monitors": False})]
)
def test_what_the_administrator_switched_off_is_not_made(kind, off):
    assert child(kind) is not None
    assert child(kind, replace(SETTINGS, **off)) is None


def test_a_monitor_carries_the_labels_by_which_prometheus_selects_it():
    monitor = child("PodMonitor", replace(SETTINGS, pod_monitor_labels={"release": "prometheus"}))
    assert monitor["metadata"]["labels"] == {"release": "prometheus", "rlhf.dev/job": "job"}
    ports = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    controller = template_of(job_of(SMALL), "controller")["spec"]["containers"][0]
    assert ports[0] in [port["name"] for port in controller["ports"]]


def test_the_claim_is_as_the_administrator_wants_claims():
    settings = replace(SETTINGS, state_storage_class="fast", state_access_mode="ReadWriteOnce", state_size="1Ti")
    assert child("PersistentVolumeClaim", settings)["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Ti"}},
    }
