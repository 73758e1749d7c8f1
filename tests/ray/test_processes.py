"""The processes themselves: niceness, threads, what Ray's many errors mean, and that none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest
import ray
import ray.exceptions as ray_errors
from builders import RunBuilder
from real_processes import is_alive, spare_pid, wait_until
from toy_workers import Process

from rlhf_runtime.backends import ray_backend
from rlhf_runtime.backends.base import Outcome
from rlhf_runtime.backends.ray_backend import RayBackend, RayHost
from rlhf_runtime.errors import BufferLostError, HostDiedError

pytestmark = pytest.mark.ray


def test_role_processes_are_as_nice_as_the_controller_and_use_the_threads_of_their_role(runs: RunBuilder) -> None:
    run = (
        runs.role("actor", Process, threads=2)
        .role("critic", Process, threads=1)
        .role("reward", Process, threads=3, colocate_with="critic")
        .start()
    )
    for role, threads in {"actor": 2, "critic": 1, "reward": 3}.items():
        settings = run.step(role, "setting", ["nice", "threads"])
        assert (settings["nice"].get(), settings["threads"].get()) == (os.getpriority(os.PRIO_PROCESS, 0), threads)
    again = run.step("critic", "setting", ["threads"])
    assert again["threads"].get() == 1  # although its process has computed with three since
    assert run.pids["critic"] == run.pids["reward"] != run.pids["actor"]


def test_closing_ends_every_process_of_the_run_and_leaves_the_sessions_ray(runs: RunBuilder) -> None:
    run = runs.role("actor", Process).role("critic", Process).settings(spares=1).start()
    run.controller.engine.wait_ready()
    pids = [*run.pids["actor"], *run.pids["critic"], spare_pid(run)]
    assert len(set(pids)) == 3
    assert all(map(is_alive, pids))
    run.close()
    wait_until(lambda: not any(map(is_alive, pids)), "the run's processes to end", seconds=20)
    assert ray.is_initialized()


SCRIPT = """
import os, pathlib
from rlhf_runtime.api import Controller, Role
from toy_workers import Counter

def descendants(pid):
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, open_ = [], [pid]
    while open_:
        children = parents.get(open_.pop(), [])
        found += children
        open_ += children
    return found

controller = Controller(backend="ray")
controller.register_role(Role(name="actor", worker_class=Counter))
controller.step(role="actor", method="update", inputs={"amount": 4.0}, outputs=[])
print("total", controller.step(role="actor", method="look", outputs=["total"])["total"])
print("pids", *descendants(os.getpid()))
"""


def test_a_script_that_ends_leaves_no_process_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    here = Path(__file__).parent.parent / "control"
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # short, since sockets lie in it
        # What `ray start` leaves behind when it is killed: the run must be on a Ray of its own all the same.
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray/ray_current_cluster").write_text("192.0.2.1:6379")
        env = {**os.environ, "PYTHONPATH": str(here), "RAY_TMPDIR": folder}
        env.pop("RAY_ADDRESS", None)
        done = subprocess.run(
            [sys.executable, script], env=env, capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 0, done.stderr
    total, pids = done.stdout.splitlines()[-2:]
    assert total == "total 4.0"
    started = [int(pid) for pid in pids.split()[1:]]
    assert len(started) >= 3  # Ray's own and the actor's
    wait_until(lambda: not any(map(is_alive, started)), "the script's processes to end", seconds=20)


class FakeHandle:
    """An actor handle that answers each call with the next of the given answers."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.calls = list(answers), 0
        self.run = self

    def options(self, **_: object) -> FakeHandle:
        return self

    def remote(self, *_: object) -> tuple[FakeReply, None]:
        self.calls += 1
        return FakeReply(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]), None


class FakeReply:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def future(self) -> Future[object]:
        future: Future[object] = Future()
        if isinstance(self.answer, BaseException):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def _unavailable() -> BaseException:
    return ray_errors.ActorUnavailableError("the actor is temporarily unavailable", b"\x01" * 16)


def _ask(handle: FakeHandle, buffers: tuple[object, ...] = ()) -> list[Outcome]:
    backend = RayBackend()
    outcomes: list[Outcome] = []
    backend.submit(RayHost("fake", handle), "call", (), buffers, outcomes.append)

    def answered() -> bool:
        backend.pump(0.01)
        return bool(outcomes)

    wait_until(answered, "an answer", seconds=20)
    backend.pump(0.1)
    return outcomes


def test_unavailable_is_not_dead(ray_session: None) -> None:
    handle = FakeHandle(_unavailable(), _unavailable(), "the reply")
    (outcome,) = _ask(handle)
    assert (outcome.value, outcome.error, handle.calls) == ("the reply", None, 3)


def test_unavailable_and_then_dead_is_dead(ray_session: None) -> None:
    handle = FakeHandle(_unavailable(), ray_errors.ActorDiedError())
    (outcome,) = _ask(handle)
    assert isinstance(outcome.error, HostDiedError)
    assert (outcome.error.reason, handle.calls) == ("Killed", 2)


def test_unavailable_for_too_long_is_given_up(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_backend, "_UNAVAILABLE_LIMIT_SECONDS", 0.2)
    (outcome,) = _ask(FakeHandle(_unavailable()))
    assert isinstance(outcome.error, HostDiedError)
    assert outcome.error.reason == "NodeLost"
    assert "could not be reached for 0.2 s" in str(outcome.error)


def test_a_lost_buffer_is_named(ray_session: None) -> None:
    kept, lost = ray.put(1), ray.put(2)
    error = ray_errors.ObjectLostError(lost.hex(), b"", "")
    (outcome,) = _ask(FakeHandle(error), (None, kept, lost))
    assert isinstance(outcome.error, BufferLostError)
    assert outcome.error.buffer == lost


def test_a_class_that_does_not_pickle_is_told_with_its_role(runs: RunBuilder) -> None:
    import threading

    with pytest.raises(Exception, match="actor"):
        runs.role("actor", Process, init_kwargs={"folder": threading.Lock()}).start()
