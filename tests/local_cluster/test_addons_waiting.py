"""When a Deployment is ready, and what is said of a pod that is not."""

from typing import Any

import pytest

from e2e.cluster.addons.waiting import is_available, problem


def deployment(*, seen: int = 2, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": seen, **status},
    }


@pytest.mark.parametrize(
    ("found", "want_available"),
    [
        pytest.param(
            deployment(replicas=1, updatedReplicas=1, availableReplicas=1), True, id="its one pod is available"
        ),
        pytest.param(deployment(), False, id="it has no pod yet"),
        pytest.param(deployment(replicas=1, updatedReplicas=1), False, id="its pod is not available"),
        pytest.param(deployment(replicas=2, updatedReplicas=1, availableReplicas=1), False, id="an old pod is left"),
        pytest.param(
            deployment(seen=1, replicas=1, updatedReplicas=1, availableReplicas=1),
            False,
            id="its change is not seen yet",
        ),
        pytest.param({"metadata": {"generation": 1}, "spec": {"replicas": 1}}, False, id="it has no status"),
    ],
)
def test_available_means_the_newest_version_and_nothing_else(found, want_available):
    assert is_available(found) == want_available


def pod(*, waiting: dict[str, str] | None = None, restarts: int = 0, **status: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "localhost/thing:v1",
        "restartCount": restarts,
        "state": {"waiting": waiting} if waiting else {"running": {}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}} if restarts else {},
    }
    return {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"nodeName": "cpu-0"},
        "status": {"containerStatuses": [container], **status},
    }


CREATING = {"reason": "ContainerCreating"}
UNSCHEDULABLE = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}]
}


@pytest.mark.parametrize(
    ("found", "want", "want_final"),
    [
        pytest.param(
            pod(waiting={"reason": "ErrImagePull"}),
            'ErrImagePull: the image "localhost/thing:v1" is not on node cpu-0',
            True,
            id="its image is missing",
        ),
        pytest.param(pod(waiting=CREATING), "ContainerCreating", False, id="it is being made"),
        pytest.param(
            pod(waiting={"reason": "CrashLoopBackOff"}, restarts=1),
            "CrashLoopBackOff: container main ended with exit code 3 (Error)",
            False,
            id="it ended once",
        ),
        pytest.param(
            pod(waiting={"reason": "CrashLoopBackOff"}, restarts=3),
            "CrashLoopBackOff: container main ended with exit code 3 (Error)",
            True,
            id="it ends again and again",
        ),
        pytest.param(pod(restarts=9), None, False, id="it runs again"),
        pytest.param({"status": UNSCHEDULABLE}, "Unschedulable: no node fits", False, id="no node takes it"),
        pytest.param(pod(), None, False, id="it runs"),
    ],
)
def test_problems_of_pods(found, want, want_final):
    assert problem(found) == want
    assert problem(found, final=True) == (want if want_final else None)
