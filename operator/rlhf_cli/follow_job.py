"""A job until something is true of it: live on a terminal, a line for each change elsewhere.

The main thread watches; on a terminal a second one of `rich` draws what is known, so that times go on while nothing
happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from rlhf_api import KIND
from rlhf_cli import job_view, render_job, terminal
from rlhf_cli.cluster.errors import UnreachableError, WaitTimeoutError
from rlhf_cli.cluster.watching import Seen, watch
from rlhf_cli.options import FAILED
from rlhf_cli.pace import Pace
from rlhf_cli.program import next_command
from rlhf_cli.show import surroundings

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object

_SURROUNDINGS_SECONDS = 5.0


def follow(cluster: Cluster, name: str) -> int:
    """Show a job until it ends; gives the exit code."""
    return _end(_Watcher(cluster, name).until(lambda job: job_view.end_of(job) is not None), name)


def _end(job: Object | None, name: str) -> int:
    if job is None:
        click.echo(f"{KIND}/{name} was deleted", err=True)
        return FAILED
    end = job_view.end_of(job)
    message = str(job_view.conditions(job)[end or "Failed"].get("message") or "")
    click.echo(f"{KIND}/{name} {'is complete' if end == 'Complete' else 'failed'}: {message}", err=end != "Complete")
    if end != "Complete":
        click.echo(f"Its controller's log: {next_command('logs', name)}", err=True)
        return FAILED
    return 0


def wait_for(
    cluster: Cluster, name: str, until: Callable[[Object], bool], *, timeout: float, what: str
) -> Object | None:
    """Show a job until something holds; gives it, or None when it was deleted.

    Raises:
        WaitTimeoutError: It does not hold in time.
        ClusterError: The API server refuses, or does not answer any more.
    """
    return _Watcher(cluster, name, timeout=timeout, what=what).until(until)


@dataclass(slots=True)
class _Known:
    """What is drawn; replaced as a whole, so that no lock is needed."""

    job: Object
    pods: list[Object] | None
    events: list[Object] | None
    problem: str


class _Watcher:
    def __init__(self, cluster: Cluster, name: str, *, timeout: float | None = None, what: str = "") -> None:
        self._cluster, self._name = cluster, name
        self._console = terminal.console()
        self._pace = Pace()
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._what = what
        self._known: _Known | None = None
        self._read_at = float("-inf")
        self._landmark = ""

    def until(self, holds: Callable[[Object], bool]) -> Object | None:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return self._look(holds)
        live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=4, transient=False,
                    redirect_stdout=False, redirect_stderr=False, vertical_overflow="crop")  # fmt: skip
        with live:
            return self._look(holds)

    def _look(self, holds: Callable[[Object], bool]) -> Object | None:
        for seen in watch(self._cluster, self._name, deadline=self._deadline):
            if seen.job is None:
                return None
            self._learn(seen, seen.job)
            if holds(seen.job):
                return seen.job
            if self._deadline is not None and time.monotonic() >= self._deadline:
                break
        raise WaitTimeoutError(
            f"{self._what} did not happen in time; it goes on without this command, see: "
            f"{next_command('status', self._name, '--watch')}"
        )

    def _learn(self, seen: Seen, job: Object) -> None:
        self._pace.saw(job_view.steps(job)[0], time.monotonic())
        if not self._console.is_terminal:
            self._tell(job, seen.problem)
            return
        known = self._known
        pods, events = (known.pods, known.events) if known else ([], [])
        if not seen.problem and time.monotonic() - self._read_at > _SURROUNDINGS_SECONDS:
            self._read_at = time.monotonic()
            try:
                pods, events = surroundings(self._cluster, job)
            except UnreachableError as error:
                seen = Seen(job=job, problem=str(error))
        self._known = _Known(job=job, pods=pods, events=events, problem=seen.problem)

    def _tell(self, job: Object, problem: str) -> None:
        line = problem or render_job.change_line(job)
        if (landmark := render_job.landmark(line)) != self._landmark:
            self._landmark = landmark
            self._console.print(Text(f"{terminal.now():%H:%M:%S}  {line}"), soft_wrap=True)

    def _draw(self) -> RenderableType:
        known = self._known
        if known is None:
            return Text(f"{self._name} ...")
        total = job_view.steps(known.job)[1]
        return render_job.job(
            known.job, now=terminal.now(), width=self._console.width, pods=known.pods, events=known.events,
            seconds_left=self._pace.seconds_left(total, time.monotonic()), problem=known.problem,
        )  # fmt: skip
