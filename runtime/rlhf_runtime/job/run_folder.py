"""The folder of a run: everything that it leaves behind, and the lock that keeps a second process out.

runs/NAME/manifest.json     the job as it was started
          state/            commits, snapshots, update logs: what a resumed run needs
          metrics.jsonl     one line per step or evaluation
          events.jsonl      the DAG: every node's readiness, times, bytes and place
          logs/             one file per worker
          summary.json      the outcome
          learning_curve.png
          model/            the trained model, for `transformers`
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
from typing import IO, Any

from rlhf_runtime.errors import RlhfError


class RunFolderError(RlhfError):
    """The run's folder is in use, or belongs to another job."""


class RunFolder:
    """One run's folder; `open` locks it for this process.

    Args:
        path: Where it is or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._logs: dict[str, IO[str]] = {}

    @property
    def state(self) -> Path:
        """Where the state store lives."""
        return self.path / "state"

    @property
    def model(self) -> Path:
        """Where the trained model is written."""
        return self.path / "model"

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
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
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
        wanted = _fixed_part(manifest)
        if file.exists() and self._has_steps():
            differing = _differences(_fixed_part(_with_defaults(file)), wanted)
            if differing:
                raise RunFolderError(
                    f'"{self.path}" holds a run of another manifest; they differ in {", ".join(differing)}. '
                    "Start anew with --fresh, or give the job another name"
                )
        write_json(file, manifest)

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
        file = self.path / "events.jsonl"
        if not file.is_file():
            return Counter()
        with file.open(encoding="utf-8", errors="replace") as lines:
            events = [parse_object(line) for line in lines if '"incident"' in line]
        return Counter(str(event.get("role")) for event in events if event and event.get("kind") == "incident")

    def summary(self) -> dict[str, Any] | None:
        """The last summary, if there is one that can be read: it says nothing that the other files do not."""
        file = self.path / "summary.json"
        return parse_object(file.read_text(encoding="utf-8", errors="replace")) if file.exists() else None

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
        metrics, commits = self.path / "metrics.jsonl", self.state / "commits"
        return (metrics.exists() and metrics.stat().st_size > 0) or (commits.exists() and any(commits.iterdir()))


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


_CHANGEABLE = (("algorithm", "totalSteps"), ("algorithm", "evaluation"), ("state",), ("suspend",))


def _with_defaults(file: Path) -> dict[str, Any]:
    """A stored manifest with the defaults of fields that are newer than it."""
    from pydantic import ValidationError

    from rlhf_api.types import RLHFJob

    text = file.read_text(encoding="utf-8")
    try:
        return RLHFJob.model_validate_json(text, by_alias=True, by_name=False).to_manifest()
    except ValidationError:  # the types have moved on: compare what there is
        stored = parse_object(text)
        if stored is None:
            raise RunFolderError(f'"{file}" is damaged: restore it, or start anew with --fresh') from None
        return stored


def _fixed_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(manifest.get("spec", {})))
    for *parents, last in _CHANGEABLE:
        section: Any = spec
        for name in parents:
            section = section.get(name, {})
        section.pop(last, None)
    for role in spec.get("roles", []):
        role.pop("restartPolicy", None)
        role.pop("nodePool", None)
    return spec


def _differences(old: Any, new: Any, path: str = "spec") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [d for name in names for d in _differences(old.get(name), new.get(name), f"{path}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in _differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [f"`{path}`"]
