"""What `rlhf run` shows, as pure functions from what is known to what is printed; it fits 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rlhf_runtime.job.summary import Outcome
    from rlhf_runtime.resilience.incidents import Incident

WIDTH = 80
_SPINNER = "|/-\\"
_FILES = (
    ("summary.json", "the outcome in numbers"),
    ("metrics.jsonl", "one line per step and evaluation"),
    ("learning_curve.png", "reward, KL and held-out accuracy over the steps"),
    ("model/", "the trained model, as `transformers` loads it"),
    ("events.jsonl", "every call of every role: times, bytes, place; incidents"),
    ("logs/", "what each worker printed"),
    ("state/", "what a run needs to go on: commits, snapshots, update logs"),
)
_VERBS = {"Hang": "hung", "MethodTimeout": "did not answer", "Exception": "raised"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One training step as it is shown. `seconds_left` is a guess; None: too early to tell."""

    step: int
    total: int
    seconds: float
    metrics: Mapping[str, float]
    rates: Mapping[str, float]
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a terminal shows below the lines that stay.

    Attributes:
        phase: What is being done.
        since: When it began, on the clock that `live` is given.
        progress: Text, done and total of a long piece of work.
        ready: Roles that are ready, while they start.
        step: The last step, while training.
        total: Steps in all.
        restoring: Incidents whose workers are not back yet.
    """

    phase: str = ""
    since: float = 0.0
    progress: tuple[str, int, int] | None = None
    ready: tuple[str, ...] = ()
    step: StepView | None = None
    total: int = 0
    restoring: tuple[Incident, ...] = field(default=())


def live(view: View, now: float, width: int) -> RenderableType:
    """The part of the screen that is drawn again and again."""
    width = min(width, WIDTH)
    lines: list[RenderableType] = [_restoring(incident) for incident in view.restoring]
    if view.step is not None:
        shown = Text(f"step {view.step.step}/{view.step.total}", style="bold")
        lines.append(_bar(shown, view.step.step, view.step.total, _numbers(view.step, seconds=False), width))
    elif view.progress is not None:
        text, done, total = view.progress
        lines.append(Text(text, overflow="ellipsis", no_wrap=True))
        lines.append(_bar(Text(f"{done}/{total}"), done, total, duration(now - view.since), width))
    elif view.phase:
        spinner = _SPINNER[int(now * 6) % len(_SPINNER)]
        ready = f" ({', '.join(view.ready)} ready)" if view.ready else ""
        text = f"{spinner} {view.phase}{ready} ... {now - view.since:.0f} s"
        lines.append(Text(text, overflow="ellipsis", no_wrap=True))
    return Group(*lines)


def _restoring(incident: Incident) -> Text:
    text = f"{incident.worker} {_happened(incident)}: {incident.reason}; being restored ..."
    if len(text) > WIDTH:  # what matters stands at the end
        text = f"{incident.worker}: {incident.reason}; being restored ..."
    return Text(text, style="yellow", overflow="ellipsis", no_wrap=True)


def _bar(before: Text, done: int, total: int, after: str, width: int) -> Table:
    row = Table.grid(padding=(0, 1), pad_edge=False)
    row.add_column(no_wrap=True)
    row.add_column()
    row.add_column(no_wrap=True)
    room = max(6, width - before.cell_len - len(after) - 3)
    row.add_row(before, ProgressBar(total=max(total, 1), completed=done, width=room), after)
    return row


def step_line(view: StepView) -> str:
    """A training step as one plain line."""
    return f"step {view.step:>{len(str(view.total))}}/{view.total}  {_numbers(view, seconds=True)}"


def _numbers(view: StepView, *, seconds: bool) -> str:
    metrics = view.metrics
    known = [name for name in ("reward", "kl") if name in metrics] or list(metrics)[:2]
    parts = [f"{'KL' if name == 'kl' else name} {round(metrics[name], 3) + 0.0:.3f}" for name in known]  # no -0.000
    for name, unit in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        if name in view.rates:
            parts.append(f"{view.rates[name]:,.0f} {unit}")
            break
    if seconds:
        parts.append(f"{view.seconds:.2f} s/step")
    if view.seconds_left is not None and view.step < view.total:
        parts.append(f"{duration(view.seconds_left)} left")
    return "  ".join(parts)


def evaluation_line(step: int, evaluation: Mapping[str, float]) -> str:
    """The result of an evaluation."""
    when = f"after step {step}" if step else "before the first step"
    results = ", ".join(f"{name.replace('heldout', 'held-out').replace('_', ' ')} {value:.3f}"
                        for name, value in evaluation.items())  # fmt: skip
    return f"{results[:1].upper()}{results[1:]} {when}"


def incident_line(incident: Incident) -> str:
    """What happened to a worker, where and why."""
    return f"{incident.worker} (pid {incident.pid}) {_happened(incident)}: {incident.reason}: {incident.message}"


def _happened(incident: Incident) -> str:
    where = f"in {incident.step}" if incident.step else "between two steps"
    return f"{_VERBS.get(incident.reason, 'died')} {where}"


def report(outcome: Outcome) -> list[RenderableType]:
    """The end of a complete run: what was reached, what each role did, and where the results lie."""
    parts: list[RenderableType] = []
    done = f"{outcome.steps} steps in {duration(outcome.seconds)}"
    if outcome.samples_per_second:
        done += f", {outcome.samples_per_second:,.0f} samples/s"
    parts.append(Text(done))
    if outcome.heldout_end is not None:
        start = "?" if outcome.heldout_start is None else f"{outcome.heldout_start:.3f}"
        parts.append(Text(f"Held-out accuracy: {start} -> {outcome.heldout_end:.3f}", style="bold green"))
    if outcome.roles:
        parts += [Text(), role_table(outcome)]
    parts += [Text(), Text(f"Results are in {outcome.folder}:", style="bold")]
    parts += [Text(f"  {name:<20}{what}") for name, what in _FILES if (outcome.folder / name).exists()]
    return parts


def role_table(outcome: Outcome) -> Table:
    """How each role spent its time, what it suffered and needed."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Role", overflow="fold")
    table.add_column("Type")
    for name in ("Working", "Waiting", "Share", "Restarts", "Peak memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for role in outcome.roles:
        wall = role.working_seconds + role.waiting_seconds
        table.add_row(
            role.name,
            role.type,
            f"{role.working_seconds:.1f} s",
            f"{role.waiting_seconds:.1f} s",
            f"{role.working_seconds / wall:.0%}" if wall else "-",
            str(role.restarts),
            memory(role.peak_memory_bytes),
        )
    return table


def duration(seconds: float) -> str:
    """`4.2 s`, `1:05` or `2:03:20`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def memory(size: int) -> str:
    """`812 MiB` or `1.4 GiB`; `-` where it is not known."""
    if size <= 0:
        return "-"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
