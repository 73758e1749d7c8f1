"""What `rlhf status` shows, as pure functions from objects to what is printed; it fits 80 columns and uses 120."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlhf_api.enums import FailureReason
from rlhf_cli import job_view
from rlhf_cli.job_view import Object, RoleView
from rlhf_cli.render import duration

WIDEST = 120
_STYLES = {"Complete": "bold green", "Failed": "bold red", "Suspended": "yellow", "Degraded": "yellow"}
_LAST_EVENTS = 6
_LONGEST_BAR = 60
_LEFT = ("NAMESPACE", "NAME", "ALGORITHM", "STATE")
_LEFT_OUT_FIRST = ("HELD-OUT", "ALGORITHM", "RESTARTS", "REWARD", "ROLES")
_SO_FAR = re.compile(r"\bfor \d+ s of at most\b")
_TIME = re.compile(r"\b(?:\d+(?:\.\d+)?(?:ms|h|m|s))+\b|\b\d+(?:\.\d+)? (?:s|seconds?|minutes?|hours?)\b")
_LONG_WORK = re.compile(r": (\d+) of (\d+)\.")
_TOLD_PARTS = 4  # of a long piece of work, as in the controller's log


def age(seconds: float) -> str:
    """As kubectl writes it: `42s`, `4m32s`, `3h5m`, `12d`."""
    whole = max(0, int(seconds))
    for size, unit, smaller, small_unit, limit in ((86400, "d", 3600, "h", 8), (3600, "h", 60, "m", 10),
                                                   (60, "m", 1, "s", 10)):  # fmt: skip
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f"{rest}{small_unit}" if rest and whole // size < limit else "")
    return f"{whole}s"


def decimal(value: Any) -> str:
    """A decimal of status with three places; `-` where there is none."""
    try:
        return f"{float(value) + 0.0:.3f}"
    except (TypeError, ValueError):
        return "-"


def jobs_table(jobs: Sequence[Object], now: datetime, *, with_namespace: bool, width: int = WIDEST) -> Text:
    """Many jobs, a line for each, to be printed as they are.

    Where it is narrow, columns are left out; names are never broken, since they are there to be copied.
    """
    columns = {
        **({"NAMESPACE": [str(found["metadata"]["namespace"]) for found in jobs]} if with_namespace else {}),
        "NAME": [job_view.name_of(found) for found in jobs],
        "ALGORITHM": [str(found["spec"]["algorithm"]["name"]) for found in jobs],
        "STATE": [job_view.summary(found) for found in jobs],
        "STEP": ["{}/{}".format(*job_view.steps(found)) for found in jobs],
        "REWARD": [decimal(job_view.progress_of(found).get("reward")) for found in jobs],
        "HELD-OUT": [decimal(job_view.progress_of(found).get("evaluation")) for found in jobs],
        "ROLES": [job_view.replicas_ready(found) for found in jobs],
        "RESTARTS": [str(job_view.status_of(found).get("restarts") or 0) for found in jobs],
        "AGE": [age((now - job_view.created(found)).total_seconds()) for found in jobs],
    }
    for name in _LEFT_OUT_FIRST:
        if sum(max(map(len, [title, *cells])) + 2 for title, cells in columns.items()) - 2 > width:
            del columns[name]
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    text = Text(no_wrap=True, overflow="ignore")
    for number, row in enumerate(zip(*([name, *cells] for name, cells in columns.items()), strict=True)):
        text.append("\n" if number else "")
        for name, cell in zip(columns, row, strict=True):
            style = "bold" if number == 0 else _STYLES.get(cell, "") if name == "STATE" else ""
            text.append(cell.ljust(widths[name]) if name in _LEFT else cell.rjust(widths[name]), style=style)
            text.append("  ")
        text.rstrip()
    return text


def job(
    found: Object,
    *,
    now: datetime,
    width: int,
    pods: Sequence[Object] | None = (),
    events: Sequence[Object] | None = (),
    seconds_left: float | None = None,
    problem: str = "",
) -> RenderableType:
    """One job with its roles and last events.

    Args:
        found: The job.
        now: The time.
        width: Columns.
        pods: Its pods; None where they may not be read.
        events: The events about it; None likewise.
        seconds_left: A guess; None where it is too early.
        problem: Why what is shown may be old.
    """
    width = min(width, WIDEST)
    parts: list[RenderableType] = [_header(found, now), *_progress(found, width, seconds_left)]
    parts += [Text(note, style="yellow") for note in job_view.notes(found, now)]
    if problem:
        parts.append(Text(f"What is shown may be old: {problem}", style="yellow"))
    parts += [_condition(condition, now) for condition in job_view.important_conditions(found)]
    roles = job_view.roles(found, pods)
    parts += ["", role_table(roles, now, with_nodes=pods is not None)]
    if any(role.uncounted for role in roles):
        parts.append(Text("(+N): restarts that do not count against `maxRestarts`", style="dim"))
    parts += _failures(roles, now)
    if events:
        parts += ["", Text("EVENTS", style="bold"), event_table(events, now)]
    hidden = [name for name, objects in (("pods", pods), ("events", events)) if objects is None]
    if hidden:
        parts.append(Text(f"Not shown, since you may not list them: {' and '.join(hidden)}", style="dim"))
    return Group(*parts)


def _header(found: Object, now: datetime) -> Text:
    state = job_view.summary(found)
    metadata = found["metadata"]
    text = Text(f"{metadata.get('namespace', 'default')}/{metadata['name']}", style="bold")
    text.append(f"  {found['spec']['algorithm']['name']}", style="not bold")
    text.append(f"  {state}", style=_STYLES.get(state, "bold"))
    text.append(f"  {age((now - job_view.created(found)).total_seconds())} old", style="not bold dim")
    return text


def _progress(found: Object, width: int, seconds_left: float | None) -> list[RenderableType]:
    step, total = job_view.steps(found)
    progress = job_view.progress_of(found)
    numbers = [f"{name} {decimal(progress[key])}" for key, name in (("reward", "reward"), ("evaluation", "held-out"))
               if progress.get(key) is not None]  # fmt: skip
    left = [f"{duration(seconds_left)} left"] if seconds_left is not None and step < total else []
    lines: list[RenderableType] = [_bar(step, total, "  ".join(numbers + left), width)]
    more = []
    if progress.get("snapshotStep") is not None:
        more.append(f"last snapshot: step {progress['snapshotStep']}")
    if (ratio := progress.get("effectiveTrainingTimeRatio")) is not None:
        more.append(f"{float(ratio):.0%} of the time went into steps that count")
    if more:
        lines.append(Text("; ".join(more), style="dim"))
    return lines


def _bar(done: int, total: int, after: str, width: int) -> Text:
    before = f"step {done}/{total}"
    room = min(_LONGEST_BAR, max(6, width - len(before) - len(after) - 2))
    filled = room * min(done, total) // max(total, 1)
    text = Text(f"{before} ", style="bold")
    text.append("━" * filled, style="green")
    text.append("─" * (room - filled), style="not bold dim")
    return text.append(f" {after}", style="not bold")


def _condition(condition: Object, now: datetime) -> RenderableType:
    kind, holds = str(condition["type"]), condition["status"] == "True"
    style = _STYLES.get(kind, "green" if holds else "yellow") if holds or kind != "Suspended" else "yellow"
    since = job_view.moment(condition.get("lastTransitionTime"))
    text = Text(kind if holds else f"Not {kind}", style=style)
    # As long as this is so; its reason may have been another before.
    text.append(f" for {age((now - since).total_seconds())}" if since else "", style="dim")
    text.append(f": {condition.get('reason', '')}", style=style)
    message = str(condition.get("message") or "").strip()
    more = message.rstrip(".") != condition.get("reason")
    return Group(text, Padding(Text(message), (0, 0, 0, 2))) if message and more else text


def role_table(roles: Sequence[RoleView], now: datetime, *, with_nodes: bool = True) -> Table:
    """The roles, a line for each."""
    table = _table()
    table.add_column("ROLE", overflow="fold")
    table.add_column("TYPE", no_wrap=True)
    table.add_column("READY", justify="right", no_wrap=True)
    table.add_column("RESTARTS", justify="right", no_wrap=True)
    if with_nodes:
        table.add_column("NODES", overflow="fold")
    table.add_column("LAST FAILURE", overflow="fold")
    for role in roles:
        counts = f"{role.ready}/{role.desired}" if role.desired else "-"
        ready = Text(counts, style="" if role.ready >= role.desired else "yellow")
        nodes = [_nodes(role)] if with_nodes else []
        table.add_row(role.name, role.type, ready, _restarts(role), *nodes, _failure(role, now))
    return table


def _restarts(role: RoleView) -> str:
    return f"{role.restarts} (+{role.uncounted})" if role.uncounted else str(role.restarts)


def _nodes(role: RoleView) -> str:
    if role.host:
        return f"(with {role.host})"
    shown = ", ".join(role.nodes[:3])
    return f"{shown}, +{len(role.nodes) - 3}" if len(role.nodes) > 3 else shown or "-"


def _failure(role: RoleView, now: datetime) -> str:
    failure = role.failure
    if not failure or failure.get("reason") == FailureReason.DELETED_BY_USER:  # what somebody asked for is no failure
        return "-"
    time = job_view.moment(failure.get("time"))
    text = str(failure.get("reason") or "Unknown")
    if failure.get("exitCode") is not None:
        text += f" (exit code {failure['exitCode']})"
    return text + (f", {age((now - time).total_seconds())} ago" if time else "")


def _failures(roles: Sequence[RoleView], now: datetime) -> list[RenderableType]:
    """The last words of roles that are not whole, and when they are tried again."""
    lines: list[RenderableType] = []
    for role in roles:
        if role.ready >= role.desired:
            continue
        if role.next_restart and role.next_restart > now:
            wait = age((role.next_restart - now).total_seconds())
            lines.append(Text(f"{role.name}: restarts in {wait}", style="yellow"))
        failure = role.failure or {}
        message = str(failure.get("message") or "").strip()
        if message and failure.get("reason") != FailureReason.DELETED_BY_USER:
            last = message.splitlines()[-3:]
            lines.append(Text(f"{role.name} wrote at last:", style="yellow"))
            lines += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in last]
    return ["", *lines] if lines else []


def event_table(events: Sequence[Object], now: datetime, *, last: int = _LAST_EVENTS) -> Table:
    """The newest events, oldest first."""
    table = _table()
    table.show_header = False
    table.add_column("", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for event in job_view.events(events, last=last):
        style = "yellow" if event.type == "Warning" else ""
        times = f" (x{event.count})" if event.count > 1 else ""
        when = f"{age((now - event.time).total_seconds())} ago"
        table.add_row(when, Text(event.reason, style=style), f"{event.message}{times}")
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def change_line(found: Object) -> str:
    """A job's state as one plain line, for a log, without times that run while nothing happens."""
    step, total = job_view.steps(found)
    progress = job_view.progress_of(found)
    parts = [job_view.summary(found), f"step {step}/{total}"]
    parts += [f"{name} {decimal(progress[key])}" for key, name in (("reward", "reward"), ("evaluation", "held-out"))
              if progress.get(key) is not None]  # fmt: skip
    parts.append(f"roles {job_view.replicas_ready(found)}")
    if restarts := job_view.status_of(found).get("restarts"):
        parts.append(f"restarts {restarts}")
    reasons = [f"{condition['reason']}: {' '.join(str(condition.get('message') or '').split())}"
               for condition in job_view.important_conditions(found)
               if condition["type"] != "Running" or condition["status"] != "True"]  # fmt: skip
    return _SO_FAR.sub("for at most", "  ".join(parts + reasons))


def landmark(line: str) -> str:
    """What a line for a log says apart from times and small progress; worth a line of its own when it is another."""
    return _TIME.sub("some time", _LONG_WORK.sub(_part_done, line))


def _part_done(found: re.Match[str]) -> str:
    done, total = int(found[1]), int(found[2])
    return f": part {_TOLD_PARTS * done // max(total, 1)} of {_TOLD_PARTS}."
