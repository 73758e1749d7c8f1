"""What the status shows while a job trains: progress, deaths, counts; and what is told as events."""

from dataclasses import replace
from datetime import timedelta

import pytest
from planning_builders import a_job
from small_cluster import SmallCluster

from rlhf_api.ending import Ending, EndingOutcome
from rlhf_api.formats import decimal
from rlhf_api.reasons import ConditionReason
from rlhf_api.types.status import Progress
from rlhf_operator.planning.course import Course, Stage
from rlhf_operator.planning.reconcile import plan
from rlhf_operator.planning.seen import look
from rlhf_operator.planning.snapshot import Incident, RoleReport
from rlhf_operator.planning.status import progress

LONG = {"algorithm": {"name": "PPO", "totalSteps": 1000, "ppo": {}}}


def training(**job):
    return SmallCluster(a_job(**{**LONG, **job})).run_until(lambda cluster: cluster.summary == "Training")


def told(cluster, **changes):
    """The plan when the controller's report is different in something."""
    snapshot = cluster.look()
    return plan(replace(snapshot, report=replace(snapshot.report, **changes)), cluster.settings)


def death(cluster, **changes):
    facts = {"id": "1", "role": "critic", "rank": 1, "reason": "HostOutOfMemory", "exit_code": 137, "pod": "critic-x"}
    facts |= {"node": "node-critic", "time": cluster.now, "message": "loading\nout of memory", "step": 7}
    return Incident(**{**facts, **changes})


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, None),
        (0.5, "0.5000"),
        (-1.23456, "-1.2346"),
        (123.456, "123.456"),
        (-123456.7, "-123457"),
        (12345678.0, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_fractions_are_short_text(value, want):
    assert decimal(value) == want


def test_progress_is_written_seldom():
    cluster = training()
    first = cluster.job.status.progress
    assert told(cluster, step=first.step + 3).status.progress == first
    cluster.now += timedelta(seconds=11)
    assert told(cluster, step=first.step + 3).status.progress.step == first.step + 3


def test_the_last_progress_is_written_at_once():
    cluster = training(algorithm={"name": "PPO", "totalSteps": 12, "ppo": {}})
    cluster.run_until(lambda cluster: cluster.summary == "Complete")
    assert cluster.job.status.progress.step == 12
    assert cluster.job.status.progress.time is not None


def test_a_death_is_told_once_with_role_rank_pod_node_cause_and_step():
    cluster = training()
    roles = [RoleReport(name="critic", desired=1, ready=0, restarts=1)]
    planned = told(cluster, incidents=[death(cluster)], roles=roles)
    (event,) = [event for event in planned.events if event.reason == "RoleRestarted"]
    for words in ('"critic" rank 1', '"critic-x"', '"node-critic"', "step 7", "HostOutOfMemory, exit code 137"):
        assert words in event.message
    assert event.message.endswith("out of memory") and event.key == "incident/1"
    row = next(row for row in planned.status.roles if row.name == "critic")
    assert (row.restarts, row.ready, row.last_failure.reason, row.last_failure.rank) == (1, 0, "HostOutOfMemory", 1)
    assert planned.status.restarts == 1 and planned.status.roles_ready == "3/4"
    assert planned.status.summary == "Recovering"
    cluster.job = cluster.job.model_copy(update={"status": planned.status})
    again = told(cluster, incidents=[death(cluster)], roles=roles)
    assert not [event for event in again.events if event.reason == "RoleRestarted"]


def test_a_restart_that_was_asked_for_is_no_warning_and_names_only_what_is_known():
    cluster = training()
    planned = told(cluster, incidents=[death(cluster, reason="DeletedByUser", pod="", node="", counted=False)])
    (event,) = [event for event in planned.events if event.reason == "RoleRestarted"]
    assert event.type == "Normal" and event.message.startswith('Role "critic" rank 1 ended at step 7 (DeletedByUser')


def test_a_death_that_is_not_counted_says_so():
    cluster = training()
    planned = told(cluster, incidents=[death(cluster, counted=False, exit_code=None)])
    (event,) = [event for event in planned.events if event.reason == "RoleRestarted"]
    assert "(HostOutOfMemory; not counted)" in event.message


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"reason": "SomethingNew"}, id="a reason of a newer runtime"),
        pytest.param({"exit_code": -9}, id="a negative exit code"),
        pytest.param({"message": "x" * 100_000}, id="an endless message"),
        pytest.param({"pod": "", "node": ""}, id="no pod known"),
        pytest.param({"role": "nobody"}, id="a role that is not there"),
    ],
)
def test_odd_deaths_do_not_break_the_status(changes):
    cluster = training()
    planned = told(cluster, incidents=[death(cluster, **changes)])
    assert planned.status.model_validate_json(planned.status.model_dump_json(by_alias=True)) == planned.status


def test_counts_never_go_back_when_a_new_controller_begins_from_zero():
    cluster = training()
    planned = told(cluster, roles=[RoleReport(name="critic", desired=1, ready=1, restarts=4)])
    cluster.job = cluster.job.model_copy(update={"status": planned.status})
    assert told(cluster, roles=[RoleReport(name="critic", desired=1, ready=1)]).status.restarts == 4


def test_the_step_never_goes_back_while_a_new_controller_reads_where_the_last_one_was():
    cluster = training()
    cluster.run(30)
    before = cluster.job.status.progress
    assert before.step > 0
    cluster.now += timedelta(seconds=60)
    planned = told(cluster, step=0, phase="WAITING_FOR_PLACES")
    assert planned.status.progress == before
    assert told(cluster, step=before.step - 1, phase="TRAINING").status.progress.step == before.step - 1


def test_a_controller_that_ends_while_it_loads_takes_no_step_back():
    cluster = training()
    cluster.run(30)
    before = cluster.job.status.progress
    assert before.step > 0
    lost = Ending(
        outcome=EndingOutcome.INTERRUPTED,
        reason=ConditionReason.HEAD_LOST,
        progress=Progress(step=0, total_steps=1000),
    )
    assert progress(look(cluster.look(), cluster.settings), Course(stage=Stage.WORKING, ending=lost)) == before


def test_what_a_new_controller_does_not_know_yet_stays_known():
    cluster = training()
    cluster.run(30)
    cluster.now += timedelta(seconds=60)
    known = Progress(step=4, total_steps=1000, reward="0.7310", evaluation="0.2930", snapshot_step=4)
    cluster.job = cluster.job.model_copy(update={"status": cluster.job.status.model_copy(update={"progress": known})})
    nothing = {"reward": None, "evaluation": None, "snapshot_step": None, "phase": "TRAINING"}
    same = told(cluster, step=4, **nothing).status.progress
    assert (same.reward, same.evaluation, same.snapshot_step) == ("0.7310", "0.2930", 4)
    later = told(cluster, step=5, **nothing).status.progress
    assert (later.reward, later.evaluation, later.snapshot_step) == (None, "0.2930", 4)


def test_a_condition_keeps_its_time_while_its_status_stays():
    cluster = training()
    times = {found.type: found.last_transition_time for found in cluster.job.status.conditions}
    cluster.run(5)
    assert {found.type: found.last_transition_time for found in cluster.job.status.conditions} == times
    cluster.edit(roles={"reward": {"replicas": 2}}).reconcile()
    assert {found.observed_generation for found in cluster.job.status.conditions} == {2}
    assert cluster.job.status.observed_generation == 2


def test_a_colocated_role_is_counted_with_the_pods_it_lives_in():
    colocated = {"nodePool": None, "colocateWith": "actor"}
    cluster = training(roles={"reference": colocated})
    assert cluster.row("reference").desired == cluster.row("reference").ready == 1
    assert "reference" not in cluster.made_pods and cluster.job.status.roles_ready == "4/4"


def test_several_pods_for_each_replica_are_all_counted():
    cluster = SmallCluster(a_job(**LONG, roles={"actor": {"podsPerReplica": 2}}))
    cluster.run_until(lambda cluster: len(cluster.living("actor")) == 2)
    cluster.run_until(lambda cluster: cluster.summary == "Training")
    assert (cluster.row("actor").desired, cluster.row("actor").ready) == (2, 2)


def test_what_auto_stands_for_is_shown_and_outlives_the_controller():
    cluster = training()
    assert cluster.row("critic").class_name == "package:Worker"
    cluster.reachable = False
    cluster.run(2)
    assert cluster.row("critic").class_name == "package:Worker"


def test_looking_again_is_for_deadlines_and_progress():
    cluster = training(activeDeadlineSeconds=1000)
    assert cluster.plan().wake_in == 10.0
    cluster.settings = replace(cluster.settings, progress_seconds=2000.0)
    assert 990 < cluster.plan().wake_in <= 1000


def test_a_controller_that_has_not_answered_for_a_minute_is_told_of():
    cluster = training(**LONG)
    cluster.reachable = False
    cluster.run(30)
    assert cluster.message("Running") == "Training."
    cluster.run(60)
    assert cluster.condition("Running")[0] == "True"
    assert "does not answer the operator since" in cluster.message("Running")
    cluster.reachable = True
    cluster.run(1)
    assert cluster.message("Running") == "Training."
