"""What a failed test leaves behind is enough to understand it."""

from pathlib import Path

from e2e.dump import dump
from e2e.lab import Lab
from e2e.manifests import pod


def test_a_dump_holds_objects_events_and_logs_also_of_a_container_that_was_replaced(lab: Lab, tmp_path: Path) -> None:
    lab.apply(pod("crash", "sh", "-c", "echo about to fail; exit 3", restartPolicy="Always"))
    lab.wait("it has crashed twice", lambda: _restarts(lab) >= 1, timeout=60)
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
