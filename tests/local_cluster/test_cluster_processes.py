import os
import subprocess
import sys

import pytest

from e2e.cluster import paths, processes
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import Process


@pytest.fixture
def child():
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1
    ) as child:
        child.stdout.readline()
        yield child
        child.kill()


def _record(pid, began=None):
    began = processes._began(pid) if began is None else began
    return Process(name="child", argv=[], netns="none", cgroup="none", pid=pid, began=began)


def test_a_process_ends_when_asked(child):
    process = _record(child.pid)
    assert process.running()
    process.stop(grace=5)
    assert child.wait(5) == -15
    assert not process.running()


def test_a_process_without_grace_is_killed(child):
    _record(child.pid).stop(grace=0)
    assert child.wait(5) == -9


def test_a_zombie_counts_as_ended(child):
    process = _record(child.pid)
    process.stop(grace=0)
    assert not process.running(), "nobody has waited for it yet"


def test_a_pid_that_went_to_another_program_is_never_touched(child):
    process = _record(child.pid, began=1)
    assert not process.running()
    process.stop(grace=0)
    assert child.poll() is None


def test_a_process_that_ended_is_reported_with_the_end_of_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "LOGS", tmp_path)
    (tmp_path / "child.log").write_text("line\n" * 50 + "panic: no such flag\n")
    with pytest.raises(ClusterError, match=r"child has ended; the end of (.|\n)*panic: no such flag"):
        _record(os.getpid(), began=1).need_running()


def test_waiting_ends_with_what_was_waited_for():
    with pytest.raises(ClusterError, match="the moon rises: not within 0 s"):
        processes.wait_until("the moon rises", lambda: False, timeout=0)
