"""A run's progress on a terminal, or as plain lines in a file or a CI log.

On a terminal the lower lines move: what is being done, a bar, incidents that are not over. What is worth keeping is
printed above them. Elsewhere the same things are plain lines, a training step every few steps.

The runtime calls from two threads. What is shown is one frozen `View` that each call replaces; it is drawn by a third
thread, which takes no lock of ours, so that nothing can wait for each other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from rlhf_cli import render
from rlhf_cli.render import StepView, View
from rlhf_runtime.job.reporter import Reporter

if TYPE_CHECKING:
    from rlhf_api.types import RLHFJob
    from rlhf_runtime.control.loop import StepRecord
    from rlhf_runtime.job.summary import Outcome
    from rlhf_runtime.resilience.incidents import Incident

_LINES_PER_RUN = 10
_LONGEST_SILENCE = 15.0
_SHOW_CURSOR = b"\x1b[?25h\n"


class ConsoleReporter(Reporter):
    """Draws a run; a context manager, since a terminal must be given back as it was.

    Args:
        quiet: Print nothing.
        file: Where to print; by default standard output.
        clock: Seconds that only go forward.
        interactive: Whether lines may be drawn again; by default whether `file` is a terminal.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        interactive: bool | None = None,
    ) -> None:
        file = file or sys.stdout
        is_terminal = file.isatty() if interactive is None else interactive
        options: dict[str, Any] = {} if is_terminal else {"force_terminal": False, "color_system": None}
        self._console = Console(file=file, quiet=quiet, highlight=False, markup=False, emoji=False, **options)
        self._interactive = is_terminal and not quiet and not self._console.is_dumb_terminal
        self._clock = clock
        self._lock = threading.Lock()
        self._view = View()
        self._seconds: deque[float] = deque(maxlen=10)
        self._quarter = -1
        self._printed_at = -_LONGEST_SILENCE
        self._live: Live | None = None
        self.last_step = 0

    def __enter__(self) -> ConsoleReporter:
        if self._interactive:
            self._live = Live(
                get_renderable=self._draw, console=self._console, refresh_per_second=6, transient=True,
                redirect_stderr=False, redirect_stdout=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Give the terminal back; what was still moving is gone, incidents that were not over stay."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
            for incident in self._view.restoring:
                self._print(render.incident_line(incident), style="yellow")

    def restore_terminal(self) -> None:
        """What must be done in a signal's handler before the process ends: no locks, no buffers."""
        if self._interactive:
            os.write(self._console.file.fileno(), _SHOW_CURSOR)

    def begin(self, job: RLHFJob, folder: Path) -> None:
        """Say what is run."""
        total = job.spec.algorithm.total_steps
        self._change(total=total)
        roles = len(job.spec.roles)
        self._print(
            f"{job.name}: {job.spec.algorithm.name.value}, {_count(total, 'step')}, {_count(roles, 'role')}",
            style="bold",
        )

    def finish(self, outcome: Outcome) -> None:
        """Print the end of a complete run."""
        self._end_phase()
        self.stop()
        if outcome.ran:
            self._print("Done", style="bold green")
        else:
            self._print(f"This run was complete before: {outcome.folder}. To run it anew: --fresh", style="bold")
        for part in render.report(outcome):
            self._print(part)

    def phase(self, text: str) -> None:
        """See `Reporter`."""
        self._end_phase()
        self._change(phase=text, since=self._clock(), progress=None, ready=(), step=None)
        self._quarter = -1
        if not self._interactive:
            self._print(f"{text} ...")

    def progress(self, text: str, done: int, total: int) -> None:
        """See `Reporter`."""
        shown = self._view.progress
        if shown is None or shown[0] != text:
            self._quarter = -1
            self._change(since=self._clock())
        self._change(progress=(text, done, total))
        quarter = 4 * done // max(total, 1)
        if not self._interactive and quarter > self._quarter:
            self._print(f"  {text}: {done}/{total}")
        self._quarter = max(quarter, self._quarter)

    def role_ready(self, role: str, workers: int) -> None:
        """See `Reporter`."""
        self._change(ready=(*self._view.ready, role))
        if not self._interactive:
            self._print(f"  {role} is ready" + (f" ({workers} workers)" if workers > 1 else ""))

    def resumed(self, step: int, total: int) -> None:
        """See `Reporter`."""
        self.last_step = step
        self._print(f"Going on after step {step} of {total}", style="bold")

    def step(self, record: StepRecord, rates: dict[str, float]) -> None:
        """See `Reporter`."""
        if record.evaluation:
            self._print(render.evaluation_line(record.step, record.evaluation))
            return
        first, self.last_step = not self._seconds, record.step
        self._seconds.append(record.seconds)
        total = max(self._view.total, record.step)
        left = (total - record.step) * sum(self._seconds) / len(self._seconds)
        step = StepView(
            step=record.step,
            total=total,
            seconds=record.seconds,
            metrics=record.metrics,
            rates=rates,
            seconds_left=left if len(self._seconds) > 1 else None,  # the first step is a slow one
        )
        self._change(step=step)
        due = first or record.step == total or record.step % max(1, total // _LINES_PER_RUN) == 0
        if not self._interactive and (due or self._clock() - self._printed_at >= _LONGEST_SILENCE):
            self._printed_at = self._clock()
            self._print(render.step_line(step))

    def incident(self, incident: Incident) -> None:
        """See `Reporter`."""
        if self._interactive:
            self._change(restoring=(*self._view.restoring, incident))
        else:
            self._print(render.incident_line(incident))

    def recovered(self, worker: str, seconds: float) -> None:
        """See `Reporter`."""
        back = f"restored in {seconds:.1f} s"
        if not self._interactive:
            self._print(f"{worker} {back}")
            return
        over = [incident for incident in self._view.restoring if incident.worker == worker]
        self._change(restoring=tuple(incident for incident in self._view.restoring if incident.worker != worker))
        lines = [render.incident_line(incident) for incident in over] or [worker]
        for line in lines[:-1]:
            self._print(line, style="yellow")
        self._print(f"{lines[-1]}; {back}" if over else f"{worker} {back}", style="yellow")

    def _end_phase(self) -> None:
        view = self._view
        if self._interactive and view.phase and view.step is None:
            self._print(f"{view.phase}: {render.duration(self._clock() - view.since)}", style="dim")

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._view = replace(self._view, **changes)

    def _draw(self) -> RenderableType:
        return render.live(self._view, self._clock(), self._console.width)

    def _print(self, what: RenderableType, *, style: str | None = None) -> None:
        text = Text(what, style=style or "") if isinstance(what, str) else what
        # A log is read by programs too: its lines are not broken.
        self._console.print(text, soft_wrap=not self._interactive)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
