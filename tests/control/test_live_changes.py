"""What a user or the operator changes while a run goes on: no step is lost, and no number is another."""

from __future__ import annotations

import pytest
import torch
from builders import STATE, Run, RunBuilder, a_run
from scorers import RolePods, Scorer
from toy_ppo import ToyPPO, a_ppo, outcome
from toy_workers import Counter

from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.simulated import Fault
from rlhf_runtime.control.processes import RoleGroup
from rlhf_runtime.errors import (
    HostDiedError,
    InterruptedRunError,
    RlhfError,
    RoleExhaustedError,
    ScalingRefusedError,
    UnknownRoleError,
)


def _group(run: Run, name: str) -> RoleGroup:
    return run.controller.engine.groups[name]


def _ranks(run: Run, name: str = "reward") -> list[int]:
    return [seat.rank for seat in _group(run, name).seats]


def _score(run: Run, rows: int = 8) -> tuple[list[float], list[str]]:
    out = run.step("reward", "score", ["scores", "by"], x=torch.zeros(rows))
    return out["scores"].get().tolist(), out["by"].get()


def _pump(run: Run, *, until: float) -> None:
    run.backend.call_later(until - run.backend.now(), lambda: None)
    while run.backend.now() < until:
        run.backend.pump(0.0)


# ---- restarts


@pytest.mark.parametrize("after", [0.5, 3.5, 6.5, 9.5], ids="at {} s".format)
@pytest.mark.parametrize("role", ["actor", "critic", "reward", "reference"])
def test_a_restart_on_request_changes_no_number(role: str, after: float) -> None:
    class Restarted(ToyPPO):
        def begin_iteration(self, iteration: int) -> None:
            if iteration == 0:
                self.engine.backend.call_later(after, lambda: self.engine.restart_role(role, reason="new image"))
            super().begin_iteration(iteration)

    builder = a_ppo()
    for label in ("actor.generate", "critic.values", "reward.score", "critic.update", "actor.update"):
        builder = builder.lasting(label, 1.0)
    undisturbed = outcome(builder, steps=4)
    found = outcome(builder.running(Restarted).keeping_state_in({}), steps=4)
    assert (found.weights, found.metrics, found.committed) == (
        undisturbed.weights,
        undisturbed.metrics,
        undisturbed.committed,
    )
    assert found.applied == undisturbed.applied
    (incident,) = found.run.seen.incidents
    assert (incident.role, incident.reason, incident.counted) == (role, "DeletedByUser", False)
    assert incident.message == "restarted on request: new image"
    group = _group(found.run, role)
    assert (group.restarts, group.uncounted_restarts) == (0, 1)
    assert [seat.attempt for seat in group.seats] == [1]


def test_a_call_that_may_not_be_repeated_is_answered_before_its_process_is_restarted() -> None:
    run = a_run().role("reward", Scorer).lasting("reward.pay", 10.0).lasting("reward.score", 1.0).start()
    paid = run.step("reward", "pay", ["paid", "attempt"], x=torch.ones(2))
    _pump(run, until=3.0)
    run.controller.engine.restart_role("reward", reason="")
    after = run.step("reward", "score", ["scores"], x=torch.zeros(2))
    assert paid["attempt"].get() == 0
    after.wait()
    assert [seat.attempt for seat in _group(run, "reward").seats] == [1]
    assert run.timeline == {"reward.pay": [(0.0, 10.0)], "reward.score": [(10.0, 11.0)]}


def test_a_restart_can_count() -> None:
    run = a_run().role("reward", Scorer, max_restarts=1).start()
    run.controller.engine.wait_ready()
    for _ in range(2):
        run.controller.engine.restart_role("reward", reason="Hang", counted=True)
    assert isinstance(_group(run, "reward").failed, RoleExhaustedError)
    assert [incident.reason for incident in run.seen.incidents] == ["Hang", "Hang"]
    with pytest.raises(RlhfError, match='role "reward" has failed for good'):
        run.controller.engine.restart_role("reward", reason="")


def test_roles_that_share_a_process_are_restarted_together() -> None:
    run = a_run().role("actor", Counter).role("critic", Counter, colocate_with="actor").role("other", Counter).start()
    for role in ("actor", "critic", "other"):
        run.step(role, "update", [], amount=3.0).wait()
    run.controller.engine.restart_role("critic", reason="")
    assert {name: run.step(name, "look", ["total"])["total"].get() for name in ("actor", "critic", "other")} == (
        dict.fromkeys(("actor", "critic", "other"), 3.0)
    )
    attempts = {name: [s.attempt for s in g.seats] for name, g in run.controller.engine.groups.items()}
    assert attempts == {"actor": [1], "critic": [1], "other": [0]}


# ---- expected losses


@pytest.mark.parametrize(
    ("seconds", "want_reason", "want_counted"),
    [
        pytest.param(60.0, "NodeDrained", False, id="within the time: not counted, with the reason that was given"),
        pytest.param(5.0, "Killed", True, id="after it: counted, with its own reason"),
    ],
)
def test_a_death_that_was_expected(seconds: float, want_reason: str, want_counted: bool) -> None:
    death = Fault(role="reward", method="score", call=2)
    run = a_run().role("reward", Scorer).role("other", Scorer).lasting("reward.score", 10.0).hit_by(death).start()
    run.controller.engine.expect_loss("reward", reason=FailureReason.NODE_DRAINED, seconds=seconds)
    for _ in range(2):
        _score(run)
    (incident,) = run.seen.incidents
    assert (incident.reason, incident.counted) == (want_reason, want_counted)
    assert (incident.message == "ended on purpose, as was announced") == (not want_counted)
    group = _group(run, "reward")
    assert (group.restarts, group.uncounted_restarts) == (int(want_counted), int(not want_counted))


def test_an_expected_loss_does_not_excuse_what_has_another_cause() -> None:
    run = a_run().role("reward", Scorer, method_timeout=5.0)
    run = run.hit_by(Fault(role="reward", method="score", kind="hang")).start()
    run.controller.engine.expect_loss("reward", reason=FailureReason.NODE_DRAINED, seconds=100.0)
    _score(run)
    (incident,) = run.seen.incidents
    assert (incident.reason, incident.counted) == ("MethodTimeout", True)


def test_incidents_have_a_name_for_ever() -> None:
    faults = [Fault(role="reward", method="score", call=call) for call in (1, 2)]
    run = a_run().role("reward", Scorer).settings(epoch=3).hit_by(*faults).start()
    run.controller.begin_iteration(6)
    _score(run)
    assert [incident.id for incident in run.seen.incidents] == ["reward-worker-000/0/3", "reward-worker-000/1/3"]
    first = run.seen.incidents[0]
    assert (first.rank, first.pod, first.iteration, first.exit_code) == (0, "simulated", 6, None)


# ---- scaling


def test_scaling_up_and_down_while_it_runs_changes_no_number() -> None:
    def scores(plan: dict[int, int]) -> tuple[list[list[float]], list[int]]:
        run = a_run().role("reward", Scorer).settings(seed=5).starting_in(3.0).lasting("reward.score", 1.0).start()
        numbers, workers = [], []
        for iteration in range(12):
            run.controller.begin_iteration(iteration)
            if iteration in plan:
                run.controller.engine.scale_role("reward", plan[iteration])
            found, by = _score(run)
            numbers.append(found)
            workers.append(len(set(by)))
            run.controller.engine.retire(iteration)
        assert run.seen.incidents == []
        return numbers, workers

    alone, _ = scores({})
    scaled, workers = scores({2: 4, 8: 1})
    assert scaled == alone
    assert max(workers) == 4
    assert workers[0] == workers[-1] == 1
    assert workers[2] == 1  # those that start are not waited for


def test_a_node_keeps_its_split_when_the_role_grows_under_it() -> None:
    run = a_run().role("reward", Scorer).starting_in(1.0).lasting("reward.score", 10.0).start()
    slow = run.step("reward", "score", ["by"], x=torch.zeros(4))
    run.controller.engine.scale_role("reward", 2)
    assert slow["by"].get() == ["reward-worker-000"] * 4
    assert _score(run, rows=4)[1] == ["reward-worker-000"] * 2 + ["reward-worker-001"] * 2


def test_a_worker_that_goes_answers_what_it_was_asked_and_ends() -> None:
    run = a_run().role("reward", Scorer, replicas=3).lasting("reward.score", 10.0).start()
    slow = run.step("reward", "score", ["by"], x=torch.zeros(3))
    _pump(run, until=2.0)
    hosts = [seat.process.host for seat in _group(run, "reward").seats]
    run.controller.engine.scale_role("reward", 1)
    assert _ranks(run) == [0]
    assert all(host.alive for host in hosts)
    assert slow["by"].get() == ["reward-worker-000", "reward-worker-001", "reward-worker-002"]
    assert [host.alive for host in hosts] == [True, False, False]
    assert _group(run, "reward").leaving == []
    assert run.timeline == {"reward.score": [(0.0, 10.0)] * 3}


def test_a_pod_that_is_deleted_before_its_worker_has_answered_loses_nothing_and_counts_nothing() -> None:
    deaths = [Fault(role="reward", method="score", call=3)]
    run = a_run().role("reward", Scorer, replicas=3).hit_by(*deaths).lasting("reward.score", 10.0).start()
    slow = run.step("reward", "score", ["scores", "by"], x=torch.zeros(3))
    _pump(run, until=2.0)
    run.controller.engine.scale_role("reward", 1)
    alone = a_run().role("reward", Scorer).start()
    assert slow["scores"].get().tolist() == _score(alone, rows=3)[0]
    assert slow["by"].get() == ["reward-worker-000", "reward-worker-001", "reward-worker-000"]
    group = _group(run, "reward")
    assert (group.restarts, group.uncounted_restarts, group.replicas) == (0, 1, 1)


def test_one_that_leaves_is_taken_back_when_it_is_wanted_again() -> None:
    run = a_run().role("reward", Scorer, replicas=2).lasting("reward.score", 10.0).start()
    slow = run.step("reward", "score", ["by"], x=torch.zeros(2))
    _pump(run, until=2.0)
    run.controller.engine.scale_role("reward", 1)
    run.controller.engine.scale_role("reward", 2)
    slow.wait()
    assert _ranks(run) == [0, 1]
    assert len(run.simulated.hosts) == 2


def test_who_is_being_replaced_goes_first_and_a_rank_that_comes_back_is_another_attempt() -> None:
    run = a_run().role("reward", Scorer, replicas=2).starting_in(50.0).start()
    run.controller.engine.wait_ready()
    group = _group(run, "reward")
    run.controller.engine.recovery.restart([group.seats[0].process], HostDiedError("gone", reason=FailureReason.KILLED))
    run.controller.engine.scale_role("reward", 1)
    assert _ranks(run) == [1]
    run.controller.engine.scale_role("reward", 2)
    run.controller.engine.scale_role("reward", 2)
    _pump(run, until=200.0)
    assert _ranks(run) == [0, 1]
    assert group.seats[0].attempt > 1
    assert _score(run, rows=2)[1] == ["reward-worker-000", "reward-worker-001"]


def test_a_worker_that_cannot_be_added_is_given_up_and_the_others_go_on() -> None:
    class FailsLater(Scorer):
        made = 0

        def __init__(self) -> None:
            type(self).made += 1
            if type(self).made > 1:
                raise FileNotFoundError("the model is gone")

    run = a_run().role("reward", FailsLater).start()
    run.controller.engine.wait_ready()
    run.controller.engine.scale_role("reward", 2)
    assert len(_score(run)[0]) == 8
    (incident,) = run.seen.incidents
    assert (incident.worker, incident.counted) == ("reward-worker-001", False)
    assert "the model is gone" in incident.message
    assert _group(run, "reward").replicas == 1


@pytest.mark.parametrize(
    ("role", "replicas", "message"),
    [
        pytest.param("reward", 0, '`replicas` of role "reward" must be at least 1', id="below one"),
        pytest.param("actor", 2, "it has state, which `update` of its class changes", id="a role that is trained"),
        pytest.param("reward", 2, 'it shares its processes with "rule"', id="a role that others share"),
        pytest.param("rule", 2, 'it shares its processes with "reward"', id="a role that shares another's"),
    ],
)
def test_scaling_that_is_refused(role: str, replicas: int, message: str) -> None:
    run = a_run().role("actor", Counter).role("reward", Scorer).role("rule", Scorer, colocate_with="reward").start()
    with pytest.raises(ScalingRefusedError) as refused:
        run.controller.engine.scale_role(role, replicas)
    assert message in str(refused.value)
    assert run.controller.engine.scale_role(role, 1) == []  # what it has is always right


@pytest.mark.parametrize("change", ["restart_role", "expect_loss", "scale_role"])
def test_a_role_that_there_is_not(change: str) -> None:
    run = a_run().role("actor", Counter).start()
    arguments = {
        "restart_role": {"reason": ""},
        "expect_loss": {"reason": FailureReason.EVICTED, "seconds": 1.0},
        "scale_role": {"replicas": 1},
    }
    with pytest.raises(UnknownRoleError, match='there is no role "critic"; roles: "actor"'):
        getattr(run.controller.engine, change)("critic", **arguments[change])
    run.close()
    with pytest.raises(InterruptedRunError):
        getattr(run.controller.engine, change)("actor", **arguments[change])


# ---- pods


def _in_pods(pods: dict[str, list[str]], **options: object) -> tuple[RunBuilder, RolePods]:
    backend = RolePods(pods, **options)
    return a_run().on(lambda: backend).settings(job="ppo", state_location=STATE, spares=1), backend


def test_each_process_starts_in_its_own_roles_pods_and_no_spare_takes_a_place() -> None:
    builder, backend = _in_pods({})
    run = (
        builder.role("actor", Counter, gpus=2)
        .role("rule", Scorer, colocate_with="actor")
        .role("reward", Scorer)
        .start()
    )
    run.controller.engine.wait_ready()
    run.controller.engine.restart_role("actor", reason="")
    run.controller.engine.wait_ready()
    assert [(place.role, place.gpus) for place in backend.places] == [("actor", 2), ("reward", 0), ("actor", 2)]


def test_what_is_missing_is_said_with_where_to_look() -> None:
    builder, _ = _in_pods({"actor": ["a-0"], "reward": ["r-0"]}, start_seconds=30.0)
    run = (
        builder.role("actor", Counter)
        .role("rule", Scorer, colocate_with="actor")
        .role("reward", Scorer, replicas=2)
        .role("critic", Counter)
        .start()
    )
    _pump(run, until=12.0)
    look = "see `kubectl get pods -l rlhf.dev/job=ppo,rlhf.dev/role"
    assert run.controller.engine.waiting_for() == [
        'role "actor" is being loaded: actor-worker-000, for 12 s of at most 600 s',
        'role "rule" is being loaded: rule-worker-000, for 12 s of at most 600 s',
        f'role "reward" waits for its pods: 1 of 2 have joined Ray; {look}=reward`',
        f'role "critic" waits for its pod: it has not joined Ray; {look}=critic`',
    ]
    _pump(run, until=31.0)
    assert run.controller.engine.waiting_for() == []


def test_the_time_without_a_pod_does_not_count_as_loading() -> None:
    builder, backend = _in_pods({}, start_seconds=1000.0)
    run = builder.role("critic", Counter, start_timeout=100.0, max_restarts=0).start()
    _pump(run, until=500.0)
    assert _group(run, "critic").failed is None
    backend.pods["critic"] = ["c-0"]
    _pump(run, until=602.0)
    assert "`startTimeoutSeconds` (100 s)" in str(_group(run, "critic").failed)


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(["r-0", "r-1", "simulated"], ["r-0", "r-1"], id="all but the one that holds the worker"),
        pytest.param(["r-0", "r-1"], [], id="none while it is not clear which holds the worker"),
    ],
)
def test_the_pods_that_hold_no_worker_are_named_also_to_a_controller_that_did_not_scale(
    pods: list[str], want: list[str]
) -> None:
    builder, _ = _in_pods({"reward": pods})
    run = builder.role("reward", Scorer).start()
    assert run.controller.engine.scale_role("reward", 1) == []  # its worker may be on its way to any of them
    run.controller.engine.wait_ready()
    assert run.controller.engine.scale_role("reward", 1) == want
