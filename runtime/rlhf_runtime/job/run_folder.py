"""The folder of a run: everything that it leaves behind, and the lock that keeps a second process out.

runs/NAME/manifest.json     the job as it was started
          state/            commits, snapshots, update logs: what a resumed run needs
          metrics.jsonl     one line per step or evaluation
          events.jsonl      the DAG: every node's readiness, times, bytes and place
          incidents.jsonl   the deaths of workers
          logs/             one file per worker
          summary.json      the outcome
          learning_curve.png
          model/            the trained model, for `transformers`

On a cluster the folder lies on a shared volume, or in the controller's pod when state is at a URI. There the lock only
tells: a file system over the network may keep the lock of a pod on a dead node for long, and it is the epoch in the
state store that keeps a second controller from writing. With a URI what is worth keeping is copied there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.job.same_run import differences, fixed_part

if TYPE_CHECKING:
    from rlhf_runtime.resilience.state_store import StateStore

_KEPT = ("manifest.json", "metrics.jsonl", "incidents.jsonl", "summary.json", "learning_curve.png")


class RunFolderError(RlhfError):
    """The run's folder is in use, or belongs to another job."""


class RunFolder:
    """One run's folder; `open` locks it for this process.

    Args:
        path: Where it is or will be.
        state: Where the state store is, a folder or URI; by default in the run's folder.
        on_cluster: Whether a lock that somebody holds is no obstacle; see the module.
    """

    def __init__(self, path: Path, *, state: str | None = None, on_cluster: bool = False) -> None:
        self.path = path
        self.state = state or str((path / "state").absolute())
        self._on_cluster = on_cluster
        self._lock: IO[str] | None = None
        self._logs: dict[str, IO[str]] = {}

    @property
    def is_remote(self) -> bool:
        """Whether state is at a URI, and the folder ends with its pod."""
        return "://" in self.state

    @property
    def model(self) -> str:
        """Where the trained model is written: a folder, or a URI below that of the state."""
        return f"{self.state.rstrip('/')}/model" if self.is_remote else str((self.path / "model").absolute())

    @property
    def logs(self) -> Path:
        """Where the workers' output goes."""
        return self.path / "logs"

    def open(self) -> None:
        """Make the folder if need be and lock it; nothing happens if this object has the lock already.

        Raises:
            RunFolderError: Another process runs in it, or it cannot be written.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise RunFolderError(f'the run\'s folder "{self.path}" cannot be written: {error.strerror}') from error
        if self.is_remote:
            self._fetch()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if self._on_cluster:
                self._lock = lock
                return
            with lock:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
            raise RunFolderError(f'another process ({holder}) runs in "{self.path}"') from error
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Close the files and give up the lock."""
        self._close_logs()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Keep the job's manifest; once a step was made, compare it with the one that the run was started with.

        Raises:
            RunFolderError: They differ in something that a resumed run cannot change.
        """
        file = self.path / "manifest.json"
        if file.exists() and self._has_steps():
            differing = differences(fixed_part(self._with_defaults(file)), fixed_part(manifest))
            if differing:
                raise RunFolderError(
                    f'"{self.place}" holds a run of another manifest; they differ in {", ".join(differing)}. '
                    f"{self.how_to_start_anew.capitalize()}, or give the job another name"
                )
        write_json(file, manifest)
        self.keep()

    @property
    def place(self) -> str:
        """What messages call it: the part that outlives the process."""
        return self.state if self.is_remote else str(self.path)

    @property
    def how_to_start_anew(self) -> str:
        """The words of a message for it."""
        return f'delete "{self.place}" to start anew' if self._on_cluster else "start anew with --fresh"

    def read_metrics(self, *, up_to_step: int) -> list[dict[str, Any]]:
        """The metric lines up to a step; the lines of steps that were not committed are dropped from the file."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        self._close_logs()  # the file is about to be replaced
        lines = [parse_object(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        kept = [line for line in lines if line and isinstance(line.get("step"), int) and line["step"] <= up_to_step]
        replace_text(file, "".join(json.dumps(line) + "\n" for line in kept))
        return kept

    def has_trained(self) -> bool:
        """Whether there is the line of a training step."""
        file = self.path / "metrics.jsonl"
        return file.exists() and '"seconds"' in file.read_text(encoding="utf-8", errors="replace")

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to one of the `.jsonl` files; the file stays open, since events come by the dozen each step."""
        file = self._logs.get(name)
        if file is None:
            file = self._logs[name] = (self.path / name).open("a", buffering=1, encoding="utf-8")
        file.write(json.dumps(line) + "\n")

    def restarts(self) -> Counter[str]:
        """How many deaths of each role's workers the run has seen, in all its sessions."""
        return Counter(str(incident.get("role")) for incident in self.incidents())

    def incidents(self) -> list[dict[str, Any]]:
        """The deaths of workers that the run has seen, in all its sessions."""
        file = self.path / "incidents.jsonl"
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return [incident for incident in map(parse_object, lines) if incident]

    def summary(self) -> dict[str, Any] | None:
        """The last summary, if there is one that can be read: it says nothing that the other files do not."""
        file = self.path / "summary.json"
        return parse_object(file.read_text(encoding="utf-8", errors="replace")) if file.exists() else None

    def keep(self) -> None:
        """Copy to the state's URI what would end with this pod; nothing happens where the folder stays by itself.

        Raises:
            StateStoreError: It cannot be written there.
        """
        if self.is_remote:
            store = self._store()
            for name in _KEPT:
                if (self.path / name).is_file():
                    store.write(f"run/{name}", (self.path / name).read_bytes())

    def _fetch(self) -> None:
        store = self._store()
        for name in _KEPT:
            file = self.path / name
            if not file.exists() and store.exists(f"run/{name}"):
                file.write_bytes(store.read(f"run/{name}"))

    def _store(self) -> StateStore:
        from rlhf_runtime.resilience.state_store import open_state_store

        return open_state_store(self.state)

    def clear(self) -> None:
        """Remove all that an earlier run left."""
        self._close_logs()
        for entry in self.path.iterdir():
            if entry.name == ".lock":
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _close_logs(self) -> None:
        for file in self._logs.values():
            with contextlib.suppress(OSError):  # of a full disk, which was told when the line was written
                file.close()
        self._logs.clear()

    def _has_steps(self) -> bool:
        metrics = self.path / "metrics.jsonl"
        if metrics.exists() and metrics.stat().st_size > 0:
            return True
        if self.is_remote:
            return bool(self._store().list("commits/"))
        commits = Path(self.state) / "commits"
        return commits.exists() and any(commits.iterdir())

    def _with_defaults(self, file: Path) -> dict[str, Any]:
        """A stored manifest with the defaults of fields that are newer than it."""
        from pydantic import ValidationError

        from rlhf_api.types import RLHFJob

        text = file.read_text(encoding="utf-8")
        try:
            return RLHFJob.model_validate_json(text, by_alias=True, by_name=False).to_manifest()
        except ValidationError:  # the types have moved on: compare what there is
            stored = parse_object(text)
            if stored is None:
                raise RunFolderError(f'"{file}" is damaged: restore it, or {self.how_to_start_anew}') from None
            return stored


def parse_object(text: str) -> dict[str, Any] | None:
    """A JSON object; None for anything else, such as a line that was torn or damaged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    replace_text(file, json.dumps(value, indent=2) + "\n")


def replace_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    draft = file.with_name(f".{file.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
