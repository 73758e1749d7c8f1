"""A line of a pod's log, and how it is written. Pure but for the file that is written to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import click

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) ?")
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line.

    Attributes:
        time: To compare with others: seconds and nanoseconds as text of one width; "" where none is known.
        text: The line without its time.
        label: Which pod's.
    """

    time: str
    text: str
    label: str

    @property
    def second(self) -> str | None:
        """The time in whole seconds, as a request for later lines wants it."""
        return f"{self.time[:19]}Z" if self.time else None


def parse(text: str, label: str) -> LogLine:
    """Read a line that begins with its time, as the kubelet writes it: the fraction has no zeros at its end."""
    found = _TIME.match(text)
    if found is None:
        return LogLine(time="", text=text, label=label)
    time = f"{found[1]}.{(found[2] or ''):0<9}Z"
    return LogLine(time=time, text=text[found.end() :], label=label)


class Fresh:
    """Tells which lines of a log that is read again are new.

    A log can be asked for only from a whole second on, and several lines can have one time.
    """

    def __init__(self) -> None:
        self.last: LogLine | None = None
        self._same = 0
        self._skip = 0

    def again(self) -> None:
        """The log is about to be read again, from `last.second` on."""
        self._skip = self._same

    def is_new(self, line: LogLine) -> bool:
        """Whether a line was not seen before; counts it."""
        if self.last is not None and line.time and line.time < self.last.time:
            return False
        if self.last is not None and line.time == self.last.time:
            if self._skip:
                self._skip -= 1
                return False
            self._same += 1
        else:
            self._same, self._skip = 1, 0
        self.last = line
        return True


class Writer:
    """Writes lines, with their pod before them where there are several.

    Args:
        file: Where to.
        labels: The pods' labels; none: lines are written as they are. Labels that come later are aligned with these.
        timestamps: Whether the time stands first.
    """

    def __init__(self, file: IO[str], *, labels: Sequence[str] = (), timestamps: bool = False) -> None:
        self._file, self._timestamps = file, timestamps
        self._width = max(map(len, labels), default=0)
        self._colors: dict[str, str] = {}

    def write(self, line: LogLine) -> None:
        """Write one line at once, since a reader may wait for it."""
        time = f"{line.time} " if self._timestamps and line.time else ""
        click.echo(f"{self._prefix(line.label)}{time}{line.text}", file=self._file)

    def _prefix(self, label: str) -> str:
        if not self._width:
            return ""
        color = self._colors.setdefault(label, _COLORS[len(self._colors) % len(_COLORS)])
        return click.style(f"{label:<{self._width}} | ", fg=color)
