"""What `rlhf status` draws, against kept text; see `golden_views` for how to renew it."""

import cluster_jobs as cases
import golden_views
import pytest

from rlhf_cli import job_view, render_job
from rlhf_cli.pace import Pace


@pytest.mark.parametrize("width", golden_views.WIDTHS)
@pytest.mark.parametrize("name", golden_views.VIEWS)
def test_a_view_is_as_it_was_kept(name: str, width: int) -> None:
    text = golden_views.drawn(name, width)
    assert text == golden_views.path(name, width).read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 100, 300])
def test_one_job_fits_any_terminal(width: int) -> None:
    for name in ("training", "waiting", "complete"):
        assert max(map(len, golden_views.drawn(name, width).splitlines())) <= width


def test_a_name_is_never_broken_however_narrow_the_terminal() -> None:
    assert "a-name-of-exactly-forty-characters-long" in golden_views.drawn("table-all", 40)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0s"), (-5, "0s"), (59.9, "59s"), (60, "1m"), (272, "4m32s"), (660, "11m"), (3600, "1h"), (11100, "3h5m"),
     (86400 * 2 + 3600, "2d1h"), (86400 * 30 + 3600, "30d")],
)  # fmt: skip
def test_an_age_has_two_units_at_most(seconds: float, want: str) -> None:
    assert render_job.age(seconds) == want


class TestImportantConditions:
    def test_an_end_is_all_that_counts(self) -> None:
        assert [found["type"] for found in job_view.important_conditions(cases.complete())] == ["Complete"]

    def test_what_hinders_a_job_comes_without_what_is_well(self) -> None:
        assert [found["type"] for found in job_view.important_conditions(cases.waiting())] == ["RolesReady"]

    def test_a_degraded_job_says_so_before_that_it_trains(self) -> None:
        job = cases.training()
        job["status"]["conditions"].append(cases.condition("Degraded", "True", "RoleDegraded"))
        assert [found["type"] for found in job_view.important_conditions(job)] == ["Degraded", "Running"]

    def test_a_suspension_on_its_way_is_shown(self) -> None:
        job = cases.training()
        job["status"]["conditions"].append(cases.condition("Suspended", "False", "Suspending", "Saves step 12."))
        assert [found["reason"] for found in job_view.important_conditions(job)] == ["Suspending"]

    def test_a_lost_controller_is_shown_beside_what_hinders(self) -> None:
        job = cases.waiting()
        job["status"]["conditions"][2]["reason"] = "ControllerLost"
        assert [found["reason"] for found in job_view.important_conditions(job)] == ["Unschedulable", "ControllerLost"]

    def test_a_controller_that_the_summary_speaks_of_is_shown_and_one_that_waits_is_not(self) -> None:
        job = cases.waiting()
        job["status"]["conditions"][1:] = [
            cases.condition("RolesReady", "False", "LoadingModels"),
            cases.condition("Running", "False", "Unschedulable", "controller: no node"),
        ]
        assert [found["type"] for found in job_view.important_conditions(job)] == ["RolesReady"]
        job["status"]["summary"] = "Unschedulable"
        assert [found["type"] for found in job_view.important_conditions(job)] == ["RolesReady", "Running"]


class TestNotes:
    def test_a_change_that_was_not_seen_yet_is_told(self) -> None:
        job = cases.training()
        job["metadata"]["generation"] = 2
        assert job_view.notes(job, cases.NOW) == ["The operator has not acted on the last change yet."]

    def test_a_job_of_another_controller_is_told(self) -> None:
        job = cases.job()
        job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
        assert "kueue.x-k8s.io/multikueue" in job_view.notes(job, cases.NOW)[0]

    def test_a_running_job_needs_none(self) -> None:
        assert job_view.notes(cases.training(), cases.NOW) == []


class TestPace:
    def test_one_step_is_too_few_for_a_guess(self) -> None:
        pace = Pace()
        pace.saw(3, 10.0)
        pace.saw(3, 20.0)
        assert pace.seconds_left(40, 20.0) is None

    def test_the_guess_runs_down_while_a_step_is_under_way(self) -> None:
        pace = Pace()
        pace.saw(10, 0.0)
        pace.saw(15, 10.0)
        assert pace.seconds_left(40, 10.0) == 50.0
        assert pace.seconds_left(40, 11.5) == 48.5

    def test_a_step_that_is_lower_begins_anew(self) -> None:
        pace = Pace()
        for step, at in ((10, 0.0), (20, 100.0), (12, 300.0), (13, 301.0)):
            pace.saw(step, at)
        assert pace.seconds_left(40, 301.0) == 27.0


def test_lines_for_a_log_carry_numbers_and_what_hinders() -> None:
    assert render_job.change_line(cases.training()) == (
        "Training  step 12/40  reward 0.531  held-out 0.310  roles 4/4  restarts 1"
    )
    line = render_job.change_line(cases.waiting())
    assert line.startswith('Starting  step 0/40  roles 3/4  Unschedulable: role "critic": 0 of 1 pods are placed')


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ("loaded, for 3 s of 1800 s", "loaded, for 4 s of 1800 s", True),
        ("back-off 10s restarting", "back-off 1m20s restarting", True),
        ("step 1/40  roles 4/4", "step 2/40  roles 4/4", False),
        ("roles 3/4", "roles 4/4", False),
        ('Ready pods: "reward" 1/3.', 'Ready pods: "reward" 2/3.', False),
        ("0 of 2 pods are placed", "1 of 2 pods are placed", False),
        ("Making the model: 1 of 300.", "Making the model: 74 of 300.", True),
        ("Making the model: 74 of 300.", "Making the model: 75 of 300.", False),
    ],
    ids=["elapsed seconds", "a back-off", "a step", "ready roles", "ready pods", "placed pods", "a little of long work",
         "a quarter of long work"],
)  # fmt: skip
def test_a_line_is_worth_another_when_more_than_time_has_passed(before: str, after: str, want: bool) -> None:
    assert (render_job.landmark(before) == render_job.landmark(after)) is want
