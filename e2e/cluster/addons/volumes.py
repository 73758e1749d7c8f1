"""Volumes for claims: class ``local`` (one node, ReadWriteOnce, the default) and class ``shared`` (all nodes).

One local-path-provisioner serves both. A volume of class ``local`` is a folder on the disk of the node where its first
pod was placed; its object names that node, so that no pod can use it elsewhere, as with a real disk. A volume of class
``shared`` is a folder that all nodes see, as on a network file system.
"""

import json
from typing import Any

from e2e.cluster.addons.security import restricted
from e2e.cluster.addons.waiting import Deployment
from e2e.cluster.config import POOL_LABEL
from e2e.cluster.nodes import SHARED_VOLUMES, VOLUMES

VERSION = "v0.0.30"
IMAGE = f"localhost/local-path-provisioner:{VERSION}"
SHELL_IMAGE = "localhost/rlhf-operator:dev"
"""The smallest image with a shell that all nodes have."""
NAMESPACE = "local-path-storage"
DEPLOYMENT = Deployment(NAMESPACE, "local-path-provisioner")
LOCAL_CLASS = "local"
SHARED_CLASS = "shared"
_ACCOUNT = "local-path-provisioner-service-account"
_CONFIG = "local-path-config"
_NAME = "local-path-provisioner"
_PROVISIONER = "rancher.io/local-path"
_RBAC = "rbac.authorization.k8s.io"


def manifests() -> list[dict[str, Any]]:
    """All objects of the provisioner, and the two classes."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(_ACCOUNT)},
        *_roles(),
        _config(),
        _deployment(),
        *_classes(),
    ]


def _roles() -> list[dict[str, Any]]:
    read = ["get", "list", "watch"]
    write = [*read, "create", "patch", "update", "delete"]
    subjects = [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE}]
    cluster_rules = [
        {
            "apiGroups": [""],
            "resources": ["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"],
            "verbs": read,
        },
        {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": write},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read},
    ]
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": write}]
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": _metadata(_NAME), "rules": rules},
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": _NAME}, "rules": cluster_rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(_NAME),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _NAME},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NAME},
            "subjects": subjects,
        },
    ]


def _config() -> dict[str, Any]:
    on_any_node = [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [VOLUMES]}]
    config = {
        "storageClassConfigs": {
            LOCAL_CLASS: {"nodePathMap": on_any_node},
            SHARED_CLASS: {"sharedFileSystemPath": SHARED_VOLUMES},
        }
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(_CONFIG),
        "data": {
            "config.json": json.dumps(config, indent=1),
            "setup": '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n',
            "teardown": '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
            "helperPod.yaml": json.dumps(_helper_pod(), indent=1),
        },
    }


def _helper_pod() -> dict[str, Any]:
    """What makes and removes a volume's folder; the provisioner adds the tolerations for any taint."""
    not_fake = {"key": "type", "operator": "NotIn", "values": ["kwok"]}  # there nothing would really be removed
    required = {"nodeSelectorTerms": [{"matchExpressions": [not_fake]}]}
    container = {
        "name": "helper-pod",
        "image": SHELL_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"runAsUser": 0},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "helper-pod"},
        "spec": {
            "priorityClassName": "system-node-critical",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _deployment() -> dict[str, Any]:
    labels = {"app": _NAME}
    container = {
        "name": _NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["start", "--config", "/etc/config/config.json", "--service-account-name", _ACCOUNT],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "CONFIG_MOUNT_PATH", "value": "/etc/config/"},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config/"}],
        "securityContext": restricted(),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(_NAME),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": _ACCOUNT,
                    "nodeSelector": {POOL_LABEL: "cpu"},
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": _CONFIG}}],
                },
            },
        },
    }


def _classes() -> list[dict[str, Any]]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    # "local" volumes, unlike hostPath, are never made on the wrong node by the kubelet, and obey a pod's fsGroup.
    return [
        _class(LOCAL_CLASS, "WaitForFirstConsumer", annotations=default | {"defaultVolumeType": "local"}),
        _class(SHARED_CLASS, "Immediate"),
    ]


def _class(name: str, binding: str, *, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations or {}},
        "provisioner": _PROVISIONER,
        "volumeBindingMode": binding,
        "reclaimPolicy": "Delete",
    }


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE}
