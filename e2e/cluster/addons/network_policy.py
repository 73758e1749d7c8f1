"""NetworkPolicy by kube-router's firewall, one on each node beside kube-proxy (see :mod:`e2e.cluster.nodes`).

It runs as a program of the node and not as a pod, since it works through the node's own iptables and ipset. It starts
when the node gets its first pod: before that there is nothing to protect, and an idle cluster does not pay for it.
"""

from typing import Any

USER = "kube-router"
"""The name in its certificate."""
_RBAC = "rbac.authorization.k8s.io"


def manifests() -> list[dict[str, Any]]:
    """What it may read."""
    read = ["get", "list", "watch"]
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": USER},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["namespaces", "pods", "services", "nodes", "endpoints"],
                    "verbs": read,
                },
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": read},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": USER}],
        },
    ]
