"""Run by `helm test`, with the operator's own rights: is what it needs there, and may it use it?"""

import os
import sys

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

WATCHED = os.environ["WATCHED"].split()

config.load_incluster_config()
api = client.CustomObjectsApi()
failed = False
for group, version, plural, hint in (
    ("rlhf.dev", "v1alpha1", "rlhfjobs", "install the chart with `crds.enabled=true`"),
    ("ray.io", "v1", "rayclusters", "install KubeRay 1.5, see docs/install.md"),
):
    try:
        for namespace in WATCHED:
            api.list_namespaced_custom_object(group, version, namespace, plural, limit=1)
        if not WATCHED:
            api.list_cluster_custom_object(group, version, plural, limit=1)
    except ApiException as error:
        failed = True
        what = {403: "may not be listed: compare with docs/rbac.md", 404: f"is not served: {hint}"}
        print(f"{plural}.{group}/{version} {what.get(error.status, f'cannot be listed: {error.reason}')}")
    else:
        print(f"{plural}.{group}/{version} is served, and the operator may list it")
sys.exit(failed)
