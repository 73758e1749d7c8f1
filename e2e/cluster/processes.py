"""The long-running programs of the cluster: started here, found again by a later command, ended by their own pid.

Each has a record in the state folder with all that is needed to start it again, and its pid together with the time at
which that process began, so that a pid that the system gave to another program is never touched.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from e2e.cluster import cgroups, paths
from e2e.cluster.errors import ClusterError

_ENTER_CGROUP = 'for f in $CGROUP_FOLDERS; do echo $$ > "$f/cgroup.procs"; done; unset CGROUP_FOLDERS; exec "$@"'

_children: list[subprocess.Popen[bytes]] = []
"""Kept, since Python warns when it forgets a child that still runs; all of them outlive this command."""


@dataclass(slots=True, kw_only=True)
class Process:
    """A program that keeps running after the command that started it.

    It runs in the network namespace ``netns`` and the cgroup ``rlhf-cluster/CGROUP``; its output is appended to
    ``logs/NAME.log``.
    """

    name: str
    argv: list[str]
    netns: str
    cgroup: str
    env: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    began: int = 0

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return paths.LOGS / f"{self.name}.log"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.running():
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        folders = " ".join(str(folder) for folder in cgroups.make(self.cgroup))
        # Not `ip netns exec`: it mounts a fresh sysfs, in which the kubelet finds no cgroups.
        enter = ["sh", "-c", _ENTER_CGROUP, "sh", "nsenter", f"--net=/run/netns/{self.netns}", *self.argv]
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                enter,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": paths.search_path(), "HOME": "/root", "CGROUP_FOLDERS": folders, **self.env},
                cwd="/",
                start_new_session=True,
            )
        _children.append(started)
        self.pid, self.began = started.pid, _began(started.pid)
        self._save()

    def running(self) -> bool:
        """Whether the process that was started is still there."""
        return self.pid != 0 and self.began != 0 and _began(self.pid) == self.began

    def stop(self, *, grace: float = 10) -> None:
        """Ask it to end, and after ``grace`` seconds make it; 0 ends it at once."""
        if not self.running():
            return
        with _pidfd(self.pid) as process:
            if grace > 0:
                signal.pidfd_send_signal(process.fd, signal.SIGTERM)
                if process.wait(grace):
                    return
            signal.pidfd_send_signal(process.fd, signal.SIGKILL)
            if not process.wait(10):
                raise ClusterError(f"{self.name} (pid {self.pid}) does not end after SIGKILL")

    def need_running(self) -> None:
        """Raise with the end of its log if it has ended."""
        if not self.running():
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:]) or "(empty)"
            raise ClusterError(f"{self.name} has ended; the end of {self.log}:\n{tail}")

    def forget(self) -> None:
        """Stop it for good: it is no longer known."""
        self.stop()
        _record(self.name).unlink(missing_ok=True)

    def _save(self) -> None:
        paths.write_whole(_record(self.name), json.dumps(asdict(self), indent=1))


def find(name: str) -> Process:
    """The process of that name, running or not.

    Raises:
        ClusterError: none of that name was ever started in this cluster.
    """
    record = _record(name)
    if not record.exists():
        raise ClusterError(f'no process "{name}" was started here; is the cluster up? (`make cluster-status`)')
    return Process(**json.loads(record.read_text()))


def _record(name: str) -> Path:
    return paths.STATE / "processes" / f"{name}.json"


def known() -> list[Process]:
    """Every process that was started in this cluster."""
    return [find(path.stem) for path in sorted((paths.STATE / "processes").glob("*.json"))]


def _began(pid: int) -> int:
    """The clock tick at which a process began; 0 if it is gone, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if stat[0] in "ZX" else int(stat[19])


class _pidfd:  # noqa: N801 - reads like the function that it wraps
    """A process as a file descriptor, whose end can be awaited also when it is not our child."""

    def __init__(self, pid: int) -> None:
        self.fd = os.pidfd_open(pid)

    def __enter__(self) -> "_pidfd":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def wait(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        return bool(poller.poll(max(0, seconds) * 1000))


def wait_until(what: str, ready: Callable[[], bool], *, timeout: float, processes: list[Process] | None = None) -> None:
    """Call ``ready()`` until it is true.

    Raises:
        ClusterError: it is not within ``timeout`` seconds, or one of ``processes`` has ended meanwhile.
    """
    give_up = time.monotonic() + timeout
    while not ready():
        for process in processes or ():
            process.need_running()
        if time.monotonic() > give_up:
            logs = ", ".join(str(process.log) for process in processes or ()) or paths.LOGS
            raise ClusterError(f"{what}: not within {timeout:.0f} s; see {logs}")
        time.sleep(0.1)
