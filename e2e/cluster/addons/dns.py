"""CoreDNS, as kubeadm installs it, except that no name is forwarded: those of other networks do not exist here."""

from typing import Any

from e2e.cluster.addons.security import restricted
from e2e.cluster.addons.waiting import Deployment
from e2e.cluster.config import DNS_DOMAIN, DNS_SERVICE_ADDRESS, POOL_LABEL

VERSION = "v1.15.0"
IMAGE = f"localhost/coredns:{VERSION}"
DEPLOYMENT = Deployment("kube-system", "coredns")
_LABELS = {"k8s-app": "kube-dns"}
_COREFILE = f"""\
{DNS_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {DNS_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    cache 30
    reload
    loadbalance
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def manifests() -> list[dict[str, Any]]:
    """All objects of CoreDNS."""
    return [*_identity(), _config(), _service(), _deployment()]


def _identity() -> list[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io"
    read = ["list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata("coredns")},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": read},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
    ]


def _config() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata("coredns"),
        "data": {"Corefile": _COREFILE},
    }


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata("kube-dns")
        | {"labels": _LABELS | {"kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
        "spec": {
            "clusterIP": DNS_SERVICE_ADDRESS,
            "selector": _LABELS,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"},
                {"name": "metrics", "port": 9153, "protocol": "TCP"},
            ],
        },
    }


def _deployment() -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "securityContext": restricted(add=["NET_BIND_SERVICE"]),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata("coredns") | {"labels": _LABELS | {"kubernetes.io/name": "CoreDNS"}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": "coredns",
                    "nodeSelector": {"kubernetes.io/os": "linux", POOL_LABEL: "cpu"},
                    "tolerations": [
                        {"key": "CriticalAddonsOnly", "operator": "Exists"},
                        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
                    ],
                    "dnsPolicy": "Default",
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                },
            },
        },
    }


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "kube-system", "labels": _LABELS}
