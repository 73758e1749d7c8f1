"""Each value does what values.yaml says."""

from typing import Any

import pytest
from chart_helm import Helm, Object

MISSING = object()
SPEC = "Deployment.spec.template.spec"
OPERATOR = f"{SPEC}.containers.0"
MONITORED = {"enabled": True, "labels": {"release": "p"}, "interval": "30s"}


def look(objects: list[Object], path: str) -> Any:
    """The value at `Kind.field.0.field` of the only object of that kind."""
    kind, *words = path.split(".")
    found: Any = [found for found in objects if found["kind"] == kind]
    if not found:
        return MISSING
    assert len(found) == 1, f"{len(found)} objects are a {kind}"
    found = found[0]
    for word in words:
        if isinstance(found, list):
            found = found[int(word)] if int(word) < len(found) else MISSING
        else:
            found = found.get(word.replace("~", "."), MISSING)
        if found is MISSING:
            return MISSING
    return found


@pytest.mark.parametrize(
    ("values", "path", "want"),
    [
        pytest.param({"fullnameOverride": "ops"}, "Deployment.metadata.name", "ops", id="another name"),
        pytest.param(
            {"nameOverride": "ops"}, "Deployment.metadata.name", "rlhf-operator-ops", id="another chart's name"
        ),
        pytest.param({"commonLabels": {"team": "ml"}}, "Service.metadata.labels.team", "ml", id="labels of everything"),
        pytest.param({"commonLabels": {"team": "ml"}}, f"{SPEC[:-5]}.metadata.labels.team", "ml", id="also of pods"),
        pytest.param({}, f"{OPERATOR}.image", "rlhf-operator:0.1.0", id="the image of this version"),
        pytest.param(
            {"imageRegistry": "r.io/ml/"}, f"{OPERATOR}.image", "r.io/ml/rlhf-operator:0.1.0", id="a registry"
        ),
        pytest.param({"image": {"tag": "dev"}}, f"{OPERATOR}.image", "rlhf-operator:dev", id="a tag"),
        pytest.param(
            {"image": {"tag": "dev", "digest": f"sha256:{'0' * 64}"}},
            f"{OPERATOR}.image",
            f"rlhf-operator@sha256:{'0' * 64}",
            id="a digest goes before a tag",
        ),
        pytest.param({"image": {"pullPolicy": "Always"}}, f"{OPERATOR}.imagePullPolicy", "Always", id="a pull policy"),
        pytest.param(
            {"imagePullSecrets": [{"name": "pull"}]}, f"{SPEC}.imagePullSecrets.0.name", "pull", id="a pull secret"
        ),
        pytest.param({"replicas": 2}, "Deployment.spec.replicas", 2, id="two replicas"),
        pytest.param({"replicas": 2}, "PodDisruptionBudget.spec.maxUnavailable", 1, id="two are drained one at a time"),
        pytest.param({}, "PodDisruptionBudget", MISSING, id="one may be drained"),
        pytest.param(
            {"replicas": 2, "podDisruptionBudget": {"enabled": False}}, "PodDisruptionBudget", MISSING, id="no budget"
        ),
        pytest.param(
            {"replicas": 2},
            f"{SPEC}.topologySpreadConstraints.0.topologyKey",
            "kubernetes.io/hostname",
            id="two are spread over nodes",
        ),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            f"{SPEC}.topologySpreadConstraints.0.labelSelector.matchLabels.app~kubernetes~io/instance",
            "rlhf-operator",
            id="a selector is added to a spread of yours",
        ),
        pytest.param({}, "Deployment.spec.strategy.type", "RollingUpdate", id="a standby waits for the lease"),
        pytest.param(
            {"leaderElection": {"enabled": False}},
            "Deployment.spec.strategy.type",
            "Recreate",
            id="no lease, no overlap",
        ),
        pytest.param({"priorityClassName": "high"}, f"{SPEC}.priorityClassName", "high", id="a priority class"),
        pytest.param({"nodeSelector": {"pool": "cpu"}}, f"{SPEC}.nodeSelector.pool", "cpu", id="a node selector"),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]}, f"{SPEC}.tolerations.0.operator", "Exists", id="a toleration"
        ),
        pytest.param({"affinity": {"nodeAffinity": {"a": 1}}}, f"{SPEC}.affinity.nodeAffinity.a", 1, id="an affinity"),
        pytest.param({"podLabels": {"a": "b"}}, f"{SPEC[:-5]}.metadata.labels.a", "b", id="labels of pods"),
        pytest.param(
            {"podAnnotations": {"a": "b"}}, f"{SPEC[:-5]}.metadata.annotations.a", "b", id="annotations of pods"
        ),
        pytest.param(
            {"resources": {"limits": {"memory": "1Gi"}}}, f"{OPERATOR}.resources.limits.memory", "1Gi", id="resources"
        ),
        pytest.param(
            {"livenessProbe": {"periodSeconds": 3}}, f"{OPERATOR}.livenessProbe.periodSeconds", 3, id="a probe"
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": 5}, f"{SPEC}.terminationGracePeriodSeconds", 5, id="time to end"
        ),
        pytest.param({"extraEnv": [{"name": "A", "value": "b"}]}, f"{OPERATOR}.env.2.name", "A", id="a variable"),
        pytest.param(
            {"podSecurityContext": {"runAsUser": 1}},
            f"{SPEC}.securityContext.runAsUser",
            1,
            id="another user of the pod",
        ),
        pytest.param({"serviceAccount": {"name": "me"}}, f"{SPEC}.serviceAccountName", "me", id="an account's name"),
        pytest.param(
            {"serviceAccount": {"name": "me"}}, "ServiceAccount.metadata.name", "me", id="is that of the account"
        ),
        pytest.param(
            {"serviceAccount": {"name": "me", "create": False}}, "ServiceAccount", MISSING, id="an account of yours"
        ),
        pytest.param(
            {"serviceAccount": {"annotations": {"a": "b"}}},
            "ServiceAccount.metadata.annotations.a",
            "b",
            id="its annotations",
        ),
        pytest.param({"key": {"existingSecret": "mine"}}, "Secret", MISSING, id="with a key of yours none is made"),
        pytest.param(
            {"key": {"existingSecret": "mine"}},
            f"{SPEC}.volumes.0.secret.secretName",
            "mine",
            id="a key of yours is used",
        ),
        pytest.param(
            {"key": {"secretKey": "k"}},
            f"{SPEC}.volumes.0.secret.items.0.key",
            "k",
            id="under the name that it has there",
        ),
        pytest.param({}, "Service.spec.ports.0.port", 9090, id="a Service of the metrics"),
        pytest.param({"metrics": {"service": {"enabled": False}}}, "Service", MISSING, id="no Service"),
        pytest.param(
            {"metrics": {"service": {"annotations": {"a": "b"}}}}, "Service.metadata.annotations.a", "b", id="marked"
        ),
        pytest.param(
            {"metrics": {"port": 9999}}, f"{OPERATOR}.ports.0.containerPort", 9999, id="another port for metrics"
        ),
        pytest.param(
            {"health": {"port": 9999}}, f"{OPERATOR}.ports.1.containerPort", 9999, id="another port for probes"
        ),
        pytest.param({}, "ServiceMonitor", MISSING, id="no monitor unless asked for"),
        pytest.param(
            {"metrics": {"serviceMonitor": MONITORED}},
            "ServiceMonitor.metadata.labels.release",
            "p",
            id="a ServiceMonitor",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": MONITORED}},
            "ServiceMonitor.spec.endpoints.0.interval",
            "30s",
            id="its interval",
        ),
        pytest.param(
            {"metrics": {"podMonitor": MONITORED}}, "PodMonitor.metadata.labels.release", "p", id="a PodMonitor"
        ),
        pytest.param(
            {"metrics": {"podMonitor": {**MONITORED, "metricRelabelings": [{"action": "drop"}]}}},
            "PodMonitor.spec.podMetricsEndpoints.0.metricRelabelings.0.action",
            "drop",
            id="its relabelings",
        ),
        pytest.param({}, "NetworkPolicy", MISSING, id="no policy for the operator unless asked for"),
        pytest.param(
            {"networkPolicy": {"enabled": True}}, "NetworkPolicy.spec.policyTypes", ["Ingress"], id="a policy"
        ),
        pytest.param(
            {"networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]}},
            "NetworkPolicy.spec.ingress.1.from",
            [{"podSelector": {}}],
            id="metrics for some only",
        ),
        pytest.param(
            {"networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 6443}]}]}},
            "NetworkPolicy.spec.egress.2.ports.0.port",
            6443,
            id="limited connections",
        ),
        pytest.param(
            {"rbac": {"limitSecrets": False}},
            "ValidatingAdmissionPolicy",
            MISSING,
            id="no limit to the Secrets it may write",
        ),
    ],
)
def test_an_option_does_what_it_says(helm: Helm, values: Object, path: str, want: Any) -> None:
    assert look(helm.objects(values), path) == want


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        pytest.param({"imageRegistry": "r.io"}, "--worker-image=r.io/rlhf-worker:0.1.0", id="the worker image"),
        pytest.param({"worker": {"image": {"tag": "dev"}}}, "--worker-image=rlhf-worker:dev", id="its tag"),
        pytest.param(
            {"worker": {"image": {"pullPolicy": "Never"}}}, "--worker-pull-policy=Never", id="its pull policy"
        ),
        pytest.param({"worker": {"rayVersion": "2.61.0"}}, "--ray-version=2.61.0", id="Ray's version"),
        pytest.param({"scope": "Namespaced"}, "--namespace=rlhf-operator", id="its own namespace"),
        pytest.param({"scope": "Namespaced", "watchNamespaces": ["a", "b"]}, "--namespace=b", id="chosen namespaces"),
        pytest.param({"state": {"storageClass": "nfs"}}, "--state-storage-class=nfs", id="a storage class"),
        pytest.param(
            {"state": {"accessMode": "ReadWriteOnce"}}, "--state-access-mode=ReadWriteOnce", id="an access mode"
        ),
        pytest.param({"state": {"size": "1Ti"}}, "--state-size=1Ti", id="a size"),
        pytest.param({}, "--network-policies", id="policies for jobs"),
        pytest.param({"jobs": {"networkPolicies": False}}, "--no-network-policies", id="no policies for jobs"),
        pytest.param({"jobs": {"podMonitors": {"enabled": True}}}, "--pod-monitors", id="monitors for jobs"),
        pytest.param(
            {"jobs": {"podMonitors": {"enabled": True, "labels": {"a": "b"}}}},
            "--pod-monitor-label=a=b",
            id="their labels",
        ),
        pytest.param({"reconcile": {"resyncSeconds": 60}}, "--resync-seconds=60", id="time between looks"),
        pytest.param(
            {"reconcile": {"progressSeconds": 2.5}}, "--progress-seconds=2.5", id="time between looks in training"
        ),
        pytest.param({"leaderElection": {"enabled": False}}, "--no-leader-election", id="no lease"),
        pytest.param({"metrics": {"port": 9999}}, "--metrics-port=9999", id="the port of metrics"),
        pytest.param({"health": {"port": 9999}}, "--health-port=9999", id="the port of probes"),
        pytest.param({"log": {"format": "text"}}, "--log-format=text", id="readable logs"),
        pytest.param({"log": {"level": "debug"}}, "--log-level=debug", id="more logs"),
        pytest.param({"extraArgs": ["--workers=3"]}, "--workers=3", id="a flag of yours"),
    ],
)
def test_an_option_becomes_a_flag_of_the_operator(helm: Helm, values: Object, flag: str) -> None:
    assert flag in look(helm.objects(values), f"{OPERATOR}.args")


def test_jobs_without_a_place_for_their_state_are_refused_by_default(helm: Helm) -> None:
    assert not [flag for flag in look(helm.objects(), f"{OPERATOR}.args") if "storage-class" in flag]


def test_the_pods_keep_to_the_restricted_standard(helm: Helm) -> None:
    objects = helm.objects()
    specs = [look(objects, SPEC), look(objects, "Pod.spec")]

    for spec in specs:
        pod, (container,) = spec["securityContext"], spec["containers"]
        own = container["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert not [volume for volume in spec.get("volumes", ()) if "hostPath" in volume]


def test_the_probes_ask_on_the_port_of_the_flag(helm: Helm) -> None:
    operator = look(helm.objects(), OPERATOR)

    assert operator["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert operator["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert {"name": "health", "containerPort": 8080} in operator["ports"]


def test_a_selector_finds_the_pods_and_no_test_pod(helm: Helm) -> None:
    objects = helm.objects()
    selector = look(objects, "Service.spec.selector")

    assert selector.items() <= look(objects, f"{SPEC[:-5]}.metadata.labels").items()
    assert selector == look(objects, "Deployment.spec.selector.matchLabels")
    assert not selector.items() <= look(objects, "Pod.metadata.labels").items()


def test_everything_in_a_namespace_names_it_and_has_the_labels(helm: Helm) -> None:
    cluster_wide = {
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    values = {
        "replicas": 2,
        "networkPolicy": {"enabled": True},
        "metrics": {"podMonitor": MONITORED},
        "commonLabels": {"app.kubernetes.io/name": "never over ours"},
    }
    for found in helm.objects(values):
        assert ("namespace" in found["metadata"]) == (found["kind"] not in cluster_wide), found["kind"]
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "rlhf-operator", found["kind"]
        assert found["metadata"]["labels"].get("app.kubernetes.io/name") != "never over ours", found["kind"]
