"""A cluster without KubeRay: the job says what is missing, and starts when somebody installs it."""

import pytest

from e2e.cluster.addons import kuberay
from e2e.cluster.kubectl import apply as apply_objects
from e2e.cluster.kubectl import kubectl
from e2e.jobs import apply, quick
from e2e.lab import Lab
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)


def test_a_job_names_kuberay_as_missing_and_trains_once_it_is_there(operator: Operator, lab: Lab) -> None:
    kubectl("delete", "crd", kuberay.DEFINITION, "--timeout=60s")
    try:
        job = apply(lab, quick("early", steps=2))
        message = job.wait("ClusterReady", "False", reason="KubeRayMissing", timeout=60)
        assert "KubeRay" in message
    finally:
        apply_objects(*(found for found in kuberay.rendered() if found["metadata"]["name"] == kuberay.DEFINITION))
        lab.wait("RayClusters are served", lambda: kuberay.established()["status"] == "True", timeout=30)
    job.wait("Complete")
