"""Two and three faults in one run, drawn at random from a fixed seed: the same promise as for one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from toy_ppo import CLASSES, ROLES, Outcome, a_ppo, outcome

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.worker import Effect, method_spec

STEPS = 4
POINTS = {True: ("received", "logged", "applied", "answered"), False: ("received", "answered")}
METHODS = [
    ("actor", "generate"),
    ("actor", "update"),
    ("actor", "show"),
    ("critic", "values"),
    ("critic", "update"),
    ("reward", "score"),
    ("reward", "update"),
    ("reference", "log_probs"),
    ("reference", "update"),
]


def _drawn(seed: int) -> list[Fault]:
    """Two or three faults; half of the time the second hits the recovery from the first."""
    chance = random.Random(seed)
    faults: list[Fault] = []
    for _ in range(chance.choice([2, 3])):
        role, method = chance.choice(METHODS)
        at = chance.choice(POINTS[method_spec(CLASSES[role], method).effect is Effect.WRITE])
        kind = chance.choice(["die", "hang", "lose"])
        faults.append(Fault(role=role, method=method, at=at, kind=kind, call=chance.randint(1, STEPS)))
        if chance.random() < 0.5:
            again = replace(faults[-1], kind=chance.choice(["die", "hang"]), call=faults[-1].call + 1)
            faults.append(again)
    return faults


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    return outcome(a_ppo(), steps=STEPS)


@pytest.mark.parametrize("seed", range(40))
def test_several_faults_change_nothing_either(undisturbed: Outcome, seed: int) -> None:
    faults = _drawn(seed)
    found = outcome(a_ppo(with_durable_outputs=True, method_timeout=50.0).hit_by(*faults).losing_buffers(), steps=STEPS)
    assert found.weights == undisturbed.weights, faults
    assert found.metrics == undisturbed.metrics, faults
    assert found.committed == undisturbed.committed, faults
    assert found.applied == undisturbed.applied, faults
    assert set(found.run.restarts) <= {fault.role for fault in faults}
    assert sum(found.run.restarts.values()) == len(found.run.seen.incidents) <= len(faults)


def test_every_role_at_once() -> None:
    faults = [Fault(role=role, method="update", at="applied", call=2) for role in ROLES]
    found = outcome(a_ppo().hit_by(*faults), steps=STEPS)
    assert found.weights == outcome(a_ppo(), steps=STEPS).weights
    assert found.run.restarts == dict.fromkeys(ROLES, 1)


def test_a_death_while_it_is_being_restored_is_one_more_restart() -> None:
    faults = [Fault(role="critic", method="update", at="applied", call=call) for call in (2, 3, 4)]
    found = outcome(a_ppo().hit_by(*faults), steps=STEPS)
    assert found.run.restarts == {"critic": 3}
    assert [len(set(ids)) for ids in found.applied.values()] == [STEPS] * 4
    assert found.weights == outcome(a_ppo(), steps=STEPS).weights
