"""A role's output in its pod's own output: who writes says where, who copies finds it there.

A worker's log file lies on the run's volume and is shared by all attempts of that worker, in whatever pod they ran. So
each process links its file into a folder of the pod, with its process id and the size that the file had: from there on
what is appended is this process's, until it ends.

    /tmp/rlhf/logs/critic-worker-000.4711@58213 -> /rlhf/state/RUN/logs/critic-worker-000.log
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_LINK = re.compile(r".*\.(?P<pid>\d+)@(?P<offset>\d+)\Z")
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 20
_FileKey = tuple[int, int]


def link_log(log_file: str, folder: str) -> None:
    """Let the pod's first process copy what this process appends to `log_file` from now on, where there is one."""
    if not os.path.isdir(folder):
        return
    worker = os.path.basename(log_file).removesuffix(".log")
    offset = os.path.getsize(log_file)
    with contextlib.suppress(FileExistsError):  # colocated roles of one process are assigned one after another
        os.symlink(log_file, os.path.join(folder, f"{worker}.{os.getpid()}@{offset}"))


@dataclass(slots=True)
class _Followed:
    """A file that is copied. `pids` are the processes that write to it, None for one that nobody signed."""

    file: BinaryIO
    position: int
    pids: dict[str, int | None] = field(default_factory=dict)
    rest: bytes = b""


class LogCopier:
    """Copies whole lines of every file in a folder, also of those that appear later.

    Args:
        folder: Has files and links to files.
        output: Takes the lines.
    """

    def __init__(self, folder: str, output: BinaryIO) -> None:
        self._folder = Path(folder)
        self._output = output
        self._followed: dict[_FileKey, _Followed] = {}
        self._copied_to: dict[_FileKey, int] = {}
        self._known: set[str] = set()

    def copy(self, *, last: bool = False) -> bool:
        """Copy what is new; False when there was nothing. `last`: nobody will write any more."""
        self._find()
        copied = False
        for key, followed in list(self._followed.items()):
            over = last or not any(pid is None or _lives(pid) for pid in followed.pids.values())
            copied |= self._read(followed)  # after the look at the processes: what a dead one wrote is all there
            if over:
                self._end(key, followed)
        if copied:
            self._output.flush()
        return copied

    def has_writers(self) -> bool:
        """Whether a process lives that has signed a file here."""
        signed = [match for match in map(_LINK.match, os.listdir(self._folder)) if match is not None]
        return any(_lives(int(match["pid"])) for match in signed)

    def _find(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            new = [entry for entry in os.listdir(self._folder) if entry not in self._known]
            for name in sorted(new, key=_offset):  # of two processes that shared a file, the earlier one first
                self._follow(name)

    def _follow(self, name: str) -> None:
        try:
            file = open(self._folder / name, "rb", buffering=0)
        except (FileNotFoundError, IsADirectoryError):
            return  # a link may be there before the file that it names
        self._known.add(name)
        signed = _LINK.match(name)
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino)
        if key in self._followed:
            file.close()
        else:
            # Where one process's end and the next one's beginning were seen at once, some is copied already.
            self._followed[key] = _Followed(file, max(_offset(name), self._copied_to.get(key, 0)))
        self._followed[key].pids[name] = int(signed["pid"]) if signed else None

    def _read(self, followed: _Followed) -> bool:
        if os.fstat(followed.file.fileno()).st_size < followed.position:  # truncated: what is there now is new
            followed.position = 0
        copied = False
        followed.file.seek(followed.position)
        while chunk := followed.file.read(_CHUNK):
            followed.position += len(chunk)
            lines, newline, rest = (followed.rest + chunk).rpartition(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, newline, rest = lines + newline + rest, b"\n", b""
            self._output.write(lines + newline)
            followed.rest = rest
            copied = True
        return copied

    def _end(self, key: _FileKey, followed: _Followed) -> None:
        if followed.rest:
            self._output.write(followed.rest + b"\n")
            self._output.flush()
        followed.file.close()
        self._copied_to[key] = followed.position
        del self._followed[key]
        for name, pid in followed.pids.items():
            if pid is not None:
                (self._folder / name).unlink(missing_ok=True)
                self._known.discard(name)


def _offset(name: str) -> int:
    signed = _LINK.match(name)
    return int(signed["offset"]) if signed else 0


def _lives(pid: int) -> bool:
    """Whether there is such a process, and not only its entry in the table."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
