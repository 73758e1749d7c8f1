"""Where the images' files lie in the cache, and how two processes keep out of each other's way there."""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError

LOCK_LIMIT_SECONDS = 3600.0
"""The longest thing that is done under a lock is a cold build, downloads included."""


def home() -> Path:
    """The folder of everything about images."""
    return paths.cache_folder() / "images"


def records() -> Path:
    """One file per build that was finished, named by the hash of its inputs."""
    return home() / "records"


def seed() -> Path:
    """The containerd root that the nodes link to."""
    return home() / "seed"


def seed_record() -> Path:
    """What the seed holds; absent while that is not known to be whole."""
    return home() / "seed.json"


def in_seed() -> dict[str, str]:
    """The digest of each image that the seed holds."""
    return dict((read_json(seed_record()) or {}).get("images", {}))


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of that name; the kernel frees it when the process ends, however it does.

    Raises:
        ClusterError: another process held it for an hour.
    """
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_LIMIT_SECONDS
    with (folder / name).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterError(f'another process has held the lock "{file.name}" for an hour') from None
                time.sleep(0.1)
        yield


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A folder for unfinished work, on the disk of the cache, which is removed at the end.

    Those of processes that were killed, which may hold gigabytes, are removed by the next process that needs one.
    """
    parent = home() / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob("*-pid*-*"):
        if not Path("/proc", left.name.split("-pid")[1].split("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-pid{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a small file so that a reader sees all of it or none."""
    paths.write_whole(path, json.dumps(content, indent=1))


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of such a file, or None where there is none."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    assert isinstance(content, dict)
    return content
