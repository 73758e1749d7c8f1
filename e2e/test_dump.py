"""What a failed test leaves behind is enough to understand it."""

from pathlib import Path

from e2e.cluster.api import is_ready
from e2e.dump import dump
from e2e.lab import Lab
from e2e.manifests import pod


def test_a_dump_holds_objects_events_and_logs_also_of_a_container_that_was_replaced(lab: Lab, tmp_path: Path) -> None:
    once = "test -e /kept/mark && exec sleep infinity; touch /kept/mark; echo about to fail; exit 3"
    crash = pod("crash", "sh", "-c", once, restartPolicy="Always", volumes=[{"name": "kept", "emptyDir": {}}])
    crash["spec"]["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    lab.apply(crash)
    lab.wait("it was restarted, and stays", lambda: _restarts(lab) == 1 and is_ready(lab.get("pod", "crash")))
    dump(lab.namespace, tmp_path)
    assert "name: crash" in (tmp_path / "objects.yaml").read_text()
    assert "crash" in (tmp_path / "events.txt").read_text()
    assert "Exit Code:    3" in (tmp_path / "pods.txt").read_text()
    assert "about to fail" in (tmp_path / "logs/crash.previous.log").read_text()
    assert (tmp_path / "kuberay.log").read_text()
    assert "kube-apiserver.log" in [path.name for path in (tmp_path / "cluster").iterdir()]
    assert (tmp_path / "cluster" / lab.node("gpu-a") / "kubelet.log").read_text()


def _restarts(lab: Lab) -> int:
    return sum(status["restartCount"] for status in lab.get("pod", "crash")["status"].get("containerStatuses", []))
