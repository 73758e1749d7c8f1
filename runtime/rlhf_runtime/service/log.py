"""The controller's log: the container's output, and the same lines in the run's folder, over all its attempts."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from rlhf_api.formats import format_time


class ControllerLog:
    """Plain lines with the time, in UTC; may be called from any thread."""

    def __init__(self, output: IO[str] | None = None) -> None:
        self._output = output or sys.stdout
        self._file: IO[str] | None = None
        self._lock = threading.RLock()

    def also_to(self, file: Path) -> None:
        """Append to `file` too from now on; where that cannot be done, say so and go on without."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._file = file.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            self.line(f'this log is not kept: "{file}" cannot be written: {error.strerror}')

    def line(self, text: str) -> None:
        """Write a line, or several of one moment."""
        stamp = format_time(datetime.now(UTC))
        lines = "".join(f"{stamp} {line}\n" for line in text.splitlines() or [""])
        with self._lock:
            self._output.write(lines)
            self._output.flush()
            if self._file is None:
                return
            try:
                self._file.write(lines)
            except OSError as error:  # a full volume: the container's output still has it
                self._file = None
                self.line(f"from here on this log is not kept in the run's folder: {error.strerror}")
