"""A cluster without KubeRay: the job says what is missing, and starts when somebody installs it."""

import json

import pytest

from e2e.cluster.kubectl import kubectl
from e2e.jobs import apply, quick
from e2e.lab import Lab
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

DEFINITION = "rayclusters.ray.io"


def test_a_job_names_kuberay_as_missing_and_trains_once_it_is_there(operator: Operator, lab: Lab) -> None:
    definition = json.loads(kubectl("get", "crd", DEFINITION, "--output=json"))
    kubectl("delete", "crd", DEFINITION, "--timeout=60s")
    try:
        job = apply(lab, quick("early", steps=2))
        message = job.wait("ClusterReady", "False", reason="KubeRayMissing", timeout=60)
        assert "KubeRay" in message
    finally:
        again = {
            "metadata": {
                "name": DEFINITION,
                **{k: definition["metadata"].get(k, {}) for k in ("annotations", "labels")},
            }
        }
        kubectl("create", "--filename=-", stdin=json.dumps(definition | again | {"status": {}}))
        lab.wait("RayClusters are served", _served, timeout=30)
    job.wait("Complete")


def _served() -> bool:
    status = json.loads(kubectl("get", "crd", DEFINITION, "--output=json")).get("status", {})
    conditions = {found["type"]: found["status"] for found in status.get("conditions") or ()}
    return conditions.get("Established") == "True"
