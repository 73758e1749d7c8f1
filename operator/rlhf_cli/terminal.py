"""The console of the commands: a terminal's width where there is one, whole lines where a program or a log reads."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import IO

from rich.console import Console

_UNBROKEN = 500


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output, or another file."""
    file = file or sys.stdout
    width = None if file.isatty() else _UNBROKEN
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def now() -> datetime:
    """The time, as ages are counted from."""
    return datetime.now(UTC)
