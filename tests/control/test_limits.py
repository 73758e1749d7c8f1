"""Every wait has an end and a name."""

from __future__ import annotations

import pytest
from builders import a_run
from toy_workers import Counter, Echo

from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.errors import DeadlockError, StepError


def test_a_hang_becomes_an_incident_and_a_restart() -> None:
    hang = Fault(role="critic", method="look", kind="hang")
    run = a_run().role("critic", Counter, method_timeout=30.0).lasting("critic.look", 2.0).hit_by(hang).start()
    run.step("critic", "update", [], amount=3.0)
    assert run.step("critic", "look", ["total"])["total"].get() == 3.0
    assert run.backend.now() == 32.0
    (incident,) = run.seen.incidents
    assert (incident.reason, incident.worker, incident.step) == (
        "MethodTimeout",
        "critic-worker-000",
        "step 0.1 critic.look",
    )
    assert "no answer within `methodTimeoutSeconds` (30 s)" in incident.message
    assert run.restarts == {"critic": 1}
    assert len(run.seen.recoveries) == 1


def test_a_short_limit_is_kept_while_a_long_one_runs() -> None:
    hang = Fault(role="reward", method="same", kind="hang")
    run = (
        a_run()
        .role("actor", Echo, method_timeout=1800.0)
        .role("reward", Echo, method_timeout=5.0)
        .lasting("actor.same", 100.0)
        .hit_by(hang)
        .start()
    )
    slow = run.step("actor", "same", ["x"], x=1)
    assert run.step("reward", "same", ["x"], x=2)["x"].get() == 2
    assert run.backend.now() == 5.0
    assert slow["x"].get() == 1


def test_waiting_for_its_turn_is_no_hang() -> None:
    run = a_run().role("critic", Echo, method_timeout=3.0).lasting("critic.same", 2.0).start()
    answers = [run.step("critic", "same", ["x"], x=i) for i in range(5)]
    assert [a["x"].get() for a in answers] == [0, 1, 2, 3, 4]
    assert run.restarts == {}


def test_waiting_behind_a_colocated_role_is_no_hang() -> None:
    run = (
        a_run()
        .role("actor", Echo, method_timeout=1800.0)
        .role("reward", Echo, method_timeout=3.0, colocate_with="actor")
        .lasting("actor.same", 60.0)
        .lasting("reward.same", 2.0)
        .start()
    )
    run.step("actor", "same", ["x"], x=1)
    assert run.step("reward", "same", ["x"], x=2)["x"].get() == 2
    assert run.backend.now() == 62.0
    assert run.restarts == {}


def test_a_worker_that_is_never_ready_ends_the_role_by_name() -> None:
    run = a_run().role("critic", Echo, start_timeout=10.0, max_restarts=1).starting_in(60.0).start()
    with pytest.raises(StepError, match=r'role "critic" could not be started: .*`startTimeoutSeconds` \(10 s\)'):
        run.controller.engine.wait_ready()
    assert run.backend.now() == 20.0
    assert [i.reason for i in run.seen.incidents] == ["StartTimeout", "StartTimeout"]


def test_a_worker_that_is_ready_in_time_is_left_alone() -> None:
    run = a_run().role("critic", Echo, start_timeout=10.0).starting_in(9.0).start()
    run.controller.engine.wait_ready()
    assert run.step("critic", "same", ["x"], x=1)["x"].get() == 1
    assert run.restarts == {}


def test_a_spare_makes_a_restart_as_quick_as_an_assignment() -> None:
    death = Fault(role="critic", method="same")
    cold = a_run().role("critic", Echo).starting_in(8.0).hit_by(death).start()
    cold.controller.engine.wait_ready()
    assert cold.step("critic", "same", ["x"], x=1)["x"].get() == 1
    assert cold.seen.recoveries == [("critic", "critic-worker-000", 8.0)]

    warm = a_run().role("critic", Echo).starting_in(8.0).settings(spares=1).hit_by(death).start()
    warm.controller.engine.wait_ready()
    waiting = warm.step("critic", "same", ["x"], x=1)
    warm.backend.call_later(20.0, lambda: None)
    while warm.backend.now() < 20.0:  # until the spare's imports are done
        warm.backend.pump(0.0)
    assert waiting["x"].get() == 1
    assert warm.step("critic", "same", ["x"], x=1)["x"].get() == 1


def test_a_wait_that_can_never_end_says_what_is_unfinished() -> None:
    hang = Fault(role="critic", method="same", kind="hang")
    run = a_run().role("critic", Echo, method_timeout=None).hit_by(hang).start()
    with pytest.raises(DeadlockError, match=r"nothing runs and nothing can start; unfinished: step 0\.0 critic\.same"):
        run.step("critic", "same", ["x"], x=1)["x"].get()
