"""The console of the commands: a terminal's width where there is one, whole lines where a program or a log reads."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import IO

from rich.console import Console, RenderableType

_UNBROKEN = 500


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output, or another file."""
    file = file or sys.stdout
    width = None if file.isatty() or os.environ.get("COLUMNS", "").isdigit() else _UNBROKEN
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def show(console: Console, shown: RenderableType) -> None:
    """Print; where a program reads, without the spaces with which lines are filled up."""
    if console.is_terminal:
        console.print(shown)
        return
    with console.capture() as captured:
        console.print(shown)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def now() -> datetime:
    """The time, as ages are counted from."""
    return datetime.now(UTC)
