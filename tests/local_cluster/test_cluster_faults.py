import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.faults import _container_id


def _pod(**containers):
    statuses = [
        {"name": name, "containerID": f"containerd://{name}-id", "state": {state: {}}}
        for name, state in containers.items()
    ]
    return {"metadata": {"namespace": "default", "name": "victim"}, "status": {"containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("container", "want"), [("", "first-id"), ("second", "second-id")], ids=["the first one", "the named one"]
)
def test_a_running_container_is_found(container, want):
    assert _container_id(_pod(first="running", second="running"), container) == want


def test_a_container_that_has_ended_is_not_taken_for_a_running_one():
    with pytest.raises(ClusterError, match="its containers: first"):
        _container_id(_pod(first="terminated"), "first")


def test_a_pod_that_has_not_started_is_named():
    with pytest.raises(ClusterError, match="pod default/victim is running; its containers: none has started"):
        _container_id({"metadata": {"namespace": "default", "name": "victim"}, "status": {}}, "")
