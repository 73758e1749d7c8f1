"""One line per step of long work: what, and how long it took."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_running: dict[object, str] = {}


def say(text: str) -> None:
    """Print a line, above the one that shows what is being done."""
    with _lock:
        _clear()
        print(text, flush=True)
        _show()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Show ``name`` while the block runs, and afterwards a line with its time.

    Steps may run at the same time, in threads. On a terminal the last line shows what is being done; elsewhere (in CI)
    only finished steps are printed, and those that take long also when they begin.
    """
    started = time.monotonic()
    key = object()
    with _lock:
        _clear()
        _running[key] = name
        _show()
    mark = "failed"
    try:
        yield
        mark = "ok"
    finally:
        with _lock:
            _clear()
            del _running[key]
            print(f"{time.monotonic() - started:7.1f} s  {name}" + ("" if mark == "ok" else ": failed"), flush=True)
            _show()


def _clear() -> None:
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[2K")


def _show() -> None:
    if sys.stdout.isatty() and _running:
        sys.stdout.write(f"      ...  {', '.join(_running.values())}"[:110])
        sys.stdout.flush()
