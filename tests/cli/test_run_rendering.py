"""What a run looks like on a terminal of 80 columns, and in a log."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlhf_api.validation import load_job
from rlhf_cli import render
from rlhf_cli.progress import ConsoleReporter
from rlhf_cli.render import StepView, View
from rlhf_runtime.control.loop import StepRecord
from rlhf_runtime.job.summary import Outcome, RoleOutcome
from rlhf_runtime.resilience.incidents import Incident

ESCAPE = "\x1b"
JOB = load_job(
    (Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml").read_text(encoding="utf-8"), source="example"
)
STEP = StepView(
    step=12,
    total=40,
    seconds=1.234,
    metrics={"reward": 0.53112, "kl": -0.00002, "actor/loss": 0.1},
    rates={"samples_per_second": 212.4, "tokens_per_second": 4210.4},
    seconds_left=34.6,
)
INCIDENT = Incident(
    role="critic",
    worker="critic-worker-000",
    attempt=0,
    reason="Killed",
    message="the process was killed by signal 9",
    step="step 12.5 critic.update",
    pid=4711,
    pod="here",
    time=0.0,
)


def outcome(folder: Path, *, ran: bool = True) -> Outcome:
    roles = [
        RoleOutcome(
            name=name,
            type=kind,
            working_seconds=working,
            waiting_seconds=48.3 - working,
            restarts=restarts,
            peak_memory_bytes=memory,
        )
        for name, kind, working, restarts, memory in (
            ("actor", "Actor", 30.1, 0, 650 * 2**20),
            ("critic", "Critic", 12.0, 1, 1500 * 2**20),
            ("reference", "Reference", 0.0, 0, 0),
        )
    ]
    return Outcome(
        folder=folder,
        status="complete",
        steps=40,
        seconds=48.3,
        heldout_start=0.31,
        heldout_end=0.945,
        samples_per_second=212.0,
        roles=tuple(roles),
        ran=ran,
    )


def drawn(view: View, *, now: float = 10.0, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, legacy_windows=False)
    console.print(render.live(view, now, width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(*events: Callable[[ConsoleReporter], None], interactive: bool, clock: Clock | None = None) -> str:
    file = io.StringIO()
    with ConsoleReporter(file=file, interactive=interactive, clock=clock or Clock()) as reporter:
        for event in events:
            event(reporter)
    return file.getvalue()


def record(step: int, seconds: float = 1.0) -> StepRecord:
    return StepRecord(step=step, seconds=seconds, metrics={"reward": step / 40, "kl": 0.01})


class TestTheLivePart:
    def test_a_training_step_is_one_line_of_80_columns(self) -> None:
        (line,) = drawn(View(phase="Training", step=STEP, total=40))
        assert line.startswith("step 12/40 ")
        assert line.endswith("reward 0.531  KL 0.000  4,210 tokens/s  35 s left")
        assert len(line) <= 80

    @pytest.mark.parametrize("width", [40, 60, 80, 200])
    def test_no_line_is_wider_than_the_terminal_or_80_columns(self, width: int) -> None:
        views = [
            View(phase="Preparing data and models"),
            View(phase="Preparing", progress=("Making the model and its bad habit (cached afterwards)", 120, 300)),
            View(phase="Starting 4 roles", ready=("actor", "critic", "reward", "reference")),
            View(phase="Training", step=STEP, total=40),
        ]
        for view in views:
            assert all(len(line) <= min(width, 80) for line in drawn(view, width=width))

    def test_long_work_shows_how_far_it_is_and_for_how_long(self) -> None:
        text, bar = drawn(View(phase="x", since=4.0, progress=("Making the model", 150, 300)))
        assert text == "Making the model"
        assert bar.startswith("150/300 ") and bar.endswith("6.0 s")

    def test_roles_that_are_ready_are_named_while_the_others_start(self) -> None:
        (line,) = drawn(View(phase="Starting 4 roles", since=7.0, ready=("actor", "critic")))
        assert line.endswith("Starting 4 roles (actor, critic ready) ... 3 s")

    def test_a_worker_that_is_being_restored_is_shown_above_the_bar(self) -> None:
        lines = drawn(View(phase="Training", step=STEP, total=40, restoring=(INCIDENT,)))
        assert lines[0] == "critic-worker-000 died in step 12.5 critic.update: Killed; being restored ..."

    def test_that_it_is_being_restored_is_told_also_where_the_line_is_short(self) -> None:
        long = replace(INCIDENT, step="step 13.2 reference-model.compute_log_probs")
        lines = drawn(View(phase="Training", step=STEP, total=40, restoring=(long,)))
        assert lines[0] == "critic-worker-000: Killed; being restored ..."
        assert lines[1].startswith("step 12/40")


class TestLines:
    def test_a_step_shows_the_metrics_of_a_control_flow_without_reward(self) -> None:
        view = replace(STEP, metrics={"loss": 1.5, "margin": 0.25, "other": 3.0}, rates={}, seconds_left=None)
        assert render.step_line(view) == "step 12/40  loss 1.500  margin 0.250  1.23 s/step"

    @pytest.mark.parametrize(
        ("reason", "step", "want"),
        [
            ("Killed", "step 12.5 critic.update", "died in step 12.5 critic.update: Killed: "),
            ("Hang", "step 3.0 actor.generate", "hung in step 3.0 actor.generate: Hang: "),
            ("CUDAOutOfMemory", "step 3.0 actor.generate", "died in step 3.0 actor.generate: CUDAOutOfMemory: "),
            ("Exception", "step 3.0 actor.update", "raised in step 3.0 actor.update: Exception: "),
            ("Killed", "", "died between two steps: Killed: "),
        ],
    )
    def test_an_incident_says_who_where_and_why(self, reason: str, step: str, want: str) -> None:
        line = render.incident_line(replace(INCIDENT, reason=reason, step=step))
        assert line == f"critic-worker-000 (pid 4711) {want}the process was killed by signal 9"

    def test_an_evaluation(self) -> None:
        assert render.evaluation_line(0, {"heldout_accuracy": 0.31}) == "Held-out accuracy 0.310 before the first step"
        assert render.evaluation_line(20, {"heldout_accuracy": 0.9}) == "Held-out accuracy 0.900 after step 20"

    @pytest.mark.parametrize(
        ("seconds", "want"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (42.4, "42 s"), (65, "1:05"), (7400, "2:03:20")]
    )
    def test_durations(self, seconds: float, want: str) -> None:
        assert render.duration(seconds) == want

    @pytest.mark.parametrize(("size", "want"), [(0, "-"), (812 * 2**20, "812 MiB"), (int(1.44 * 2**30), "1.4 GiB")])
    def test_memory(self, size: int, want: str) -> None:
        assert render.memory(size) == want


class TestTheReport:
    def test_it_fits_80_columns_and_says_what_was_reached_and_where_it_lies(self, tmp_path: Path) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "summary.json").touch()
        text = told(lambda reporter: reporter.finish(outcome(tmp_path)), interactive=False)
        lines = [line.rstrip() for line in text.splitlines()]
        assert lines[:3] == ["Done", "40 steps in 48 s, 212 samples/s", "Held-out accuracy: 0.310 -> 0.945"]
        assert lines[4:8] == [
            "Role       Type       Working  Waiting  Share  Restarts  Peak memory",
            "actor      Actor       30.1 s   18.2 s    62%         0      650 MiB",
            "critic     Critic      12.0 s   36.3 s    25%         1      1.5 GiB",
            "reference  Reference    0.0 s   48.3 s     0%         0            -",
        ]
        assert lines[9] == f"Results are in {tmp_path}:"
        assert [line.split()[0] for line in lines[10:]] == ["summary.json", "model/"]

    def test_a_run_that_was_complete_before_says_how_to_start_anew(self, tmp_path: Path) -> None:
        text = told(lambda reporter: reporter.finish(outcome(tmp_path, ran=False)), interactive=False)
        assert text.startswith(f"This run was complete before: {tmp_path}. To run it anew: --fresh\n")


class TestALog:
    def test_it_has_no_escape_codes_and_a_line_every_few_steps(self) -> None:
        text = told(
            lambda reporter: reporter.begin(JOB, Path("runs/ppo-spelling")),
            lambda reporter: reporter.phase("Preparing data and models"),
            lambda reporter: [reporter.progress("Making the model", done, 300) for done in range(1, 301)] and None,
            lambda reporter: reporter.phase("Starting 4 roles"),
            lambda reporter: reporter.role_ready("actor", 1),
            lambda reporter: reporter.role_ready("reward", 2),
            lambda reporter: reporter.phase("Training"),
            lambda reporter: reporter.step(StepRecord(step=0, evaluation={"heldout_accuracy": 0.31}), {}),
            lambda reporter: [reporter.step(record(step), {}) for step in range(1, 41)] and None,
            interactive=False,
        )
        assert ESCAPE not in text and "\r" not in text
        assert text.splitlines() == [
            "ppo-spelling: PPO, 40 steps, 4 roles",
            "Preparing data and models ...",
            *[f"  Making the model: {done}/300" for done in (1, 75, 150, 225, 300)],
            "Starting 4 roles ...",
            "  actor is ready",
            "  reward is ready (2 workers)",
            "Training ...",
            "Held-out accuracy 0.310 before the first step",
            "step  1/40  reward 0.025  KL 0.010  1.00 s/step",
            *[
                f"step {step:>2}/40  reward {step / 40:.3f}  KL 0.010  1.00 s/step"
                + (f"  {render.duration(40 - step)} left" if step < 40 else "")
                for step in range(4, 41, 4)
            ],
        ]

    def test_a_slow_run_is_never_silent_for_long(self) -> None:
        clock = Clock()

        def slow_steps(reporter: ConsoleReporter) -> None:
            reporter.begin(JOB, Path("runs"))
            for step in (1, 2, 3):
                clock.now += 20.0
                reporter.step(record(step, 20.0), {})

        assert len(re.findall("^step", told(slow_steps, interactive=False, clock=clock), re.M)) == 3

    def test_an_incident_is_told_at_once_and_its_end_when_it_comes(self) -> None:
        incident = replace(INCIDENT, message="a long cause" * 10)
        text = told(
            lambda reporter: reporter.incident(incident),
            lambda reporter: reporter.recovered("critic-worker-000", 0.42),
            interactive=False,
        )
        first, second = text.splitlines()
        assert first == render.incident_line(incident)
        assert second == "critic-worker-000 restored in 0.4 s"


class TestATerminal:
    def test_an_incident_becomes_one_line_with_its_end(self) -> None:
        text = told(
            lambda reporter: reporter.incident(replace(INCIDENT, message="signal 9")),
            lambda reporter: reporter.recovered("critic-worker-000", 0.42),
            interactive=True,
        )
        line = "critic-worker-000 (pid 4711) died in step 12.5 critic.update: Killed: signal 9;"
        assert line in text
        assert "restored in 0.4 s" in text

    def test_an_incident_that_is_not_over_at_the_end_stays_on_the_screen(self) -> None:
        text = told(lambda reporter: reporter.incident(replace(INCIDENT, message="x")), interactive=True)
        assert text.rstrip().endswith("died in step 12.5 critic.update: Killed: x")

    def test_phases_stay_with_the_time_they_took(self) -> None:
        clock = Clock()

        def phases(reporter: ConsoleReporter) -> None:
            reporter.phase("Loading torch")
            clock.now += 3.2
            reporter.phase("Starting 4 roles")

        assert "Loading torch: 3.2 s" in told(phases, interactive=True, clock=clock)

    def test_a_file_is_not_taken_for_a_terminal_whatever_the_environment_says(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        file = io.StringIO()
        with ConsoleReporter(file=file) as reporter:
            reporter.phase("Loading torch")
        assert file.getvalue() == "Loading torch ...\n"

    def test_quiet_prints_nothing(self, tmp_path: Path) -> None:
        file = io.StringIO()
        with ConsoleReporter(file=file, quiet=True, interactive=True) as reporter:
            reporter.begin(JOB, tmp_path)
            reporter.phase("Training")
            reporter.step(record(1), {})
            reporter.incident(INCIDENT)
            reporter.finish(outcome(tmp_path))
        assert file.getvalue() == ""
