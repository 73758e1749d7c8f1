"""One death, hang or loss at every phase of every method of every role: the run must come out as if nothing was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from toy_ppo import CLASSES, ROLES, Outcome, a_ppo, outcome

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.messages import SNAPSHOT
from rlhf_runtime.worker import Effect, method_spec

STEPS = 4
SNAPSHOT_EVERY = 2
LIMIT = 50.0
MOMENTS = {"in the first iteration": 1, "in the middle": 2, "right after a snapshot": 3}
METHODS = {
    "actor": ("generate", "update", "show"),
    "critic": ("values", "update"),
    "reward": ("score", "update"),
    "reference": ("log_probs", "update"),
}


@dataclass(frozen=True)
class Case:
    fault: Fault
    moment: str

    def __str__(self) -> str:
        fault = self.fault
        return f"{fault.role} {fault.kind}s at {fault.method} {fault.at} {self.moment}"


def _cases() -> Iterator[Case]:
    for role in ROLES:
        for method in METHODS[role]:
            writes = method_spec(CLASSES[role], method).effect is Effect.WRITE
            for at in ("received", "logged", "applied", "answered") if writes else ("received", "answered"):
                for kind in ("die", "hang", "lose"):
                    for moment, call in MOMENTS.items():
                        yield Case(Fault(role=role, method=method, at=at, call=call, kind=kind), moment)
        for at in ("received", "answered"):
            for kind in ("die", "hang"):
                for call, moment in enumerate(("of the first snapshot", "of the second"), start=1):
                    yield Case(Fault(role=role, method=SNAPSHOT, at=at, call=call, kind=kind), moment)


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return outcome(a_ppo(), steps=STEPS, snapshot_every=SNAPSHOT_EVERY)


def _pids_at_start(found: Outcome) -> dict[str, int]:
    return {role: 1000 + index for index, role in enumerate(ROLES)}


@pytest.mark.parametrize("case", list(_cases()), ids=str)
def test_the_run_comes_out_as_if_nothing_had_happened(undisturbed: Outcome, case: Case) -> None:
    fault = case.fault
    builder = a_ppo(with_durable_outputs=fault.kind == "lose", method_timeout=LIMIT).hit_by(fault)
    if fault.kind == "lose":
        builder = builder.losing_buffers()
    found = outcome(builder, steps=STEPS, snapshot_every=SNAPSHOT_EVERY)

    assert found.weights == undisturbed.weights
    assert found.metrics == undisturbed.metrics
    assert found.committed == undisturbed.committed
    assert found.applied == undisturbed.applied
    assert all(len(ids) == len(set(ids)) == STEPS for ids in found.applied.values())

    run = found.run
    assert run.restarts == {fault.role: 1}
    assert [(i.role, i.worker, i.attempt) for i in run.seen.incidents] == [(fault.role, f"{fault.role}-worker-000", 0)]
    assert [r[0] for r in run.seen.recoveries] == [fault.role]
    for role, (pid,) in run.pids.items():
        assert (pid == _pids_at_start(found)[role]) == (role != fault.role)
    assert len(run.simulated.hosts) == len(ROLES) + 1


@pytest.mark.parametrize("kind", ["die", "hang"])
def test_the_incident_tells_what_the_worker_was_doing(kind: str) -> None:
    fault = Fault(role="critic", method="update", at="applied", call=3, kind=kind)
    run = outcome(a_ppo(method_timeout=LIMIT).hit_by(fault), steps=STEPS).run
    (incident,) = run.seen.incidents
    assert incident.step == "step 2.5 critic.update"
    assert incident.reason == {"die": "Killed", "hang": "MethodTimeout"}[kind]
    assert incident.pid == 1001


def test_a_death_while_idle_is_noticed_at_the_next_call() -> None:
    fault = Fault(role="reward", method="update", at="answered", call=2)
    run = outcome(a_ppo().hit_by(fault), steps=STEPS, snapshot_every=100).run
    (incident,) = run.seen.incidents
    assert incident.step == "step 2.3 reward.score"


def test_a_role_replays_only_its_own_updates_since_its_snapshot(undisturbed: Outcome) -> None:
    fault = Fault(role="critic", method="values", at="received", call=4)
    found = outcome(a_ppo().hit_by(fault), steps=STEPS, snapshot_every=SNAPSHOT_EVERY)
    groups = found.run.controller.engine.groups
    replayed = {name: [seat.joined.replayed for seat in group.seats if seat.joined] for name, group in groups.items()}
    assert replayed == {"actor": [0], "critic": [1], "reward": [0], "reference": [0]}  # snapshot of 2, and one more
    assert found.weights == undisturbed.weights
