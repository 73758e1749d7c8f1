"""SIGKILL of each role at update and at generate: the role alone comes back, and every effect is there once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import Run, close_all
from real_processes import Gate, is_alive, kill, on_ray, spare_pid, wait_until
from toy_workers import Process

pytestmark = pytest.mark.ray

ROLES = ("actor", "critic", "reward", "reference")


@dataclass
class Training:
    """Four roles, and what their counters should hold by now."""

    run: Run
    folder: Path
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    updates: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))

    def update(self, role: str, amount: float):
        self.totals[role] = 2 * self.totals[role] + amount
        self.updates[role] += 1
        return self.run.step(role, "update", ["total"], amount=amount)

    def pids(self) -> dict[str, int]:
        return {role: pids[0] for role, pids in self.run.pids.items()}


@pytest.fixture(scope="module")
def training(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("training")
    builder = on_ray(folder).settings(spares=2)  # the next test need not wait for the one that is made in this
    for role in ROLES:
        builder = builder.role(role, Process, init_kwargs={"folder": str(folder)})
    run = builder.start()
    run.controller.engine.wait_ready()
    yield Training(run, folder)
    close_all()


@pytest.mark.parametrize("method", ["generate", "update"])
@pytest.mark.parametrize("role", ROLES)
def test_a_killed_role_comes_back_alone_through_the_spare(training: Training, role: str, method: str) -> None:
    run = training.run
    for name in ROLES:
        training.update(name, 1.0)
    for name in ROLES:
        assert run.step(name, "look", ["total"])["total"].get() == training.totals[name]
    before, spare = training.pids(), spare_pid(run)
    restarts, incidents = dict(run.restarts), len(run.seen.incidents)

    with Gate(training.folder, f"{role}-{method}") as gate:
        if method == "generate":
            answer = run.step(role, "generate", ["responses"], prompts=["a", "b"])["responses"]
            want: object = [f"a:{training.totals[role]:g}", f"b:{training.totals[role]:g}"]
        else:
            answer = training.update(role, 3.0)["total"]
            want = training.totals[role]
        assert gate.wait_inside() == before[role]
        killed_at = time.monotonic()
        kill(before[role])
    others = {name: training.update(name, 2.0)["total"] for name in ROLES if name != role}
    assert answer.get() == want
    print(f"\n{role}.{method}: from the kill to the next answer {time.monotonic() - killed_at:.3f} s")
    assert {name: channel.get() for name, channel in others.items()} == {name: training.totals[name] for name in others}

    after = training.pids()
    assert after == {**before, role: spare}
    assert not is_alive(before[role])
    assert run.restarts == {**restarts, role: restarts.get(role, 0) + 1}
    (incident,) = run.seen.incidents[incidents:]
    assert (incident.reason, incident.worker, incident.pid) == ("Killed", f"{role}-worker-000", before[role])
    look = run.step(role, "look", ["total", "seen"])
    assert look["total"].get() == training.totals[role]
    seen = look["seen"].get()
    assert len(seen) == len(set(seen)) == training.updates[role]


@pytest.mark.parametrize(("kind", "want"), [("segfault", "SegmentationFault"), ("kill", "Killed")])
def test_how_a_process_died_is_told_apart_also_after_one_another(
    training: Training, tmp_path: Path, kind: str, want: str
) -> None:
    run, before = training.run, len(training.run.seen.incidents)
    spare_pid(run)
    run.step("critic", "say", text=f"before the {kind}").wait()
    assert run.step("critic", "crash", ["alive"], folder=str(tmp_path), kind=kind)["alive"].get() is True
    assert run.seen.incidents[before].reason == want
    log = (training.folder / "logs" / "critic-worker-000.log").read_text()
    assert f"before the {kind}" in log
    if kind == "segfault":
        assert "died of a fatal error: Segmentation fault" in run.seen.incidents[before].message
        assert "toy_workers.py" in log[log.index("Fatal Python error: Segmentation fault") :]
        spare_pid(run)
        kill(run.pids["critic"][0])
        assert run.step("critic", "look", ["total"])["total"].get() == training.totals["critic"]
        assert run.seen.incidents[before + 1].reason == "Killed"  # and not what the log still says of its predecessor


def test_a_worker_that_is_stopped_is_replaced_after_its_time_limit(runs, tmp_path: Path) -> None:
    run = runs.role("critic", Process, method_timeout=2.0).settings(spares=1).start()
    run.controller.engine.wait_ready()
    run.step("critic", "update", [], amount=5.0).wait()
    spare_pid(run)
    (stopped,) = run.pids["critic"]
    kill(stopped, 19)  # SIGSTOP
    assert run.step("critic", "look", ["total"])["total"].get() == 5.0
    (incident,) = run.seen.incidents
    assert (incident.reason, incident.worker) == ("MethodTimeout", "critic-worker-000")
    wait_until(lambda: not is_alive(stopped), "the stopped process to be gone", seconds=30)
