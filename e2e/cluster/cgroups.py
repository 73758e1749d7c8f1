"""Control groups of the cluster: every process of it is in one below ``rlhf-cluster``, so that none can be lost.

On cgroup v2 there is one tree; on v1 each controller has a tree of its own, and the kubelet and runc want the same
folder in all of them.
"""

import os
import signal
import time
from functools import cache
from pathlib import Path

from e2e.cluster.errors import CannotRunHereError, ClusterError

ROOT = "rlhf-cluster"
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


@cache
def trees() -> tuple[Path, ...]:
    """The folders where cgroup trees with controllers are mounted: one on v2, one per controller (set) on v1."""
    found = _mounted("cgroup") or _mounted("cgroup2")
    if not found:
        raise CannotRunHereError("no cgroup file system is mounted at /sys/fs/cgroup")
    return found


@cache
def all_trees() -> tuple[Path, ...]:
    """The same, and in a hybrid also the v2 tree without controllers, in which runc makes groups too."""
    return tuple(dict.fromkeys((*trees(), *_mounted("cgroup2"))))


def _mounted(kind: str) -> tuple[Path, ...]:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return tuple(dict.fromkeys(Path(line[1]) for line in lines if line[2] == kind))


@cache
def version() -> int:
    """1 or 2, by what is mounted; a hybrid counts as 1, since the kubelet takes it for that."""
    return 1 if _mounted("cgroup") else 2


def make(name: str) -> list[Path]:
    """Make the group ``rlhf-cluster/NAME`` in every tree; returns its folders."""
    folders = []
    for tree in trees():
        folder = tree
        for part in (ROOT, *name.split("/")):
            _enable_controllers(folder)
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(parent, folder)
        folders.append(folder)
    return folders


def _enable_controllers(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    if not control.exists():
        return  # v1
    there = (folder / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in _V2_CONTROLLERS if name in there]
    try:
        control.write_text(" ".join(wanted))
    except OSError as error:
        raise CannotRunHereError(
            f"the cgroup controllers of {folder} cannot be passed on ({error.strerror}): run this outside a container, "
            "or in one with a cgroup namespace whose root group holds no process"
        ) from error


def _inherit_cpuset(parent: Path, folder: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = folder / name
        if version() == 1 and own.exists() and not own.read_text().strip():
            own.write_text((parent / name).read_text())  # an empty set lets no process in


def processes(name: str = "") -> set[int]:
    """The ids of all processes in ``rlhf-cluster/NAME`` and below."""
    found: set[int] = set()
    for tree in all_trees():
        for folder in _folders(tree / ROOT / name):
            try:
                found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
            except OSError:  # the group went away while we looked
                continue
    return found


def kill(name: str = "", *, timeout: float = 15) -> None:
    """End every process in the group and below with SIGKILL, until none is left.

    Raises:
        ClusterError: some are still there after ``timeout`` seconds.
    """
    give_up = time.monotonic() + timeout
    while left := processes(name):
        if time.monotonic() > give_up:
            raise ClusterError(f"the processes {sorted(left)} do not end; they may hang in the kernel")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)  # SIGKILL has no event to wait for on a process that is not our child


def memory(name: str = "") -> int:
    """The bytes that the group and all below it hold, without the page cache, which the kernel takes back at need."""
    keys: tuple[str, ...] = ("anon", "shmem", "kernel") if version() == 2 else ("total_rss", "total_shmem")
    tree = next((tree for tree in trees() if tree.name == "memory"), trees()[0])
    try:
        lines = (tree / ROOT / name / "memory.stat").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(int(value) for key, value in (line.split() for line in lines) if key in keys)


def remove(name: str = "") -> None:
    """Remove the group and all below it; its processes must be gone."""
    for tree in all_trees():
        for folder in reversed(list(_folders(tree / ROOT / name))):
            _rmdir(folder)


def _rmdir(folder: Path) -> None:
    give_up = time.monotonic() + 5
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:  # busy for a moment after the last process
            if time.monotonic() > give_up:
                raise ClusterError(f"cannot remove the cgroup {folder}: {error.strerror}") from error
            time.sleep(0.02)


def _folders(top: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(top)]
